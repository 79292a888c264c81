"""A shard that writes down when each of its reconciles runs, for whoever looks for two at once.

    python -m tests.integration.noting_shard async|thread|deaf --ring … --name … --namespace … --chronicle FILE

Each reconcile of a Secret takes a while and then counts in a ConfigMap. `thread`
does so in plain functions; `deaf` has a predicate that lets no event pass.
`--ahead SECONDS` has it live on a machine whose wall clock is wrong by so much.
`--after FILE` has it wait, loaded and ready, until there is such a file.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

from shardsdk import Context, LeaseTimings, Manager, ObjectMeta, Resource, controller_for
from shardsdk.kube.clock import SystemClock
from shardsdk.queueing.predicates import always, never

SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
#: How long a reconcile takes before it writes.
BUSY_SECONDS = 0.3
NUMBERS = itertools.count()


class Data(Struct, frozen=True):
    """A Secret or a ConfigMap."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


@contextmanager
def noted(chronicle: Path, shard: str, name: str) -> Iterator[None]:
    """One line when it begins, one when it ends."""
    key = f"{os.getpid()}-{next(NUMBERS)}"

    def note(edge: str) -> None:
        with chronicle.open("a") as lines:
            lines.write(f"{shard} {name} {key} {edge} {time.monotonic()}\n")

    note("begin")
    try:
        yield
    finally:
        note("end")


async def count(context: Context[Data], shard: str) -> None:
    """Leave a trace: who was here last."""
    name, namespace = f"{context.request.name}-by", context.request.namespace
    if context.child(CONFIGMAPS, name) is None:
        metadata = {"name": name, "ownerReferences": [context.controller_reference()]}
        await context.api.create(CONFIGMAPS, {"metadata": metadata, "data": {"by": shard}}, namespace)
    else:
        await context.api.patch(CONFIGMAPS, name, namespace, {"data": {"by": shard}})


def behave(chronicle: Path, shard: str) -> dict[str, Callable[[Context[Data]], Any]]:
    """How a reconcile works."""

    async def in_the_loop(context: Context[Data]) -> None:
        with noted(chronicle, shard, context.request.name):
            await asyncio.sleep(BUSY_SECONDS)
            await count(context, shard)

    def in_a_thread(context: Context[Data]) -> None:
        with noted(chronicle, shard, context.request.name):
            time.sleep(BUSY_SECONDS)
            context.run(count(context, shard))

    return {"async": in_the_loop, "thread": in_a_thread, "deaf": in_the_loop}


def main() -> None:
    """Be a shard."""
    parser = argparse.ArgumentParser()
    parser.add_argument("behaviour")
    for option in ("ring", "name", "namespace"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--kubeconfig")
    parser.add_argument("--chronicle", type=Path, required=True)
    parser.add_argument("--lease-seconds", type=int, default=5)
    parser.add_argument("--restart-grace", type=int, default=0)
    parser.add_argument("--ahead", type=float, default=0.0)
    parser.add_argument("--after", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if options.ahead:
        ahead = timedelta(seconds=options.ahead)
        SystemClock.now = lambda self: datetime.now(UTC) + ahead  # type: ignore[method-assign]
    manager = Manager(
        options.ring,
        shard=options.name,
        namespace=options.namespace,
        kubeconfig=options.kubeconfig,
        timings=LeaseTimings(options.lease_seconds, 0.68 * options.lease_seconds, 0.14 * options.lease_seconds),
        restart_grace_seconds=options.restart_grace,
        health_address="0",
        metrics_address="0",
    )
    predicate = never if options.behaviour == "deaf" else always
    controller = controller_for(SECRETS, Data, when=predicate).owns(CONFIGMAPS, Data)
    function = behave(options.chronicle, options.name)[options.behaviour]
    manager.add(controller.reconcile(function).options(concurrency=8))
    if options.after:
        logging.getLogger(__name__).info("Ready to begin")
        while not options.after.exists():
            time.sleep(0.02)
    manager.run()


if __name__ == "__main__":
    main()
