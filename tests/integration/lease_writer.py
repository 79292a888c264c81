"""A process that holds a shard's lease and writes under it as fast as it can.

    POD_UID=uid-1 python -m tests.integration.lease_writer --name shard-1 …

It counts its writes in the ConfigMap `writes`, under its own instance.  Its exit
code says how it ended: 0 asked to, 3 lease lost.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from shardsdk.errors import LeaseLost, ShardingError
from shardsdk.kube.access import load_access
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.objects import Resource

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
#: Tests wait for the end of a lease; before, its holder keeps it on a busy machine.
TIMINGS = LeaseTimings(lease_duration=4, renew_deadline=3, retry_period=0.3)
LEASE_LOST = 3
#: Fast enough to be caught in the act, slow enough to leave the machine to others.
PAUSE_SECONDS = 0.005

log = logging.getLogger(__name__)


async def hold_and_write(options: argparse.Namespace) -> int:
    access = await load_access(options.kubeconfig)
    timings = TIMINGS if options.lease_seconds is None else LeaseTimings(lease_duration=options.lease_seconds)
    lease = ShardLease(access, options.ring, options.name, options.namespace, timings=timings)
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with lease, lease.client() as client:
            count = 0
            while True:
                count += 1
                body = {"data": {options.counts_as or lease.instance: str(count)}}
                try:
                    await client.patch(CONFIGMAPS, "writes", options.namespace, body)
                except ShardingError as error:
                    # Tries on, as a reconciler would: what stops it is the fence, and then the cancellation.
                    log.warning("write failed: %s", error)
                await asyncio.sleep(PAUSE_SECONDS)
    except LeaseLost as error:
        log.error("lease lost: %s", error)
        return LEASE_LOST
    except asyncio.CancelledError:
        return 0


def main() -> None:
    """Be the process."""
    parser = argparse.ArgumentParser()
    for option in ("ring", "name", "namespace", "kubeconfig"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--lease-seconds", type=int)
    parser.add_argument("--counts-as", default="")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    raise SystemExit(asyncio.run(hold_and_write(parser.parse_args())))


if __name__ == "__main__":
    main()
