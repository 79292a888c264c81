"""Two controllers in one program: one is sharded, the other runs on one replica at a time.

    python -m examples.elected --ring checksum --name shard-1 --namespace default

Every replica is a shard and keeps a ConfigMap next to each of its Secrets.  One
of them leads as well, and counts all Secrets of the namespace in a ConfigMap
called `secrets-count`: work that cannot be divided.  Without --ring nothing is
sharded, and this is a controller with leader election like any other.
"""

from __future__ import annotations

import argparse

from shardsdk import Context, Election, LeaseTimings, Manager, PartialObject, Resource, controller_for
from shardsdk.errors import AlreadyExists

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")


async def keep(context: Context[PartialObject]) -> None:
    """Sharded: keep a ConfigMap next to every Secret."""
    name = f"{context.request.name}-seen"
    if not context.metadata.deletion_timestamp and context.child(CONFIGMAPS, name) is None:
        metadata = {"name": name, "ownerReferences": [context.controller_reference()]}
        await context.api.create(CONFIGMAPS, {"metadata": metadata}, context.request.namespace)


async def count(context: Context[PartialObject]) -> None:
    """On the leader: count the Secrets of the namespace."""
    namespace = context.request.namespace
    found = 0
    async for page in context.api.pages(SECRETS, namespace):
        found += len(page)
    body = {"metadata": {"name": "secrets-count"}, "data": {"secrets": str(found)}}
    try:
        await context.api.create(CONFIGMAPS, body, namespace)
    except AlreadyExists:
        await context.api.patch(CONFIGMAPS, "secrets-count", namespace, {"data": body["data"]})


def main() -> None:
    """Be one replica until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ring", help="the ClusterRing that `keep` is sharded by (default: none, all on the leader)")
    parser.add_argument("--name", help="this shard's name (default: the host's)")
    parser.add_argument("--namespace", help="where the leases are (default: the pod's)")
    parser.add_argument("--watch-namespace", help="where the Secrets are (default: in all namespaces)")
    parser.add_argument("--lease-seconds", type=int, default=15, help="how long others wait when this one is silent")
    options = parser.parse_args()

    timings = LeaseTimings.of(options.lease_seconds)
    manager = Manager(
        options.ring,
        election=Election("elected", namespace=options.namespace, timings=timings),
        shard=options.name,
        namespace=options.namespace,
        watch_namespace=options.watch_namespace,
        timings=timings,
        health_address="0",
        metrics_address="0",
    )
    sharded = controller_for(SECRETS).owns(CONFIGMAPS).reconcile(keep).options(name="keep")
    manager.add(sharded if options.ring else sharded.on_leader())
    manager.add(controller_for(SECRETS).on_leader().reconcile(count).options(name="count"))
    manager.run()


if __name__ == "__main__":
    main()
