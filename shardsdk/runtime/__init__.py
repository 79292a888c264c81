"""Controller runtime: queue, cache, controllers, leases, and a manager that starts and stops them in order.

Guarantees, each with the test that proves it:

- An item is never reconciled twice at once, and no event is lost (tests/unit/test_queue.py).
- A shard reconciles an object only while the freshest cached copy names it and
  carries no drain label (tests/unit/test_sharded.py).
- A drain is acknowledged only when no reconcile of that object runs in any of
  the shard's controllers and the shard's writes are settled (tests/unit/test_drains.py).
- An owner handed over by another shard is reconciled only once the cache holds
  every child that existed then (tests/unit/test_barrier.py).
- Finalizers, conditions, owner references and adoption are written conditionally,
  so that nobody else's are lost (tests/unit/test_finalizers.py, test_conditions.py,
  test_references.py, test_adoption.py; tests/integration/test_reconciler_parts.py).
- A process that lost its lease ends before the lease can be taken
  (tests/integration/test_shard_runtime.py).

Does not guarantee: anything about writes that do not go through the client that
a reconcile is handed; and that a plain (thread) function stops when it is told to.
"""
