"""Answers the API server's admission calls, over TLS, on every replica.

Guarantees:

- It never denies a request: whatever goes wrong, the object passes unlabelled
  and is counted; the leader's watches place it (tests/unit/sharder/webhook/test_app.py,
  tests/integration/test_webhook_admission.py).
- Any body, however malformed, gets an answer of 200 or 4xx; bodies, owner reads
  and the time that each may take have named maxima (tests/unit/sharder/webhook/test_app.py).
  So have connections; those over it get a 503.
- A certificate is changed without a failed handshake or request, for callers
  that name no server too (tests/unit/sharder/webhook/test_server.py; by a real API server:
  tests/integration/test_webhook_admission.py).
- An orderly stop answers every request that has begun (same file).
- Replicas share one authority; a new one is trusted for a day before anything
  it signed is served (tests/unit/sharder/webhook/test_renewal.py).

Does not guarantee: that an object is labelled by admission at all. It depends
on this service being reachable, which placement must not.
"""
