"""A shard with the plain kubernetes client and a loop of its own: of the SDK it takes the lease.

    python -m examples.plain_client --name shard-1

It keeps, for every Secret of the ring `checksum`, a ConfigMap that holds the
checksum of its data.  What a shard has to do besides is in `work`: work on its own
objects only, and in a ring by labels give away what is drained and label what it creates.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import logging
import os
import signal
from collections.abc import Callable

import urllib3
from kubernetes import client, config, watch

from shardsdk import ExitCode, LeaseTimings, ShardLease, Share, load_access, read_assignment
from shardsdk.contrib.kubernetes import fence_writes
from shardsdk.errors import ConfigurationError, FenceClosed, LeaseLost

log = logging.getLogger("shard")


def checksum(data: dict[str, str]) -> str:
    """SHA-256 over the Secret's keys and values."""
    digest = hashlib.sha256()
    for key, value in sorted(data.items()):
        digest.update(key.encode() + b"\0" + base64.b64decode(value) + b"\0")
    return digest.hexdigest()


def reconcile(v1: client.CoreV1Api, share: Share, secret: client.V1Secret) -> None:
    """Make the ConfigMap of one Secret what it should be."""
    meta = secret.metadata
    if meta.deletion_timestamp:
        return  # the garbage collector takes the ConfigMap along
    owner = {"apiVersion": "v1", "kind": "Secret", "name": meta.name, "uid": meta.uid, "controller": True}
    name = f"{meta.name}-checksum"
    body = {
        "metadata": {"name": name, "ownerReferences": [owner], "labels": dict(share.labels)},
        "data": {"sha256": checksum(secret.data or {})},
    }
    try:
        v1.create_namespaced_config_map(meta.namespace, body)
    except client.ApiException as error:
        if error.status != 409:
            raise
        v1.patch_namespaced_config_map(name, meta.namespace, {"data": body["data"]})


def acknowledge(v1: client.CoreV1Api, lease: ShardLease, secret: client.V1Secret) -> None:
    """Give the Secret away: both labels in one patch, unless it has changed since it was read."""
    meta = secret.metadata
    labels = {lease.ring.shard: None, lease.ring.drain: None}
    try:
        v1.patch_namespaced_secret(
            meta.name, meta.namespace, {"metadata": {"resourceVersion": meta.resource_version, "labels": labels}}
        )
    except client.ApiException as error:
        if error.status not in (404, 409):
            raise


def work(v1: client.CoreV1Api, lease: ShardLease, share: Share, settle: Callable[[], None]) -> None:
    """One object at a time, so no reconcile runs when a drain has its turn."""
    while not share.stopping.is_set() and lease.loss is None:
        try:
            # Each watch begins with everything that is there, read consistently.
            for event in watch.Watch().stream(
                v1.list_secret_for_all_namespaces, label_selector=share.selector, timeout_seconds=2, _request_timeout=10
            ):
                secret = event["object"]
                with share.work_on(secret.metadata.namespace, secret.metadata.uid) as mine:
                    if not mine or event["type"] == "DELETED":
                        continue
                    if lease.ring.drain in (secret.metadata.labels or {}):
                        settle()  # a write that got no answer may still be executed
                        acknowledge(v1, lease, secret)
                    else:
                        reconcile(v1, share, secret)
        except (client.ApiException, urllib3.exceptions.HTTPError) as error:
            log.warning("trying again: %s", error)
            share.stopping.wait(1)


def die() -> None:
    """End the process at once: the thread may be in the middle of something, and others may take the lease now."""
    os._exit(ExitCode.LEASE_LOST)


async def run(options: argparse.Namespace) -> None:
    """Hold the lease around the work."""
    access = await load_access()
    ranges = await read_assignment(access, options.ring)
    # Every write asks the lease, but nobody can promise what a suspended process has just begun to send.
    lease = ShardLease(
        access, options.ring, options.name, fenced=False, ranges=ranges, on_deadline=die,
        timings=LeaseTimings.of(options.lease_seconds),
    )  # fmt: skip
    config.load_config()
    api_client = client.ApiClient()
    lease.settle_first(fence_writes(api_client, lease.fence).settled)
    loop = asyncio.get_running_loop()

    def settle() -> None:
        asyncio.run_coroutine_threadsafe(lease.writes_settled(), loop).result()

    async with lease, Share(access, lease, ranges) as share:
        log.info("shard %s is working", lease.name)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, share.stopping.set)
        await lease.to_thread(work, client.CoreV1Api(api_client), lease, share, settle)


def main() -> None:
    """Be one shard until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ring", default="checksum", help="the ClusterRing (default: %(default)s)")
    parser.add_argument("--name", help="this shard's name (default: the host's)")
    parser.add_argument("--lease-seconds", type=int, default=15, help="how long others wait when this shard is silent")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(run(options))
    except ConfigurationError as error:
        raise SystemExit(str(error)) from None
    except (FenceClosed, LeaseLost) as error:  # a write may notice first
        log.critical("%s", error)
        die()


if __name__ == "__main__":
    main()
