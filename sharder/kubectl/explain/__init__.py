"""`kubectl sharding explain`: why an object is where it is."""
