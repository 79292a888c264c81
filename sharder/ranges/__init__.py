"""Assigning the objects of a ring by ranges of hashes: shards are named for parts of a space, no object is touched.

Guarantees: a range is granted only when nobody is named for it and no other shard's
lease holds it, read live and after the version that is written against; what is
lost or made nonsense of by hand is rebuilt from what shards hold, so that nothing moves.

Does not guarantee: that a shard lets go.  It is asked by what it is named for, and
says by its lease what it holds.
"""
