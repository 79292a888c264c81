"""A sharded controller: keeps, for every Secret, a ConfigMap that holds the checksum of its data.

    python -m examples.checksum --ring checksum --name shard-1 --namespace default

Start it under as many names as you like; rbac/shard.yaml is what it may do.
"""

from __future__ import annotations

import argparse
import base64
import hashlib

from msgspec import Struct

from shardsdk import Context, LeaseTimings, Manager, ObjectMeta, Resource, controller_for

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")


class Data(Struct, frozen=True):
    """What we need to know of a Secret and of a ConfigMap."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


def checksum(secret: Data) -> str:
    """SHA-256 over the Secret's keys and values."""
    digest = hashlib.sha256()
    for key, value in sorted((secret.data or {}).items()):
        digest.update(key.encode() + b"\0" + base64.b64decode(value) + b"\0")
    return digest.hexdigest()


async def reconcile(context: Context[Data]) -> None:
    """Make the ConfigMap of one Secret what it should be."""
    if context.metadata.deletion_timestamp:
        return  # the garbage collector takes the ConfigMap along
    namespace, name = context.request.namespace, f"{context.request.name}-checksum"
    wanted = {"sha256": checksum(context.object)}
    found = context.child(CONFIGMAPS, name)
    if found is None:
        metadata = {"name": name, "ownerReferences": [context.controller_reference()]}
        await context.api.create(CONFIGMAPS, {"metadata": metadata, "data": wanted}, namespace)
    elif found.data != wanted:
        await context.api.patch(CONFIGMAPS, name, namespace, {"data": wanted})


def main() -> None:
    """Be one shard until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ring", required=True, help="the ClusterRing that this controller's shards form")
    parser.add_argument("--name", help="this shard's name (default: the host's)")
    parser.add_argument("--namespace", help="where this shard's Lease is (default: the pod's)")
    parser.add_argument("--kubeconfig", help="how to reach the API server (default: KUBECONFIG, or the pod's account)")
    parser.add_argument("--lease-seconds", type=int, default=15, help="how long others wait when this shard is silent")
    parser.add_argument("--health", default="0", help="address of /healthz and /readyz, such as :8081 (default: none)")
    parser.add_argument("--metrics", default="0", help="address of /metrics, such as :8080 (default: none)")
    options = parser.parse_args()

    manager = Manager(
        options.ring,
        shard=options.name,
        namespace=options.namespace,
        kubeconfig=options.kubeconfig,
        timings=LeaseTimings.of(options.lease_seconds),
        health_address=options.health,
        metrics_address=options.metrics,
    )
    manager.add(controller_for(SECRETS, Data).owns(CONFIGMAPS, Data).reconcile(reconcile).options(concurrency=8))
    manager.run()


if __name__ == "__main__":
    main()
