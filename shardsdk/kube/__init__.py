"""The only place that speaks to the API server.

Guarantees, each with its proof:

- A write under a fence leaves only while every fence is open, asked when the
  connection is there and the bytes are about to go; the API server gets no
  longer than the hold to execute it (tests/unit/shardsdk/kube/test_fencing.py).
- `writes_settled` returns only when no write sent before can still be executed,
  timeouts and lost connections included (tests/unit/shardsdk/kube/test_fencing.py).
- Lists are consistent: resourceVersion is never 0 and a snapshot that ran out
  half-way is an error, never a short answer (tests/unit/shardsdk/kube/test_client.py).
- A reflector's store converges to what is there through restarts, pauses,
  compaction, throttling and missing permissions, and what vanished meanwhile
  gets its DELETED (tests/unit/shardsdk/kube/test_reflector.py, test_reflector_attempts.py
  beside it, tests/properties/test_reflector.py, tests/integration/test_reflector.py,
  tests/integration/test_reflector_outages.py).
- A process that was stopped for longer than its hold writes nothing when it
  wakes up (tests/integration/test_client_fence.py).
- Tokens that rotate in files, come from exec plugins or OIDC are renewed
  (tests/unit/shardsdk/kube/test_identities.py, tests/integration/test_reflector.py).
- Lists and watches are decoded some milliseconds at a time, however much comes, unless one
  object is large (tests/unit/shardsdk/kube/test_watch.py, tests/integration/test_client.py).

Does not guarantee: that a write whose connection broke was or was not executed
(`resourceVersion` guards against that); that an open watch means the API server
is well; that what happened is noticed if etcd came back from a backup without raising its revision
(`etcdutl snapshot restore --bump-revision`) and was written to beyond the old one
at once, before the next list.  Full garbage collections hold the loop up too, by tens of milliseconds:
call `gc.freeze()` once everything is imported.  So does a cache that shows fewer ranges
(`Reflector.show`), by some milliseconds for each thousand objects that it holds: they are out of sight
before the ranges are given away.

The kubernetes package is imported for a kubeconfig's exec plugin or auth provider, and only then.
"""
