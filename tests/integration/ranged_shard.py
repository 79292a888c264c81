"""A shard of a ring by ranges that knows the wire contract alone, and what notices two of them at work on one range.

It shares no code with shardsdk: what it shows holds for shards of any make.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from localcluster import AdminClient
from tests.integration.scripted import LEASES, RING_LABEL, TROUBLE, Object, ScriptedShard

ASSIGNMENTS: Final = "sharding.timebertt.dev/v1alpha1/ringassignments"
HELD: Final = "alpha.sharding.timebertt.dev/held-ranges"
SPACE: Final = 1 << 64
#: How often a shard looks at what it is named for.
LOOK_SECONDS: Final = 0.05

#: Points of the space by their bounds, half-open, in no order.
Spans = frozenset[tuple[int, int]]
EVERYTHING: Final[Spans] = frozenset({(0, SPACE)})


def point_of(text: str) -> int:
    """FNV-1a of 64 bits."""
    point = 0xCBF29CE484222325
    for byte in text.encode():
        point = (point ^ byte) * 0x100000001B3 % SPACE
    return point


def meet(some: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> Spans:
    """What is in both."""
    found = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return frozenset((start, end) for start, end in found if start < end)


def join(*parts: Iterable[tuple[int, int]]) -> Spans:
    """What is in any, with as few spans as can be."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted(span for part in parts for span in part):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(end, spans[-1][1])
        else:
            spans.append((start, end))
    return frozenset(spans)


def without(some: Spans, others: Spans) -> Spans:
    """What is in `some` alone."""
    edges = sorted({0, SPACE, *(bound for span in (*some, *others) for bound in span)})
    return join(cell for cell in itertools.pairwise(edges) if meet([cell], some) and not meet([cell], others))


def in_order(assignment: Object) -> bool:
    """Whether its ranges cover the space one after the other."""
    starts = [int(each["start"], 16) for each in assignment["spec"]["ranges"]]
    return starts[0] == 0 and all(here < after for here, after in itertools.pairwise(starts))


def named(assignment: Object, shard: str | None) -> Spans:
    """The spans of `shard` (`None`: of nobody) in a RingAssignment."""
    ranges = assignment["spec"]["ranges"]
    starts = [int(each["start"], 16) for each in ranges]
    spans = zip(starts, [*starts[1:], SPACE], strict=True)
    return join(span for each, span in zip(ranges, spans, strict=True) if each.get("shard") == shard)


def render(spans: Spans) -> str:
    """As a Lease says it."""
    return ",".join(f"0x{start:016x}-0x{end:016x}" for start, end in sorted(spans))


def parse(text: str) -> Spans:
    """What a Lease says."""
    pairs = (part.split("-") for part in text.partition("@")[0].split(",") if part)
    return join((int(start, 16), int(end, 16)) for start, end in pairs)


@dataclass
class Workers:
    """Who works on what, at every moment; `met`: each time that two worked on one range."""

    working: dict[str, Spans] = field(default_factory=dict)
    met: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, shard: str, spans: Spans) -> None:
        """`shard` works on this from now on."""
        self.working[shard] = spans
        for other, theirs in self.working.items():
            if other != shard and meet(theirs, spans):
                self.met.append(f"{shard} and {other} on {render(meet(theirs, spans))}")
        self.changed.set()
        self.changed = asyncio.Event()

    async def until_spread(self, *shards: str, seconds: float = 60.0) -> None:
        """Wait until these shards, and no other, work on everything."""
        async with asyncio.timeout(seconds):
            while not (
                join(*self.working.values()) == EVERYTHING
                and {name for name, spans in self.working.items() if spans} == set(shards)
            ):
                await self.changed.wait()


class RangedShard(ScriptedShard):
    """One shard; `drain_seconds` is what it needs to end what runs in a range that it loses."""

    def __init__(self, client: AdminClient, ring: str, namespace: str, name: str, workers: Workers) -> None:
        super().__init__(client, ring, ("", ""), namespace, name, ())
        self.drain_seconds = 0.1
        #: Writes of what it holds.
        self.said = 0
        self._workers = workers
        self._held: Spans = frozenset()
        self._working: Spans = frozenset()
        #: Until when what a lease said of another process counts, by the annotation.
        self._left: dict[str, float] = {}

    async def start(self, *, same_pod: bool = False) -> None:
        """Acquire the lease, which holds nothing then, and follow the RingAssignment."""
        self._held = self._working = frozenset()
        await super().start(same_pod=same_pod)
        self._spawn(self._follow())

    async def crash(self) -> None:
        """Be gone from one moment to the next; what it worked on ends."""
        await super().crash()
        self._workers.set(self.name, frozenset())

    async def release(self) -> None:
        """Leave in order: stop working, hold nothing, then let the lease go."""
        await self.crash()
        self._held = frozenset()
        await self._write_ours({"holderIdentity": "", "leaseDurationSeconds": 1})

    def _annotations(self, now: str) -> dict[str, Any]:
        return {**super()._annotations(now), HELD: f"{render(self._held)}@{now}"}

    async def _follow(self) -> None:
        try:
            while True:
                await self._going.wait()
                with contextlib.suppress(*TROUBLE):  # what is held is held by the lease, which has its own time limit
                    await self._step()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._workers.set(self.name, frozenset())

    async def _step(self) -> None:
        mine = await self._named()
        if mine is None:
            return  # gone, or nonsense: keep what is held, take nothing
        lost, gained = without(self._working, mine), without(mine, self._held)
        if lost:
            self._working = without(self._working, lost)
            await asyncio.sleep(self.drain_seconds)
            self._workers.set(self.name, self._working)
            await self._say(meet(self._held, mine))
        elif gained:
            await self._say(join(self._held, mine))
            again = await self._named()
            if again is None or without(self._held, again) or meet(self._held, await self._others()):
                await self._say(self._working)
            else:
                self._working = self._held
                self._workers.set(self.name, self._working)
        elif without(self._held, mine):
            await self._say(meet(self._held, mine))

    async def _say(self, spans: Spans) -> None:
        self._held = spans
        self.said += 1
        await self._write_ours({})

    async def _named(self) -> Spans | None:
        found = await self.client.find(ASSIGNMENTS, self.ring)
        return None if found is None or not in_order(found) else named(found, self.name)

    async def _others(self) -> Spans:
        leases = await self.client.list(LEASES, labels=f"{RING_LABEL}={self.ring}")
        return join(
            *(
                parse((each["metadata"].get("annotations") or {}).get(HELD, ""))
                for each in leases
                if each["metadata"]["name"] != self.name
                and each["spec"].get("holderIdentity") == each["metadata"]["name"]
                and self._counts(each)
            )
        )

    def _counts(self, lease: Object) -> bool:
        """Whether what it says is of the process that renews it, or of one before that may still be at work."""
        said = (lease["metadata"].get("annotations") or {}).get(HELD, "")
        _, stamped, said_at = said.partition("@")
        if not stamped or said_at == lease["spec"]["renewTime"]:
            return True
        now = asyncio.get_running_loop().time()
        return now < self._left.setdefault(said, now + lease["spec"]["leaseDurationSeconds"])
