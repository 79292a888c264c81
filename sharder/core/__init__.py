"""The sharder's decisions: facts in, data out.

Guarantees: every function is pure and total over what it documents.  The hash
ring is a function of the set of shards (tests/properties/test_hashring.py), the
decision table has an answer for every fact (tests/unit/sharder/core/test_decisions.py),
admission never denies (tests/properties/test_admission.py).

Does not guarantee: that a decision is still right when it is carried out.  Every
patch it renders is conditional on what was seen, and the caller holds the lease
that allows it.
"""
