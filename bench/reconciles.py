"""What a typed reconcile costs: events a second through cache, queue and an empty reconcile, without an API server.

    python -m bench.reconciles MODEL OBJECTS     # one process for each model; `make bench ARGS=reconciles` runs all

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
from shardsdk.kube.api import Api, RawRequest
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.decoding import codec_of
from shardsdk.process.world import World

ROUNDS: Final = 7
#: How often each model has its turn, one after the other: what else a machine does changes within seconds.
TURNS: Final = 3
DATA_BYTES: Final = 1024
MODELS: Final = ("struct", "kind", "dict")
#: What is promised of a kind: so much of the rate of what is typed by hand, or not at all.
PROMISED_RATIO: Final = 0.8
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

    def __init__(self, objects: int) -> None:
        self.version = self._objects = objects
        self._changed = asyncio.Event()
        self._lines: list[bytes] = []

    def changes(self) -> list[bytes]:
        """One event for each object."""
        before, self.version = self.version, self.version + self._objects
        return [line("MODIFIED", number, before + number + 1) for number in range(self._objects)]

    def push(self, lines: list[bytes]) -> None:
        """Tell them."""
        self._lines += lines
        self._changed.set()

    async def read_events(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        codec, target = codec_of(selection.model), Target("watch")
        here = selection.resource.group_resource == CONFIGMAPS.group_resource
        if here:
            for number in range(self._objects):
                yield codec.decode_line(target, line("ADDED", number, number + 1))
        yield codec.decode_line(target, END % self.version)
        while True:
            await self._changed.wait()
            lines, self._lines = (self._lines, []) if here else ([], self._lines)
            for each in lines:
                yield codec.decode_line(target, each)
            self._changed.clear()

    async def send(self, operation: Any) -> Any:
        """Whatever it may do, it may; there is nothing else that it asks."""
        return msgspec.json.decode(b'{"status": {"allowed": true}}', type=operation.model)

    async def exchange(self, request: RawRequest) -> bytes:
        """What is served: this, and nothing else."""
        listed = {"name": CONFIGMAPS.plural, "kind": CONFIGMAPS.kind, "namespaced": True}
        return json.dumps({"resources": [listed] if request.path == "/api/v1" else []}).encode()

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

    if model != "kind":
        return controller_for(CONFIGMAPS, {"struct": Data, "dict": dict}[model]).reconcile(struct)
    from shardsdk import Operator
    from shardsdk.kinds import ConfigMap

    operator = Operator("bench")
    operator.reconcile(ConfigMap)(struct)
    return operator.controllers()[0]


async def rate(model: str, objects: int) -> float:
    """Events a second: the median of some rounds in which every object changes."""
    count, feed, clock = Count(), Feed(objects), SystemClock()
    manager = Manager(health_address="0", metrics_address="0")
    manager.add(controller_of(model, count))

    @asynccontextmanager
    async def connect(*_: Any) -> AsyncIterator[Api]:
        yield Api(feed)  # type: ignore[arg-type]

    world = World(
        connect, connect, clock, Random(1), threaded=False, serve=False, signals=False, die=print, open=connect
    )
    running = asyncio.create_task(manager.run_async(world))
    await _reach(count, objects, running)
    rates = []
    for turn in range(2, ROUNDS + 2):
        lines = feed.changes()
        begun = time.process_time()
        feed.push(lines)
        await _reach(count, turn * objects, running)
        rates.append(objects / (time.process_time() - begun))
    manager.stopping.set()
    await running
    return median(rates)


async def _reach(count: Count, wanted: int, running: asyncio.Task[Any]) -> None:
    """Wait until there were so many.  Raises: whatever ended the manager meanwhile."""
    reached = asyncio.create_task(count.until(wanted))
    await asyncio.wait([reached, running], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        reached.cancel()
        running.result()
        raise RuntimeError("the manager has ended")


async def rates(objects: int, say: Say) -> None:
    """A process for each model and turn; the median of the turns, and ratios of the fastest.

    What else the machine does makes a turn slower, never faster: so the fastest are what the code costs.
    """
    print(f"{objects} ConfigMaps of {DATA_BYTES} bytes, each changed {ROUNDS} times", flush=True)
    found: dict[str, list[float]] = {model: [] for model in MODELS}
    for _ in range(TURNS):
        for model in MODELS:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.reconciles", model, str(objects)), stdout=asyncio.subprocess.PIPE
            )
            output, _ = await process.communicate()
            if process.returncode:
                raise RuntimeError(f"python -m bench.reconciles {model} {objects} failed")
            found[model].append(float(output))
    for model, turns in found.items():
        say(f"events by {model}", median(turns), "/s of CPU", f"[{min(turns):.0f} to {max(turns):.0f}]")
    for other in ("struct", "dict"):
        ratio = max(found["kind"]) / max(found[other])
        say(f"events by kind / by {other}", ratio, "", f"[promised: {PROMISED_RATIO} at least]")


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    print(asyncio.run(rate(sys.argv[1], int(sys.argv[2]))))
