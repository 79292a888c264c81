"""Helpers for tests of controllers: time that passes without waiting.

Guarantees: code that runs here is the code that runs in production; only the
event loop and the clock are others (tests/unit/test_virtual.py).

Does not guarantee: anything for code that uses threads or looks at a clock of its own.
"""
