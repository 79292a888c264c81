"""From a shard's lease to its state, and to the moment to look again.

Does: judge by what was observed when, on one monotonic clock, counting only
time in which commits were proven.  Refuses: to read the times written in the
lease; they come from another machine's clock.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from sharder.core.problems import quoted
from shardsdk.protocol.leases import RELEASED_DURATION_SECONDS, Lease

#: How long a dead shard's lease is kept after it ran out, for its shard to come back to.
ORPHANED_AFTER_SECONDS: Final = 60


class State(StrEnum):
    """A shard's state; the value is what the lease's state label says."""

    READY = "ready"
    EXPIRED = "expired"
    UNCERTAIN = "uncertain"
    DEAD = "dead"
    ORPHANED = "orphaned"

    @property
    def available(self) -> bool:
        """Whether the shard is in the hash ring."""
        return self in (State.READY, State.EXPIRED, State.UNCERTAIN)


class LeaseFacts(msgspec.Struct, frozen=True):
    """What a lease says, and since when (`observed_at`, monotonic) it has said so.

    `holder` is empty when nobody holds it; `duration_seconds` is always usable;
    `released` tells a release from a holder that someone wiped out.
    """

    namespace: str
    name: str
    holder: str
    duration_seconds: int
    fenced: bool
    observed_at: float
    released: bool

    @property
    def held_by_shard(self) -> bool:
        """Whether its own shard holds the lease; then the shard is available."""
        return self.holder != "" and self.holder == self.name


class Proof(NamedTuple):
    """A span of monotonic time in which commits were proven without a break; `until` counts as now."""

    since: float
    until: float


class ShardState(NamedTuple):
    """A shard's state; time alone changes it no earlier than `look_again_at` (`None`: never)."""

    state: State
    look_again_at: float | None


def facts_of(lease: Lease, observed_at: float) -> LeaseFacts:
    """The facts of a lease whose present content was first seen at `observed_at`."""
    return LeaseFacts(
        namespace=lease.metadata.namespace,
        name=lease.metadata.name,
        holder=lease.holder,
        duration_seconds=lease.duration_seconds,
        fenced=lease.fenced,
        observed_at=observed_at,
        released=lease.holder == "" and lease.spec.lease_duration_seconds == RELEASED_DURATION_SECONDS,
    )


def runs_out_at(facts: LeaseFacts, proof: Proof) -> float:
    """E: one duration after the lease was seen to change, or after proof began, whichever is later."""
    return max(facts.observed_at, proof.since) + facts.duration_seconds


def classify(facts: LeaseFacts, proof: Proof, orphaned_after_seconds: float = ORPHANED_AFTER_SECONDS) -> ShardState:
    """The state of the shard whose lease this is, as far as proven time tells.

    ORPHANED says only that the time has come; whether objects are left is the
    caller's to check.
    """
    end, now = runs_out_at(facts, proof), proof.until
    if not facts.held_by_shard:
        if now < end + orphaned_after_seconds:
            return ShardState(State.DEAD, end + orphaned_after_seconds)
        return ShardState(State.ORPHANED, None)
    if now < end:
        return ShardState(State.READY, end)
    if now < end + facts.duration_seconds and not facts.fenced:
        return ShardState(State.EXPIRED, end + facts.duration_seconds)
    return ShardState(State.UNCERTAIN, None)


def describe_stranger(namespace: str, name: str, holder: str) -> str:
    """That somebody goes on renewing a lease under another name than its own, in words with the remedy."""
    return (
        f"the Lease {namespace}/{name} is renewed by {quoted(holder)}, so that it is no shard's: the holder has to be"
        f" the Lease's name; have whoever renews it say {name} as holderIdentity, which libraries for leader election"
        " call their identity, or take the ring's label off the Lease if it is no shard"
    )
