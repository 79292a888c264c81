"""Placement of one ring's objects by labels: the strategy that a ring's controller runs.

Guarantees: an owner and its children change hands children first
(tests/integration/test_groups.py); what admission missed is placed within about a
second (tests/integration/test_placement.py).

Reading order: placement (what it is made of), reconciler (one object), handover
(owners with children), label_writer (the only code that writes labels), resync.
"""
