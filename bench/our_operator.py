"""The controller of examples/checksum.py: one replica that would elect a leader, or with a ring one shard.

python -m bench.our_operator --name NAME --namespace NAMESPACE --kubeconfig FILE [--ring RING]
"""

from __future__ import annotations

import argparse
from typing import Final

from examples.checksum import checksum
from shardsdk import Context, Operator
from shardsdk.kinds import ConfigMap, Secret

#: A shard that is started again soon has its objects still, as where an update replaces its pod.
RESTART_GRACE_SECONDS: Final = 60


async def keep(ctx: Context[Secret]) -> None:
    """Make the ConfigMap of one Secret what it should be."""
    await ctx.apply(ConfigMap(f"{ctx.name}-checksum", data={"sha256": checksum(ctx.object)}))


def main() -> None:
    """Run until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", help="this shard's name")
    parser.add_argument("--namespace", required=True, help="where the Lease is, and without a ring what is watched")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--ring")
    options = parser.parse_args()

    operator = Operator("checksum", sharded=options.ring is not None)
    operator.reconcile(Secret, owns=[ConfigMap], concurrency=8)(keep)
    if options.ring is None:
        operator.run(namespace=options.namespace, watch_namespace=options.namespace, kubeconfig=options.kubeconfig)
    else:
        operator.run(
            ring=options.ring,
            shard=options.name,
            namespace=options.namespace,
            kubeconfig=options.kubeconfig,
            restart_grace_seconds=RESTART_GRACE_SECONDS,
        )


if __name__ == "__main__":
    main()
