"""Users who make objects while the sharder works, and what they notice of it."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Final

import msgspec

from bench.load import CONFIGMAPS
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


@dataclass(slots=True)
class Users:
    """Who makes objects one after the other: in a namespace of no ring, and of `ring`'s.

    `plain` and `named`: seconds until the API server had answered.  A third user makes objects without
    a name in that ring, which the leader's watch places (see `Placements`).
    """

    api: Client
    prefix: str
    ring: str
    plain: list[float] = field(default_factory=list)
    named: list[float] = field(default_factory=list)

    async def until(self, ended: asyncio.Task[None]) -> None:
        """Make objects until `ended`, and wait until they have their shards."""
        making = [asyncio.create_task(each) for each in (self._plain(), self._named(), self._unnamed())]
        await asyncio.wait([ended, *making], return_when=asyncio.FIRST_COMPLETED)
        for task in making:
            task.cancel()
        for result in await asyncio.gather(*making, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError):
                raise AssertionError("a user's create failed") from result
        await ended

    async def _plain(self) -> None:
        while True:
            await self._make(USERS, {"name": f"{self.prefix}-{len(self.plain)}"}, self.plain)

    async def _named(self) -> None:
        while True:
            await self._make(self.ring, {"name": f"{self.prefix}-{len(self.named)}"}, self.named)

    async def _unnamed(self) -> None:
        while True:
            await self._make(self.ring, {"generateName": f"{self.prefix}-"}, [])

    async def _make(self, namespace: str, metadata: dict[str, str], seconds: list[float]) -> None:
        began = time.monotonic()
        await self.api.create(CONFIGMAPS, {"metadata": metadata}, namespace)
        seconds.append(time.monotonic() - began)
        await asyncio.sleep(PAUSE_SECONDS)


class Placements:
    """How long objects of `ring` had no shard that were made without one, as a watch shows it."""

    def __init__(self, api: Client, ring: str) -> None:
        #: When each was shown without a shard that has none yet, by name; and for how long others had none.
        self._unplaced: dict[str, float] = {}
        self.placed: list[float] = []
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

    def since(self, began: int) -> list[float]:
        """Seconds of all but the first `began`, and of those that still have no shard."""
        now = time.monotonic()
        return [*self.placed[began:], *(now - shown for shown in self._unplaced.values())]


async def settled(api: Client, ring: str, timeout_seconds: float = 180.0) -> None:
    """Wait until a ring says that it is settled.  Raises: TimeoutError."""
    async with asyncio.timeout(timeout_seconds):
        while not (await api.get(CLUSTERRINGS, ring, model=_Ring)).settled:
            await asyncio.sleep(LOOK_SECONDS)


def p99(seconds: list[float]) -> float:
    """Their 99th percentile."""
    return sorted(seconds)[int(len(seconds) * 0.99)]
