"""What one leader did about the leases of one ring's shards, and what became of it.

Refuses: to write, and to decide by what it remembers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sharder.core.shards import State
from sharder.core.takeover import Act, TakeoverFacts
from sharder.takeover.fences import ShardHold
from shardsdk.errors import ShardingError
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock
from shardsdk.protocol.leases import Lease

#: Pauses before a read is repeated that found objects left on a shard: the first, doubling, and the last.
READ_AGAIN_SECONDS: Final = (0.2, 10.0)
#: Replaced versions remembered: writes that a watch may lag behind.
MAX_REPLACED: Final = 8
#: People are told of a lease that could not be acquired so many times in a row, which takes some ten seconds.
FAILURES_TOLD: Final = 8
_ACQUIRING: Final = (Act.ACQUIRE, Act.CREATE, Act.RENEW)


@dataclass(slots=True)
class Record:
    """What this leader did about one lease.

    `version` is the one that our last write made (empty: not known), `replaced`
    are those that our last writes replaced, the latest at `wrote_at`; a cache
    that still shows one of them merely lags.
    `announced`: placement was told that it may move.  `reads`: how often in a
    row a read found objects left.  `looks_at`: when the lease comes up again at the
    latest (infinity: not known).  `refused`: the version against which our last
    write was refused (`None`: it was not), `behind`: so was the one before it.  `taken`: why
    nobody can acquire it (empty: nothing is known that keeps us from it).  `failures`: how often in a
    row whatever was to be done failed, and how; `unshown_until`: when the API server is asked again to label it with
    its state, which it has refused (minus infinity: it has not); `missed`: how often acquiring it did, since what the
    shard has needs that, and `answer`.  `abandoned`: it ran out, and nobody is ready to take over.
    """

    hold: ShardHold
    held: bool = False
    hold_length: float = 0.0
    version: str = ""
    replaced: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_REPLACED))
    wrote_at: float = float("-inf")
    announced: bool = False
    last_move_at: float = 0.0
    progress_at: float = 0.0
    barred_until: float = 0.0
    missing_since: float = 0.0
    reads: int = 0
    looks_at: float = float("inf")
    refused: str | None = None
    behind: bool = False
    taken: str = ""
    act: Act = Act.WAIT
    failures: int = 0
    failure: ShardingError | None = None
    unshown_until: float = float("-inf")
    missed: int = 0
    answer: ShardingError | None = None
    abandoned: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_told_of(self) -> bool:
        """Whether people are to know that it cannot be acquired."""
        return self.missed >= FAILURES_TOLD and not self.taken

    def drop(self) -> None:
        """There is no hold any more, or there must be none; writes that wait to be sent under it are refused."""
        self.hold.close()
        self.held = self.announced = False
        self.version = ""

    def read_again_after(self) -> float:
        """A read has found objects left: in how many seconds the next is due."""
        self.reads += 1
        return double(READ_AGAIN_SECONDS[0], self.reads - 1, READ_AGAIN_SECONDS[1])

    def wrote(self, version: str, now: float) -> None:
        """Our write replaced `version`."""
        self.replaced.append(version)
        self.wrote_at = now


class Records:
    """What this leader did about each lease of one ring; by (namespace, shard)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._each: dict[tuple[str, str], Record] = {}
        #: Told when other leases cannot be acquired than before, or have nobody to take over.
        self.when_changed: list[Callable[[], None]] = []

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(tuple(self._each))

    def __len__(self) -> int:
        return len(self._each)

    def get(self, key: tuple[str, str]) -> Record | None:
        """What was done about a lease; `None`: nothing is remembered."""
        return self._each.get(key)

    def missing_since(self, key: tuple[str, str]) -> float:
        """Since when a lease is missed of which nothing is known; 0: nobody has looked for it."""
        record = self._each.get(key)
        return record.missing_since if record is not None else 0.0

    def of(self, key: tuple[str, str]) -> Record:
        """The same, to be remembered from now on."""
        record = self._each.get(key)
        if record is None:
            record = self._each[key] = Record(ShardHold(f"lease of shard {key[1]}", self._clock))
        return record

    @property
    def taken(self) -> tuple[str, ...]:
        """Why shards that are gone keep their objects, whose Lease is somebody else's by now."""
        return tuple(sorted(each.taken for each in self._each.values() if each.taken and each.act in _ACQUIRING))

    @property
    def not_acquired(self) -> tuple[tuple[str, str], ...]:
        """The shards whose leases could not be acquired for a while, and why."""
        return tuple(
            (shard, f"{_render(namespace, shard)} cannot be acquired to move what shard {shard} has: {each.answer}")
            for (namespace, shard), each in sorted(self._each.items())
            if each.is_told_of
        )

    @property
    def abandoned(self) -> tuple[tuple[str, str], ...]:
        """The shards whose leases ran out while no other is ready to take over, and which leases those are."""
        return tuple(
            (shard, _render(namespace, shard))
            for (namespace, shard), each in sorted(self._each.items())
            if each.abandoned and not each.is_told_of
        )

    def decided(self, key: tuple[str, str], facts: TakeoverFacts, act: Act) -> None:
        """By `facts`, that is what is to be done about a lease now."""
        record = self.of(key)
        record.act = act
        state = facts.state.state if facts.state is not None else State.DEAD
        # While nobody is ready it cannot be tried, and is as true as before.
        if state is not State.UNCERTAIN and (state.available or facts.work_left is False):
            self._forgive(record)
        abandoned = state is State.UNCERTAIN and act is Act.WAIT
        if abandoned != record.abandoned:
            record.abandoned = abandoned
            self._tell()

    def failed(self, key: tuple[str, str], error: ShardingError) -> bool:
        """What was to be done about a lease has failed; whether that is worth a line: ever less often."""
        record = self.of(key)
        if record.act in _ACQUIRING:
            # Of one trouble the words may differ each time, and each time people would be told.
            if type(record.answer) is not type(error):
                record.answer = error
            record.missed += 1
            if record.missed == FAILURES_TOLD:
                self._tell()
        changed = type(record.failure) is not type(error)
        record.failure = error
        record.failures += 1
        return changed or record.failures & (record.failures - 1) == 0

    def succeeded(self, key: tuple[str, str]) -> None:
        """What was to be done about a lease was done."""
        record = self._each.get(key)
        if record is None:
            return
        record.failures, record.failure = 0, None
        if record.held:
            self._forgive(record)
            if (missed := self._each.get(("", key[1]))) is not None:  # by which it was created
                self._forgive(missed)

    def _forgive(self, record: Record) -> None:
        """Nothing is to be acquired any more, or it was."""
        told = record.missed >= FAILURES_TOLD
        record.missed, record.answer = 0, None
        if told:
            self._tell()

    def _tell(self) -> None:
        for tell in self.when_changed:
            tell()

    def forget(self, key: tuple[str, str]) -> None:
        """The lease is gone: nothing more may be written under a hold on it."""
        record = self._each.pop(key, None)
        if record is not None:
            record.drop()

    def forget_all(self) -> None:
        """The ring is gone."""
        for key in self:
            self.forget(key)

    def lags(self, key: tuple[str, str], lease: Lease | None, recent: float) -> bool:
        """Whether the cache, which shows `lease`, does not show a write of ours since `recent` yet."""
        if lease is not None:
            record = self.of(key)
            return record.wrote_at >= recent and lease.metadata.resource_version in record.replaced
        # Created a moment ago, in whatever namespace, and not in the cache yet?
        return any(
            record.held and record.wrote_at >= recent
            for (namespace, shard), record in self._each.items()
            if shard == key[1] and key[0] in ("", namespace)
        )


def _render(namespace: str, shard: str) -> str:
    return f"the Lease {namespace}/{shard}" if namespace else f"the Lease of shard {shard}"
