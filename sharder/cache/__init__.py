"""What every replica knows of rings and shards: informers of rings, leases and namespaces, and views made from them.

Does not judge which shard is dead: that is `sharder.takeover`, on the leader.
"""
