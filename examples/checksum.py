"""A sharded operator: keeps, for every Secret, a ConfigMap that holds the checksum of its data.

    python -m examples.checksum --ring checksum --name shard-1 --namespace default

Start it under as many names as you like; rbac/shard.yaml is what it may do.
"""

from __future__ import annotations

import argparse
import hashlib

from shardsdk import Context, LeaseTimings, Operator
from shardsdk.kinds import ConfigMap, Secret

operator = Operator("checksum", sharded=True)


def checksum(secret: Secret) -> str:
    """SHA-256 over the Secret's keys and values."""
    digest = hashlib.sha256()
    for key, value in sorted(secret.data.items()):
        digest.update(key.encode() + b"\0" + value + b"\0")
    return digest.hexdigest()


@operator.reconcile(Secret, owns=[ConfigMap], concurrency=8)
async def keep(ctx: Context[Secret]) -> None:
    """Make the ConfigMap of one Secret what it should be; the garbage collector takes it along with the Secret."""
    await ctx.apply(ConfigMap(f"{ctx.name}-checksum", data={"sha256": checksum(ctx.object)}))


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

    operator.run(
        ring=options.ring,
        shard=options.name,
        namespace=options.namespace,
        kubeconfig=options.kubeconfig,
        timings=LeaseTimings.of(options.lease_seconds),
        health_address=options.health,
        metrics_address=options.metrics,
    )


if __name__ == "__main__":
    main()
