"""`python -m bench.noting --ring RING --name NAME --kubeconfig FILE`: a shard that only writes down what it reconciles.

A line for each reconcile goes to the file that NOTES names: the moment at which it began (the machine's monotonic
clock, so that another process can tell what happened when), namespace and name.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any, Final

from bench.load import CONFIGMAPS
from shardsdk.process.manager import Manager
from shardsdk.protocol.objects import PartialObject
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.spec import controller_for

#: Names the file in the process's environment.
NOTES: Final = "BENCH_NOTES"


def main() -> int:
    """Be one shard until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--ring", "--name", "--kubeconfig"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()
    notes = os.open(os.environ[NOTES], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def note(context: Context[Any]) -> None:
        os.write(notes, f"{time.monotonic():.4f} {context.namespace} {context.name}\n".encode())

    manager = Manager(
        options.ring, shard=options.name, namespace="default", kubeconfig=options.kubeconfig, fenced=True,
        health_address="0", metrics_address="0",
    )  # fmt: skip
    manager.add(controller_for(CONFIGMAPS, model=PartialObject).reconcile(note))
    return manager.run()


if __name__ == "__main__":
    sys.exit(main())
