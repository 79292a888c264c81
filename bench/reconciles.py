"""What a typed reconcile costs: events a second through cache, queue and an empty reconcile, without an API server.

    python -m bench.reconciles [MODEL]     # one process for each model; `make bench ARGS=reconciles` runs all

The events are bytes, as a watch has them, of ConfigMaps with a payload of 1 KiB.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from statistics import median
from typing import Any, Final

import msgspec

from shardsdk import Context, Manager, ObjectMeta, Resource, controller_for
from shardsdk.kube.answers import Target
from shardsdk.kube.api import Api
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.decoding import codec_of
from shardsdk.process.world import World

OBJECTS: Final = 2_000
ROUNDS: Final = 7
DATA_BYTES: Final = 1024
MODELS: Final = ("struct", "kind")
CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
#: What ends a watch's initial events.
END: Final = (
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d","annotations":'
    b'{"k8s.io/initial-events-end":"true"}}}}'
)

Say = Callable[..., None]


class Data(msgspec.Struct, frozen=True):
    """A ConfigMap as a controller's own struct."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class Feed:
    """A transport that has nothing but watches: first all objects, then what is pushed."""

    inflight_writes = 0

    def __init__(self) -> None:
        self.version = OBJECTS
        self._changed = asyncio.Event()
        self._lines: list[bytes] = []

    def changes(self) -> list[bytes]:
        """One event for each object."""
        self.version += OBJECTS
        return [line("MODIFIED", number, self.version - OBJECTS + number + 1) for number in range(OBJECTS)]

    def push(self, lines: list[bytes]) -> None:
        """Tell them."""
        self._lines += lines
        self._changed.set()

    async def read_events(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        codec, target = codec_of(selection.model), Target("watch")
        here = selection.resource.group_resource == CONFIGMAPS.group_resource
        if here:
            for number in range(OBJECTS):
                yield codec.decode_line(target, line("ADDED", number, number + 1))
        yield codec.decode_line(target, END % self.version)
        while True:
            await self._changed.wait()
            lines, self._lines = (self._lines, []) if here else ([], self._lines)
            for each in lines:
                yield codec.decode_line(target, each)
            self._changed.clear()

    async def writes_settled(self) -> None:
        """There are none."""


def line(kind: str, number: int, version: int) -> bytes:
    """One line of a watch."""
    metadata = {
        "name": f"object-{number}",
        "namespace": "bench",
        "uid": f"uid-{number}",
        "resourceVersion": str(version),
        "labels": {"app": "bench", "tier": "one", "number": str(number)},
    }
    thing = {"metadata": metadata, "data": {"payload": "x" * DATA_BYTES}}
    return json.dumps({"type": kind, "object": thing}).encode()


class Count:
    """Reconciles that have begun."""

    def __init__(self) -> None:
        self.seen = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    def one(self) -> None:
        """Another one."""
        self.seen += 1
        if self.seen == self._wanted:
            self._reached.set()

    async def until(self, wanted: int) -> None:
        """Wait until there were so many."""
        self._wanted = wanted
        self._reached.clear()
        if self.seen < wanted:
            await self._reached.wait()


def controller_of(model: str, count: Count) -> Any:
    """A controller of ConfigMaps, by what they are decoded to; its reconcile counts."""

    async def struct(context: Context[Any]) -> None:
        count.one()

    if model == "struct":
        return controller_for(CONFIGMAPS, Data).reconcile(struct)
    from shardsdk import Operator
    from shardsdk.kinds import ConfigMap

    operator = Operator("bench")
    operator.reconcile(ConfigMap)(struct)
    return operator.controllers()[0]


async def rate(model: str) -> float:
    """Events a second: the median of some rounds in which every object changes."""
    count, feed, clock = Count(), Feed(), SystemClock()
    manager = Manager(health_address="0", metrics_address="0")
    manager.add(controller_of(model, count))

    @asynccontextmanager
    async def connect(*_: Any) -> AsyncIterator[Api]:
        yield Api(feed)  # type: ignore[arg-type]

    world = World(
        connect, connect, clock, Random(1), threaded=False, serve=False, signals=False, die=print, open=connect
    )
    running = asyncio.create_task(manager.run_async(world))
    await count.until(OBJECTS)
    rates = []
    for turn in range(2, ROUNDS + 2):
        lines = feed.changes()
        begun = time.process_time()
        feed.push(lines)
        await count.until(turn * OBJECTS)
        rates.append(OBJECTS / (time.process_time() - begun))
    manager.stopping.set()
    await running
    return median(rates)


async def rates(say: Say) -> None:
    """One process for each model."""
    print(f"{OBJECTS} ConfigMaps of {DATA_BYTES} bytes, each changed {ROUNDS} times", flush=True)
    for model in MODELS:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.reconciles", model, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        say(f"events by {model}", float(output), "/s of CPU")


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    print(asyncio.run(rate(sys.argv[1])))
