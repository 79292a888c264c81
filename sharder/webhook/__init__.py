"""Answers the API server's admission calls, over TLS, on every replica.

Guarantees:

- It never denies a request: whatever goes wrong, the object passes unlabelled
  and is counted; the leader's watches place it (tests/unit/sharder/webhook/test_app.py,
  tests/integration/test_webhook_admission.py).
- Any body, however malformed, gets an answer of 200 or 4xx; bodies, owner reads
  and the time that each may take have named maxima (tests/unit/sharder/webhook/test_app.py).
- Certificates, connections and the orderly stop are those of shardsdk.serving, which says what it guarantees.

Does not guarantee: that an object is labelled by admission at all. It depends
on this service being reachable, which placement must not.
"""
