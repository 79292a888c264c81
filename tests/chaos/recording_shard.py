"""The shard under test.

python -m tests.chaos.recording_shard --ring … --name … --process … --records FOLDER
"""

from __future__ import annotations

import argparse

from shardsdk import LeaseTimings, Manager, controller_for
from tests.chaos.maker import CONCURRENCY, CONFIGMAPS, SECRETS, Data, Maker, maker_of, options_of


def main(kind: type[Maker] = Maker) -> None:
    """Be a shard."""
    options = options_of(argparse.ArgumentParser())
    manager = Manager(
        options.ring,
        shard=options.name,
        namespace=options.namespace,
        kubeconfig=options.kubeconfig,
        timings=LeaseTimings.of(options.lease_seconds),
        restart_grace_seconds=options.restart_grace,
        fenced=not options.unfenced,
        health_address="0",
        metrics_address="0",
    )
    controller = controller_for(SECRETS, Data).owns(CONFIGMAPS, Data)
    manager.add(controller.reconcile(maker_of(options, kind).reconcile).options(concurrency=CONCURRENCY))
    manager.run()


if __name__ == "__main__":
    main()
