"""What reconciles do with objects: owner references, finalizers, conditions, adoption, server-side apply.

Guarantees: all of it is written conditionally, so that nobody else's is lost
(tests/unit/shardsdk/objects; tests/integration/test_reconciler_parts.py).
"""
