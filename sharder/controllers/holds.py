"""Holds on the leases of shards that are gone, as fences for the writes made under them.

Does: know until when this leader may take objects away from a shard.
Refuses: to count a lease that this leader has not itself written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shardsdk.kube.clock import Clock


@dataclass(slots=True)
class ShardHold:
    """This leader's hold on one lease; a fence that closes when the hold runs out.

    `until` is on the monotonic clock and counts from before the write was sent.
    """

    name: str
    clock: Clock
    until: float = 0.0

    def remaining(self) -> float:
        """Seconds left; zero or less: closed."""
        return self.until - self.clock.monotonic()

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
    """The span in which commits were proven without a break.

    The leader's own lease being renewed shows that the API server takes writes;
    while it does not, a shard that cannot renew either is no less alive.
    `gap_seconds`: a longer time between two renewals is a break.
    """

    clock: Clock
    gap_seconds: float
    since: float = field(default=0.0)
    until: float = field(default=0.0)

    def renewed(self, sent_at: float, answered_at: float) -> None:
        """Note a confirmed write of the leader's lease."""
        if self.until == 0.0 or answered_at - self.until > self.gap_seconds:
            self.since = answered_at
        self.until = sent_at

    def proven_until(self) -> float:
        """The latest moment up to which time counts: now, unless a renewal is overdue."""
        now = self.clock.monotonic()
        return now if now - self.until <= self.gap_seconds else self.until
