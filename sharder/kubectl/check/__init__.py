"""`kubectl sharding check`: what keeps a cluster's rings from working, and what to do about it."""
