"""What has to be placed, of one ring: informers, the queue that they fill, and since when each object waits."""
