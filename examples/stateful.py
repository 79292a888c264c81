"""A shard as a pod of a StatefulSet: its name outlives it, so that a rolling update moves nothing.

    python -m examples.stateful --ring checksum --name web-0 --namespace default

A shard that stops keeps its lease for `--restart-grace-seconds`.  Whoever comes
back under its name within that time goes on where it left; after it, the objects
move to the others, as they do at once when a shard without grace stops.

In a StatefulSet the name is the pod's, so --name is left out; it wants
`podManagementPolicy: Parallel`, and POD_NAMESPACE and POD_UID from the downward
API.  charts/sharded-controller renders one.
"""

from __future__ import annotations

import argparse

from shardsdk import Context, LeaseTimings, Operator
from shardsdk.kinds import ConfigMap, Secret

operator = Operator("seen", sharded=True)


@operator.reconcile(Secret, owns=[ConfigMap])
async def keep(ctx: Context[Secret]) -> None:
    """Keep a ConfigMap next to every Secret."""
    await ctx.apply(ConfigMap(f"{ctx.name}-seen"))


def main() -> None:
    """Be one shard until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ring", default="checksum", help="the ClusterRing (default: %(default)s)")
    parser.add_argument("--name", help="this shard's name (default: the host's, in a pod the pod's)")
    parser.add_argument("--namespace", help="where this shard's Lease is (default: the pod's)")
    parser.add_argument("--restart-grace-seconds", type=int, default=120, help="longer than a pod takes to come back")
    parser.add_argument("--lease-seconds", type=int, default=15, help="how long others wait when this shard is silent")
    parser.add_argument("--health", default="0", help="address of /healthz and /readyz, such as :8081 (default: none)")
    parser.add_argument("--metrics", default="0", help="address of /metrics, such as :8080 (default: none)")
    options = parser.parse_args()

    operator.run(
        ring=options.ring,
        shard=options.name,
        namespace=options.namespace,
        restart_grace_seconds=options.restart_grace_seconds,
        timings=LeaseTimings.of(options.lease_seconds),
        health_address=options.health,
        metrics_address=options.metrics,
    )


if __name__ == "__main__":
    main()
