"""A shard whose reconciles last as long as a test wants, each in a way of its own.

    python -m tests.integration.busy_shard async --gate FILE --name …

Each reconcile of a Secret marks it (annotation), works until the file `--gate`
exists, and then makes a ConfigMap.  How it works is what the first argument says.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from shardsdk import Context, LeaseTimings, Manager, PartialObject, Resource, controller_for

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
STARTED = "test/started"
Ctx = Context[PartialObject]


async def mark(context: Ctx) -> bool:
    """Show the test that a reconcile runs; False: it has run before."""
    if STARTED in (context.metadata.annotations or {}):
        return False
    patch = {"metadata": {"annotations": {STARTED: "yes"}}}
    await context.api.patch(SECRETS, context.request.name, context.request.namespace, patch)
    return True


async def finish(context: Ctx) -> None:
    """The last write of a reconcile."""
    metadata = {"name": f"{context.request.name}-done", "ownerReferences": [context.controller_reference()]}
    await context.api.create(CONFIGMAPS, {"metadata": metadata}, context.request.namespace)


def behave(gate: Path) -> dict[str, Callable[[Ctx], Any]]:
    """Ways to work until `gate` exists."""
    is_open = gate.exists

    def block() -> None:
        while not is_open():
            time.sleep(0.02)

    async def wait_for_gate(context: Ctx) -> None:
        if await mark(context):
            while not is_open():
                await asyncio.sleep(0.02)
            await finish(context)

    async def block_the_loop(context: Ctx) -> None:
        if await mark(context):
            block()
            await finish(context)

    def block_a_thread(context: Ctx) -> None:
        if context.run(mark(context)):
            block()
            context.run(finish(context))

    async def write_all_the_time(context: Ctx) -> None:
        if await mark(context):
            name, namespace = f"{context.request.name}-count", context.request.namespace
            body = {"metadata": {"name": name, "ownerReferences": [context.controller_reference()]}}
            await context.api.create(CONFIGMAPS, body, namespace)
            for count in range(1_000_000):
                await context.api.patch(CONFIGMAPS, name, namespace, {"data": {"count": str(count)}})

    return {"async": wait_for_gate, "block": block_the_loop, "thread": block_a_thread, "write": write_all_the_time}


def main() -> None:
    """Be a shard."""
    parser = argparse.ArgumentParser()
    parser.add_argument("behaviour")
    parser.add_argument("--gate", type=Path, required=True)
    for option in ("ring", "name", "namespace", "kubeconfig", "address"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--grace-seconds", type=float, default=10)
    parser.add_argument("--lease-seconds", type=int, default=15)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    manager = Manager(
        options.ring,
        shard=options.name,
        namespace=options.namespace,
        watch_namespace=options.namespace,
        kubeconfig=options.kubeconfig,
        timings=LeaseTimings.of(options.lease_seconds),
        grace_seconds=options.grace_seconds,
        health_address=options.address,
        metrics_address=options.address,
    )
    function: Callable[[Ctx], Awaitable[None]] = behave(options.gate)[options.behaviour]
    manager.add(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(function).options(concurrency=4))
    manager.run()


if __name__ == "__main__":
    main()
