"""Ranges of hashes that a shard is named for: what it does from its name's appearance to its last object's end.

Guarantees: no two shards work on one point, whatever is written into a RingAssignment and
whenever it is seen (`parts`; tests/properties/test_ranges_parts.py goes through every state of two shards).
"""
