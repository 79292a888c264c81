"""Two functions in one program: one is sharded, the other runs on one replica at a time.

    python -m examples.elected --ring checksum --name shard-1 --namespace default

Every replica is a shard and keeps a ConfigMap next to each of its Secrets.  One
of them leads as well, and in each ConfigMap called `secrets-count` it says how
many Secrets are in that namespace: work that cannot be divided.  Without --ring
nothing is sharded, and this is an operator with leader election like any other.
"""

from __future__ import annotations

import argparse

from shardsdk import Context, LeaseTimings, Operator, Scope
from shardsdk.kinds import ConfigMap, Secret

COUNT = "secrets-count"


async def keep(ctx: Context[Secret]) -> None:
    """Sharded: keep a ConfigMap next to every Secret."""
    await ctx.apply(ConfigMap(f"{ctx.name}-seen"))


async def count(ctx: Context[ConfigMap]) -> None:
    """On the leader: count the Secrets of the namespace, whichever came or went."""
    secrets = [each for each in ctx.cache(Secret).requests() if each.namespace == ctx.namespace]
    data = {"secrets": str(len(secrets))}
    if ctx.object.data != data:
        await ctx.patch(ConfigMap, COUNT, {"data": data})


def main() -> None:
    """Be one replica until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ring", default="", help="the ClusterRing that `keep` is sharded by (default: none)")
    parser.add_argument("--name", help="this shard's name (default: the host's)")
    parser.add_argument("--namespace", help="where the leases are (default: the pod's)")
    parser.add_argument("--watch-namespace", action="append", help="where the Secrets are (default: in all namespaces)")
    parser.add_argument("--lease-seconds", type=int, default=15, help="how long others wait when this one is silent")
    options = parser.parse_args()

    operator = Operator("elected", sharded=bool(options.ring), ring=options.ring)
    operator.reconcile(Secret, owns=[ConfigMap], name="keep")(keep)
    counting = operator.reconcile(
        ConfigMap, name="count", scope=Scope.LEADER, when=lambda change: change.object.metadata.name == COUNT
    )(count)
    counting.watches(Secret, to=lambda secret: [COUNT])
    operator.run(
        shard=options.name,
        namespace=options.namespace,
        watch_namespace=options.watch_namespace,
        timings=LeaseTimings.of(options.lease_seconds),
        health_address="0",
        metrics_address="0",
    )


if __name__ == "__main__":
    main()
