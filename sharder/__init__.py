"""The service that spreads a controller's objects over its replicas.

Guarantees: no object is taken away from a shard that may still work on it;
no object stays without a shard while one is available; nothing moves without
need; a request is never denied.  docs/concepts.md says how, tests/simulation
and tests/integration show it.

Does not guarantee: fencing of shards that do not fence themselves, and the
owner of objects whose labels users change while the webhook is off.

Reading order: core (pure: ring, keys, states, decisions), controllers (what the
leader does), webhook, replica (one replica without its servers), service, cli.
"""
