"""What the leader does: one controller per ring, and around it status, webhook configuration and permissions.

Reading order: ring_controller (the page to read first), leader (all rings of one
leadership), then what people see.
"""
