"""`kubectl sharding`: what people ask about rings, answered with their own rights.

Guarantees: nothing is written but by `cleanup --yes` (and its dry runs ask the API
server to refuse them); what may not be read is named, and the rest is shown; memory
does not grow with the number of objects (tests/unit/sharder/kubectl, tests/integration/test_kubectl_status.py).

Does not guarantee: one moment in time.  Resources are read one after the other, so
an object that moves meanwhile may be seen on both shards or on none; ask again.
Times since a renewal compare this machine's clock with the shard's.

Reading order: shards (a lease), counting (objects), status.overview (a ring), cluster
(asks the API server), then status.command and the other commands, and cli.
"""
