"""The demo: shards share the work of one controller, join, leave and die, and every object changes hands.

Everything is real: an API server with etcd and controller manager, two sharder
replicas and the shards of examples/checksum, each a process with a
ServiceAccount of its own.  What is shown is checked; a check that fails makes
the demo fail.
"""
