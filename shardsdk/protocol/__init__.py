"""What the sharder and its shards must agree on: names, leases, object metadata.

Guarantees: nothing here does I/O, reads a clock or keeps state; the names are
the ones that Go shards of this ecosystem speak (tests/contracts/test_labels.py
holds them against recorded vectors).

Does not guarantee: that an object on the wire follows the protocol.  Decoding
is lenient, judging is the caller's.
"""
