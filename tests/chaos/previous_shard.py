"""The shard under test, of the version before this one: `recording_shard.py` by that version's names.

Runs with that version's packages on its path (`previous.py`), and ends at once with today's.
"""

from __future__ import annotations

import argparse
from typing import Any

import shardsdk
from tests.chaos.maker import CONCURRENCY, CONFIGMAPS, SECRETS, Data, maker_of, options_of

#: Checked against today's names, which are others.
_THEN: Any = shardsdk


def main() -> None:
    """Be a shard."""
    options = options_of(argparse.ArgumentParser())
    lease = options.lease_seconds
    manager = _THEN.Manager(
        options.ring,
        shard=options.name,
        namespace=options.namespace,
        kubeconfig=options.kubeconfig,
        timings=_THEN.LeaseTimings(lease, lease * 2 / 3, lease * 2 / 15),
        restart_grace_seconds=options.restart_grace,
        health_address="0",
        metrics_address="0",
    )
    controller = _THEN.Controller.for_(SECRETS, Data).owns(CONFIGMAPS, Data)
    manager.add(controller.reconcile(maker_of(options).reconcile).options(concurrency=CONCURRENCY))
    manager.run()


if __name__ == "__main__":
    main()
