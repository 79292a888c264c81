"""examples/checksum.py without a ring: an operator whose replicas would elect a leader, and which is one replica here.

python -m bench.one_operator --name NAME --namespace NAMESPACE --kubeconfig FILE
"""

from __future__ import annotations

import argparse

from examples.checksum import checksum
from shardsdk import Context, Operator
from shardsdk.kinds import ConfigMap, Secret

operator = Operator("checksum")


@operator.reconcile(Secret, owns=[ConfigMap], concurrency=8)
async def keep(ctx: Context[Secret]) -> None:
    """Make the ConfigMap of one Secret what it should be."""
    await ctx.apply(ConfigMap(f"{ctx.name}-checksum", data={"sha256": checksum(ctx.object)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--kubeconfig", required=True)
    options = parser.parse_args()
    operator.run(namespace=options.namespace, watch_namespace=options.namespace, kubeconfig=options.kubeconfig)
