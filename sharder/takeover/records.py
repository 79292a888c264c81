"""What one leader did about the leases of one ring's shards, and what became of it.

Refuses: to write, and to decide by what it remembers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Final

from sharder.core.shards import State, describe_stranger
from sharder.core.takeover import Act, Step, TakeoverFacts, Why
from sharder.takeover.fences import ShardHold
from shardsdk.errors import ShardingError
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import MAX_DURATION_SECONDS, Lease

#: Pauses before a read is repeated that found objects left on a shard: the first, doubling, and the last.
READ_AGAIN_SECONDS: Final = (0.2, 10.0)
#: Replaced versions remembered: writes that a watch may lag behind.
MAX_REPLACED: Final = 8
#: People are told of a lease that could not be acquired so many times in a row, which takes some ten seconds.
FAILURES_TOLD: Final = 8
_ACQUIRING: Final = (Act.ACQUIRE, Act.TRY, Act.CREATE, Act.RENEW)
#: People are told of a lease that nobody acquires for longer than that, since it counts as held or its shard may come
#: back.
AWAITED_SECONDS: Final = 60.0
#: The write itself is tried once in so many durations in which dry runs have failed slowly, or had no answer.  Where it
#: would, too, it is the first to pass at the end of that, and takes the lease from its shard, once in 30 times or less.
SLOW_DURATIONS: Final = 10
#: As a moment; none of ours is so long ago.
NEVER: Final = float("-inf")


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
    its state, which it has refused (minus infinity: it has not); `writable_since`: since when it would take a write of
    it again, after it refused one (minus infinity: none since its shard was ready; infinity: not yet); `tried_since`:
    since when it has refused dry runs of one at once, `slow_since`: since when they have failed in whatever way (minus
    infinity: they have not); `missed`: how often acquiring it did, since what the shard has needs that, and `answer`.
    `ready`: its shard was when it was decided about last.
    `abandoned`: it ran out, and nobody is ready to take over. `stranger`:
    who holds it that is neither its shard nor the sharder, and was first seen to at `stranger_since`; `awaited`: until
    when a lease counts as held that nobody holds, or its shard is given to come back, where that is long; `spared`: the
    latter in words, `remark`: the others.
    """

    hold: ShardHold
    held: bool = False
    hold_length: float = 0.0
    version: str = ""
    replaced: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_REPLACED))
    wrote_at: float = NEVER
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
    unshown_until: float = NEVER
    writable_since: float = NEVER
    tried_since: float = NEVER
    slow_since: float = NEVER
    missed: int = 0
    answer: ShardingError | None = None
    ready: bool = False
    abandoned: bool = False
    stranger: str = ""
    stranger_since: float = NEVER
    awaited: datetime | None = None
    spared: str = ""
    remark: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_told_of(self) -> bool:
        """Whether people are to know that it cannot be acquired."""
        return self.missed >= FAILURES_TOLD and not self.taken

    def not_written(self) -> None:
        """A write of it was refused, or had no answer, so that its shard may not have been able to write it either.

        Its shard is given time for that once: a write may fail again and again, for whatever reason.
        """
        if self.writable_since == NEVER:
            self.writable_since = inf

    def is_real_try_due(self, now: float, seconds: float, *, at_once: bool) -> bool:
        """A dry run has failed: whether each has for so long by now that the write itself is to tell, once.

        For `seconds` where its answer came `at_once`; else for `SLOW_DURATIONS` times as long.
        """
        self.slow_since = now if self.slow_since == NEVER else self.slow_since
        if at_once and self.tried_since == NEVER:
            self.tried_since = now
        due = now >= (self.tried_since + seconds if at_once else self.slow_since + SLOW_DURATIONS * seconds)
        if due:
            self.tried_since = self.slow_since = now
        return due

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
        #: The namespaces of each shard's: there may be very many names.
        self._where: dict[str, set[str]] = {}
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
            self._where.setdefault(key[1], set()).add(key[0])
        return record

    @property
    def taken(self) -> tuple[str, ...]:
        """Why shards that are gone keep their objects, whose Lease is somebody else's by now."""
        return tuple(sorted(each.taken for each in self._each.values() if each.taken and each.act in _ACQUIRING))

    @property
    def not_acquired(self) -> tuple[tuple[str, str], ...]:
        """The shards whose leases could not be acquired for a while, and why."""
        return tuple(
            (
                shard,
                each.spared
                or f"{_render(namespace, shard)} cannot be acquired to move what shard {shard} has: {each.answer}",
            )
            for (namespace, shard), each in sorted(self._each.items())
            if each.spared or each.is_told_of
        )

    @property
    def abandoned(self) -> tuple[tuple[str, str], ...]:
        """The shards whose leases ran out while no other is ready to take over, and which leases those are."""
        return tuple(
            (shard, _render(namespace, shard))
            for (namespace, shard), each in sorted(self._each.items())
            if each.abandoned and not each.is_told_of
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What else people are to know of leases, with what to do about it."""
        return tuple(each.remark for _, each in sorted(self._each.items()) if each.remark)

    def decided(self, key: tuple[str, str], facts: TakeoverFacts, step: Step) -> None:
        """By `facts`, that is what is to be done about a lease now."""
        record = self.of(key)
        record.act = step.act
        state = facts.state.state if facts.state is not None else State.DEAD
        record.ready = state is State.READY
        if record.ready:
            record.writable_since = NEVER
        # While nobody is ready it cannot be tried, and is as true as before.
        if state is not State.UNCERTAIN and (state.available or facts.work_left is False):
            self._forgive(record)
        if step.why is not Why.REFUSED:
            record.tried_since = record.slow_since = NEVER
        before = record.abandoned, record.remark, record.spared
        until = self._await(record, facts, step)
        record.abandoned, record.remark = step.why is Why.ABANDONED, self._remark(key, record, facts, step, until)
        record.spared = _describe_spared(key, until) if step.why is Why.SPARED else ""
        if before != (record.abandoned, record.remark, record.spared):
            self._tell()

    def _await(self, record: Record, facts: TakeoverFacts, step: Step) -> datetime | None:
        """Until when nothing is done for what its shard may still do or come to; `None`: that is soon, or not so."""
        moment = {Why.PRESUMED_HELD: facts.presumed_until, Why.SPARED: facts.spared_until}.get(step.why, NEVER)
        left = moment - self._clock.monotonic()
        if moment == NEVER or (record.awaited is None and left < AWAITED_SECONDS):
            record.awaited = None
            return None
        until = self._clock.now() + timedelta(seconds=min(left, MAX_DURATION_SECONDS))
        if record.awaited is None or abs((until - record.awaited).total_seconds()) > AWAITED_SECONDS / 2:
            record.awaited = until
        return record.awaited

    def _remark(
        self, key: tuple[str, str], record: Record, facts: TakeoverFacts, step: Step, until: datetime | None
    ) -> str:
        lease = facts.lease
        stranger = lease.holder if lease is not None and lease.holder not in (lease.name, SHARDER_HOLDER) else ""
        if stranger != record.stranger:
            record.stranger, record.stranger_since = stranger, lease.observed_at if lease is not None else NEVER
        # Whoever takes it once may be about to give it back; one that goes on renewing it believes that it has it.
        if stranger and lease is not None and lease.observed_at - record.stranger_since > lease.duration_seconds:
            return describe_stranger(lease.namespace, lease.name, stranger)
        if until is None or step.why is not Why.PRESUMED_HELD:
            return ""
        return (
            f"{_render(*key)} was deleted, or taken from its shard, while that held it for long, and counts as held"
            f" until {until:%H:%M:%S} UTC, since the shard may be at work: what it has moves then, or once the"
            " shard holds it again"
        )

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
            self._where[key[1]].discard(key[0])
            if not self._where[key[1]]:
                del self._where[key[1]]

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
        named = (self._each[each, key[1]] for each in self._where.get(key[1], ()) if key[0] in ("", each))
        return any(record.held and record.wrote_at >= recent for record in named)


def _describe_spared(key: tuple[str, str], until: datetime | None) -> str:
    if until is None:
        return ""
    return (
        f"{_render(*key)} ran out, and writes of it were refused, so that shard {key[1]} is given until"
        f" {until:%H:%M:%S} UTC to renew it: start it again, or what it has moves then"
    )


def _render(namespace: str, shard: str) -> str:
    return f"the Lease {namespace}/{shard}" if namespace else f"the Lease of shard {shard}"
