"""The leases of one ring's shards: classify, decide, write; gives out the fences under which objects are taken away.

Guarantees: an object is taken away from a shard only under the fence of that shard's
lease (tests/simulation, tests/integration/test_takeover.py); nothing moves in an
outage (tests/integration/test_outages.py).

Does not guarantee: that a shard without the fence stops writing in time; such shards
get what leader election gives.

Reading order: facts (what is known of one lease), `sharder.core.takeover` (the decision),
controller, lease_client (the writes), records (what became of them), fences.
"""
