"""`kubectl sharding cleanup`: takes a ring's labels off the objects that carry them."""
