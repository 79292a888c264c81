"""What a replica knows of rings and shards, and what the leader does about it.

Guarantees, each with the tests that show it: an object is taken away from a
shard only under the hold on that shard's lease (tests/simulation,
tests/integration/test_takeover.py); an owner and its children change hands
children first (tests/integration/test_groups.py); nothing moves in an outage
(tests/integration/test_outages.py); what admission missed is placed within
about a second (tests/integration/test_placement.py).

Does not guarantee: that a shard without the fence stops writing in time; such
shards get what leader election gives.

Reading order: registry (caches and views), leases (who may be taken from), then one
ring: placer (what there is, and how it is run), informers and backlog (what has to be
placed), worker (one object), groups (one family), labelwriter (the only code that
writes labels), resync; then rings (permissions, webhook, status) and placement (all
rings of a leader).
"""
