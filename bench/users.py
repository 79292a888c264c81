"""Users who make objects while the sharder works, and what they notice of it.

`python -m bench.users KUBECONFIG PREFIX RING` is their process; see `Users`.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bench.load import CONFIGMAPS
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import CLUSTERRINGS, PartialObject

#: A namespace of no ring.
USERS: Final = "users"
#: Pause between two objects of one user.
PAUSE_SECONDS: Final = 0.05
#: How often a ring is asked whether it is settled.
LOOK_SECONDS: Final = 0.5


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []


class _Ring(msgspec.Struct, frozen=True):
    status: _Status = _Status()

    @property
    def settled(self) -> bool:
        return any(each.type == "Settled" and each.status == "True" for each in self.status.conditions)


class Seen(msgspec.Struct, frozen=True):
    """Seconds until the API server had answered, for each create: in a namespace of no ring, and of a ring's.

    `unnamed`: how many objects were made without a name; `lasted`: seconds that the work took which users were beside.
    """

    plain: list[float]
    named: list[float]
    unnamed: int
    lasted: float = 0.0


@dataclass(frozen=True, slots=True)
class Users:
    """Who makes objects one after the other: in a namespace of no ring, and of `ring`'s, in a process of their own.

    A third user makes objects without a name in that ring, which the leader's watch places (see `Placements`).  What
    the process that measures does meanwhile is not counted as their waiting.  Without `ring` there is only the first.
    """

    kubeconfig: Path
    prefix: str
    ring: str = ""

    async def until(self, work: Awaitable[None]) -> Seen:
        """Make objects while `work` is done, one each at least; what the users saw.

        Raises: AssertionError when a create failed; what `work` raises.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.users", str(self.kubeconfig), self.prefix, self.ring,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        ended = asyncio.ensure_future(work)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            began, told = time.monotonic(), asyncio.create_task(process.stdout.read())
            await asyncio.wait([ended, told], return_when=asyncio.FIRST_COMPLETED)
            lasted = time.monotonic() - began
            process.stdin.close()
            if await process.wait() or not ended.done():
                raise AssertionError("a user's create failed")
            await ended
            return msgspec.structs.replace(msgspec.json.decode(await told, type=Seen), lasted=lasted)
        finally:
            ended.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _use(kubeconfig: str, prefix: str, ring: str) -> None:
    """Be the users until standard input ends."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    plain: list[float] = []
    named: list[float] = []
    unnamed: list[float] = []

    async with Client(await load_access(kubeconfig)) as api, asyncio.TaskGroup() as making:

        def make(namespace: str, metadata: Callable[[], dict[str, str]], seconds: list[float]) -> None:
            making.create_task(_make(api, namespace, metadata, seconds, ended))

        make(USERS, lambda: {"name": f"{prefix}-{len(plain)}"}, plain)
        if ring:
            make(ring, lambda: {"name": f"{prefix}-{len(named)}"}, named)
            make(ring, lambda: {"generateName": f"{prefix}-"}, unnamed)
    sys.stdout.buffer.write(msgspec.json.encode(Seen(plain, named, len(unnamed))))


async def _make(
    api: Client, namespace: str, metadata: Callable[[], dict[str, str]], seconds: list[float], ended: asyncio.Event
) -> None:
    while not seconds or not ended.is_set():
        began = time.monotonic()
        await api.create(CONFIGMAPS, {"metadata": metadata()}, namespace)
        seconds.append(time.monotonic() - began)
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), PAUSE_SECONDS)


class Placements:
    """How long objects of `ring` had no shard that were made without one, as a watch shows it."""

    def __init__(self, api: Client, ring: str) -> None:
        #: When each was shown without a shard that has none yet, by name; and for how long others had none.
        self._unplaced: dict[str, float] = {}
        self.placed: list[float] = []
        self._changed = asyncio.Event()
        self._label = parse_ring_name(ring).shard
        self._reflector = Reflector(
            api, CONFIGMAPS, namespace=ring, handler=self._tell, clock=SystemClock(), rng=random.Random()
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    def _tell(self, delta: Delta[PartialObject]) -> None:
        meta = delta.object.metadata
        if delta.old is None and meta.label(self._label) is None:
            self._unplaced[meta.name] = time.monotonic()
        elif meta.label(self._label) is not None and meta.name in self._unplaced:
            self.placed.append(time.monotonic() - self._unplaced.pop(meta.name))
            self._changed.set()

    async def since(self, before: int, count: int, timeout_seconds: float = 60.0) -> list[float]:
        """Seconds of the `count` objects after the first `before`, once all have a shard.  Raises: TimeoutError."""
        async with asyncio.timeout(timeout_seconds):
            while len(self.placed) < before + count:
                self._changed.clear()
                await self._changed.wait()
        return self.placed[before : before + count]


async def settled(api: Client, ring: str, timeout_seconds: float = 180.0) -> None:
    """Wait until a ring says that it is settled.  Raises: TimeoutError."""
    async with asyncio.timeout(timeout_seconds):
        while not (await api.get(CLUSTERRINGS, ring, model=_Ring)).settled:
            await asyncio.sleep(LOOK_SECONDS)


def p99(seconds: list[float]) -> float:
    """Their 99th percentile."""
    return sorted(seconds)[int(len(seconds) * 0.99)]


if __name__ == "__main__":
    asyncio.run(_use(*sys.argv[1:]))
