"""`kubectl sharding status`: how rings and their shards are."""
