"""What a shard decides, as pure functions and one state machine.

Guarantees, each with the test that proves it:

- A shard works on an object only while the object's labels name it and nobody
  asks for the object (`guard`; tests/unit/test_guard.py).
- Whoever holds a lease has stopped before anyone else may take it, whatever is
  lost, late or paused (`keeper`; tests/properties/test_keeper.py).
- Nothing here does I/O or reads a clock (the import rules).

Does not guarantee: that a process stops when it is told to, nor anything where
clocks run at rates that differ by more than the margin of `timings`.
"""
