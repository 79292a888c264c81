"""Holds on the leases of shards that are gone, as fences for the writes made under them.

Does: know until when this leader may take objects away from a shard.
Refuses: to count a lease that this leader has not itself written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from sharder.core.proven_time import LEAST_PERIODS, Gap, Renewals, note_commit, note_lapse, note_renewal, proof_for
from sharder.core.shards import Proof
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import Clock
from shardsdk.kube.doubts import is_doubted
from shardsdk.kube.lapses import Lapses, lapses_of


@dataclass(slots=True)
class Gate:
    """The leadership's fence, and a way to shut it earlier: what is under way ends, nothing new begins."""

    fence: Fence
    shut: bool = False

    @property
    def name(self) -> str:
        """What is fenced."""
        return self.fence.name

    def remaining(self) -> float:
        """Seconds left; zero or less: closed."""
        return 0.0 if self.shut else self.fence.remaining()

    @property
    def doubted(self) -> bool:
        """Whether it is closed only until the leadership's next renewal."""
        return not self.shut and is_doubted(self.fence)


@dataclass(slots=True)
class ShardHold:
    """This leader's hold on one lease; a fence that closes when the hold runs out.

    `until` is on the monotonic clock and counts from before the write was sent; `missed`
    is what that clock had been found to have missed by then.
    """

    name: str
    clock: Clock
    until: float = 0.0
    missed: float = 0.0

    def remaining(self) -> float:
        """Seconds left; zero or less: closed."""
        return self.until - self.clock.monotonic() - (lapses_of(self.clock).seconds - self.missed)

    def close(self) -> None:
        """Let nothing more through, whoever has got hold of this fence already."""
        self.until = 0.0


@dataclass(frozen=True, slots=True)
class JointHold:
    """Holds on every lease of one shard name: closed as soon as one of them is."""

    name: str
    holds: tuple[ShardHold, ...]

    def remaining(self) -> float:
        """Seconds left on the shortest hold; zero or less: closed."""
        return min((hold.remaining() for hold in self.holds), default=0.0)


def join(name: str, holds: Iterable[ShardHold]) -> JointHold:
    """One fence over several holds; without any it is closed."""
    return JointHold(name, tuple(holds))


@dataclass(slots=True)
class CommitProof:
    """The time in which commits were proven, mostly by the leader's own renewals; see `sharder.core.proven_time`.

    A commit's beginning is to be told earlier by what the clock was found to have missed
    since; `missed` is how much of that `renewals` know of.  `known_until()`: until when this
    replica has heard what shards make of their leases; later time counts against none of them.
    """

    clock: Clock
    retry_seconds: float
    known_until: Callable[[], float] = lambda: inf
    renewals: Renewals = field(default_factory=Renewals)
    missed: float = 0.0
    _lapses: Lapses = field(init=False)

    def __post_init__(self) -> None:
        self._lapses = lapses_of(self.clock)

    def renewed(self, sent_at: float, answered_at: float) -> None:
        """Note a confirmed write of the leader's lease."""
        self.renewals = note_renewal(self._known(), sent_at, answered_at, self.retry_seconds)

    def witnessed(self, sent_at: float, seen_at: float) -> None:
        """Note a commit of somebody else's between these moments."""
        self.renewals = note_commit(self._known(), sent_at, seen_at, self.retry_seconds)

    def of(self, duration_seconds: float) -> Proof:
        """What counts against a lease of this duration."""
        proof = proof_for(self._known(), duration_seconds, self.retry_seconds, self.clock.monotonic())
        return proof._replace(until=min(proof.until, self.known_until()))

    def since(self, duration_seconds: float) -> float:
        """Since when time counts against a lease of this duration."""
        return self.of(duration_seconds).since

    def basis(self) -> tuple[float, tuple[Gap, ...]] | None:
        """What `of` rests on apart from the time, which counts up to now for every lease; `None`: it may not.

        While this is the same, time passes for leases as it does by the clock.
        """
        known, now = self._known(), self.clock.monotonic()
        if known.began_at is None or now - known.until > LEAST_PERIODS * self.retry_seconds or self.known_until() < now:
            return None
        return known.began_at, known.gaps

    def proven_until(self) -> float:
        """The latest moment up to which time counts for anything: now, unless a renewal is overdue.

        Whether shards' leases are heard of is left out: what we do about those that we hold goes on without.
        """
        return proof_for(self._known(), inf, self.retry_seconds, self.clock.monotonic()).until

    def _known(self) -> Renewals:
        """What is known, with what the clock is found to have missed by now."""
        missed = self._lapses.seconds
        if missed != self.missed:
            self.renewals, self.missed = note_lapse(self.renewals, missed - self.missed), missed
        return self.renewals
