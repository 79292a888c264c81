"""Leases: a shard's membership in its ring, and leader election.

Guarantees, each with the test that proves it:

- Whoever holds a lease has stopped before anyone else may take it, whatever is
  lost, late or paused (`keeper`; tests/properties/test_keeper.py).
- `keeper`, `claim`, `steps` and `timings` do no I/O and read no clock (the import rules).

Does not guarantee: that a process stops when it is told to, nor anything where
clocks run at rates that differ by more than the margin of `timings`.
"""
