"""How much four shards of a ring by ranges receive while objects change, where the API server filters and where not.

Each shard reaches the API server by a port of its own, at which the bytes are counted that come back: TLS and all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench.handover import RING, Scene
from bench.load import CONFIGMAPS, measure
from localcluster import ControlPlane
from localcluster.installation import Installation, SharderTimings
from localcluster.ports import LOOPBACK
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.protocol.objects import NAMESPACES

RECEIVERS: Final = ("one", "two", "three", "four")
#: Enough that shards can have equally many.
TEAMS: Final = 64
UPDATES_PER_OBJECT: Final = 10
#: More say nothing more of what one update brings.
MOST_OBJECTS: Final = 1000
_CHUNK_BYTES: Final = 1 << 16

Say = Callable[..., None]


@dataclass
class Meter:
    """An async context manager: an address of the API server at which `received` counts the bytes of its answers."""

    upstream: int
    received: int = 0
    port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, LOOPBACK)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def kubeconfig(self, of: Path, path: Path) -> Path:
        """Write the same kubeconfig by this address."""
        config = json.loads(of.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://{LOOPBACK}:{self.port}"
        path.write_text(json.dumps(config))
        return path

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, requests: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            answers, server = await asyncio.open_connection(LOOPBACK, self.upstream)
            ways = [asyncio.ensure_future(each) for each in (_carry(requests, server), self._count(answers, client))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                for writer in (client, server):
                    writer.transport.abort()

    async def _count(self, answers: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while data := await answers.read(_CHUNK_BYTES):
            self.received += len(data)
            client.write(data)
            await client.drain()


async def _carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK_BYTES):
        target.write(data)
        await target.drain()


async def receiving(objects: int, say: Say) -> None:
    """Measure with filtering and without, and compare."""
    print(f"{len(RECEIVERS)} shards by ranges receive {objects * UPDATES_PER_OBJECT} updates of {objects} ConfigMaps")
    filtered, everything = [await _one_server(filters, objects) for filters in (True, False)]
    for name, found in (("where the API server filters", filtered), ("where it does not", everything)):
        say(f"received {name}: mean of shards", sum(found) / len(found) / 2**20, "MiB")
        say(f"received {name}: most", max(found) / 2**20, "MiB")
    mean = sum(everything) / len(everything)
    say("received by the fullest shard, of what each gets without filtering", max(filtered) / mean, "")


async def _one_server(filters: bool, objects: int) -> list[int]:
    """Bytes that each shard receives."""
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = await stack.enter_async_context(ControlPlane(feature_gates={"ShardedListAndWatch": filters}))
        installation = await stack.enter_async_context(Installation(plane, timings))
        api = await stack.enter_async_context(Client(await load_access(str(plane.admin_kubeconfig))))
        for number in range(TEAMS):
            await api.create(NAMESPACES, {"metadata": {"name": f"team-{number}"}})
        await measure(_each(api.create, objects))
        spec = {"assignment": "Ranges", "hashBy": "Namespace", "resources": [{"group": "", "resource": "configmaps"}]}
        await installation.ring(RING, spec)
        await installation.start_sharder("sharder-1")
        upstream, meters = int(plane.url.rpartition(":")[2]), dict[str, Meter]()
        scene = Scene("Ranges", installation, api, folder, objects, print)
        for name in RECEIVERS:
            meters[name] = await stack.enter_async_context(Meter(upstream))
            path = folder / f"{name}.kubeconfig"
            scene.kubeconfigs[name] = meters[name].kubeconfig(plane.admin_kubeconfig, path)
        await scene.start(*RECEIVERS)
        owners = await scene.until_owned(RECEIVERS)
        await scene.until_begun(owners, owners)
        before = [meter.received for meter in meters.values()]
        for turn in range(UPDATES_PER_OBJECT):
            scene.forget()
            await measure(_each(api.patch, objects, turn))
        # What came before in a shard's watch has arrived with the last change of its objects.
        await scene.until_begun(owners, owners)
        return [meter.received - was for meter, was in zip(meters.values(), before, strict=True)]


def _each(verb: Any, objects: int, turn: int | None = None) -> list[Callable[[], Any]]:
    """One request for each ConfigMap: to make it, or to change it by `turn`."""

    def request(number: int) -> Callable[[], Any]:
        name, namespace = f"object-{number}", f"team-{number % TEAMS}"
        if turn is None:
            return lambda: verb(CONFIGMAPS, {"metadata": {"name": name}}, namespace)
        return lambda: verb(CONFIGMAPS, name, namespace, {"data": {"turn": str(turn)}})

    return [request(number) for number in range(objects)]
