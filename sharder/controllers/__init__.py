"""What a replica knows of rings and shards, and what the leader does about it.

Guarantees, each with the tests that show it: an object is taken away from a
shard only under the hold on that shard's lease (tests/simulation,
tests/integration/test_takeover.py); an owner and its children change hands
children first (tests/integration/test_groups.py); nothing moves in an outage
(tests/integration/test_outages.py); what admission missed is placed within
about a second (tests/integration/test_placement.py).

Does not guarantee: that a shard without the fence stops writing in time; such
shards get what leader election gives.

Reading order: registry (caches and views, on every replica), leader (all rings),
ringcontroller (one ring: the page to read first), and what a ring has: leases (who may
be taken from), informers and backlog (what has to be placed), placer (what placement is
made of), worker (one object), groups (one family), labelwriter (the only code that
writes labels), resync; rings (permissions, webhook, status).
"""
