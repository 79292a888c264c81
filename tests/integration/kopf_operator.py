"""A kopf operator that writes down when each of its handlers, timers and daemons runs, as a shard.

    python -m tests.integration.kopf_operator RING SHARD CHRONICLE [GATE]

A Secret named `busy…` keeps its handler busy until the file GATE exists, one
named `stuck…` its timer for good.  A ConfigMap named `held…` keeps its handler
busy until that file exists, and has a daemon.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import kopf

from shardsdk import LeaseTimings, Resource
from shardsdk.contrib.kopf import KopfShard
from shardsdk.errors import AlreadyExists

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
RING, SHARD, CHRONICLE, *REST = sys.argv[1:]
GATE = Path(REST[0]) if REST else None
NUMBERS = itertools.count()
log = logging.getLogger("operator")

shard = KopfShard(RING, main=[SECRETS], controlled=[CONFIGMAPS], shard=SHARD, timings=LeaseTimings(5, 3.4, 0.7))


@contextmanager
def noted(name: str) -> Iterator[None]:
    key = f"{os.getpid()}-{next(NUMBERS)}"
    with Path(CHRONICLE).open("a") as chronicle:
        chronicle.write(f"{SHARD} {name} {key} begin {time.monotonic()}\n")
    try:
        yield
    finally:
        with Path(CHRONICLE).open("a") as chronicle:
            chronicle.write(f"{SHARD} {name} {key} end {time.monotonic()}\n")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.networking.error_backoffs = [0.2]
    settings.persistence.finalizer = "example.com/kopf"


@kopf.on.resume("secrets")
@kopf.on.create("secrets")
@kopf.on.update("secrets", field="data")
async def handle(name: str, namespace: str | None, reason: str, **_: Any) -> None:
    with noted(name):
        log.info("handles %s: %s", name, reason)
        while name.startswith("busy") and GATE is not None and not GATE.exists():
            await asyncio.sleep(0.02)
        child: dict[str, Any] = {"metadata": {"name": f"{name}-{SHARD}"}}
        kopf.adopt(child)
        shard.label(child)
        with suppress(AlreadyExists):
            await shard.api.create(CONFIGMAPS, child, namespace)


@kopf.timer("secrets", interval=0.2)
def tick(name: str, namespace: str | None, **_: Any) -> None:
    """A plain function: kopf runs it in a thread."""
    with noted(name):
        shard.call(shard.api.find(SECRETS, name, namespace))
        time.sleep(0.05)
        while name.startswith("stuck"):
            time.sleep(1)


@kopf.daemon("secrets")
async def follow(name: str, stopped: kopf.DaemonStopped, **_: Any) -> None:
    with noted(name):
        await stopped.wait()
        await asyncio.sleep(0.05)


@kopf.on.event("configmaps")
async def see(name: str, event: kopf.RawEvent, **_: Any) -> None:
    with noted(name):
        log.info("sees %s: %s", name, event["type"])
        while name.startswith("held") and GATE is not None and not GATE.exists():
            await asyncio.sleep(0.02)


@kopf.daemon("configmaps", when=lambda name, **_: name.startswith("held"))
async def follow_child(name: str, stopped: kopf.DaemonStopped, **_: Any) -> None:
    with noted(name):
        await stopped.wait()
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    shard.run(namespaces=[os.environ["POD_NAMESPACE"]])
