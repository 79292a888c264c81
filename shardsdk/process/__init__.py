"""The process around controllers: manager, probes, signals and exit codes.

Guarantees: a process that lost its lease ends before the lease can be taken
(tests/integration/test_shard_runtime.py).
"""
