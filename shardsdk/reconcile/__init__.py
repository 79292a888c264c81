"""Reconciles: when one may begin, what it is handed, and how an object is given away.

Guarantees, each with the test that proves it:

- A shard reconciles an object only while the freshest cached copy names it and
  carries no drain label (tests/unit/shardsdk/reconcile/test_sharded.py).
- A drain is acknowledged only when no reconcile of that object runs in any of
  the shard's controllers and the shard's writes are settled (tests/unit/shardsdk/reconcile/test_drains.py).
- An owner handed over by another shard is reconciled only once the cache holds
  every child that existed then (tests/unit/shardsdk/reconcile/test_barrier.py).

Does not guarantee: anything about writes that do not go through the client that
a reconcile is handed; and that a plain (thread) function stops when it is told to.
"""
