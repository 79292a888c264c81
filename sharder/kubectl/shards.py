"""A shard, as its lease shows it to somebody who looks once.

The state is what the sharder's label says.  Where that says nothing, it is made of the
lease's own times, which come from another machine's clock: good enough for people, and
nothing is decided by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sharder.core import membership
from sharder.core.membership import Membership
from sharder.core.shards import LeaseFacts, Proof, State, classify, facts_of
from shardsdk.protocol.labels import LEASE_STATE_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease, parse_micro_time

#: A lease that its state label calls ready and that is older than so many of its durations: nobody judges it.
SILENT_DURATIONS: Final = 3


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard's lease.

    `available`: its own shard holds it.  `judged`: the state is the sharder's
    word; else it is by the lease's own times.  `renewed_seconds`, `held_seconds`:
    since the last renewal, and since it was acquired (None: the lease does not say).
    `in_grace`: left to the next process of its name, none is at work.
    """

    name: str
    namespace: str
    state: State
    available: bool
    judged: bool
    holder: str
    duration_seconds: int
    renewed_seconds: float | None
    held_seconds: float | None
    transitions: int | None
    fenced: bool
    in_grace: bool

    @property
    def _old(self) -> bool:
        return self.renewed_seconds is not None and self.renewed_seconds > SILENT_DURATIONS * self.duration_seconds

    @property
    def silent(self) -> bool:
        """Whether it counts as ready although nobody seems to renew it: no sharder looks at it."""
        return self.state is State.READY and self._old

    @property
    def runs(self) -> bool:
        """Whether somebody but the sharder seems to hold it, whatever the sharder says of it."""
        return not (self.released or self.in_grace or self.taken_over or self._old)

    @property
    def released(self) -> bool:
        """Whether nobody holds the lease: its shard left in order, or the sharder has moved all that it had."""
        return not self.holder

    @property
    def taken_over(self) -> bool:
        """Whether the sharder holds the lease, to move the shard's objects."""
        return self.holder == SHARDER_HOLDER


def read_shard_status(lease: Lease, now: datetime) -> ShardStatus:
    """What one lease says."""
    said = _state_label(lease)
    renewed = _seconds_since(lease.spec.renew_time, now)
    facts = facts_of(lease, observed_at=-(renewed or 0.0))
    judged = said is not None and said.available == facts.held_by_shard
    return ShardStatus(
        name=facts.name,
        namespace=facts.namespace,
        state=said if said is not None and judged else _state_by_times(facts),
        available=facts.held_by_shard,
        judged=judged,
        holder=facts.holder,
        duration_seconds=facts.duration_seconds,
        renewed_seconds=renewed,
        held_seconds=_seconds_since(lease.spec.acquire_time, now),
        transitions=lease.spec.lease_transitions,
        fenced=facts.fenced,
        in_grace=lease.left,
    )


def read_membership(leases: Iterable[Lease], shard_statuses: Iterable[ShardStatus]) -> Membership:
    """The ring's shards, as sharder.core derives them."""
    ready = {shard_status.name for shard_status in shard_statuses if shard_status.state is State.READY}
    return membership.build(list(leases), ready)


def _state_label(lease: Lease) -> State | None:
    try:
        return State(lease.metadata.label(LEASE_STATE_LABEL) or "")
    except ValueError:
        return None


def _state_by_times(facts: LeaseFacts) -> State:
    """By the lease's own times; that it may go is for the sharder to say."""
    return classify(facts, Proof(since=-math.inf, until=0.0), orphaned_after_seconds=math.inf).state


def _seconds_since(text: str | None, now: datetime) -> float | None:
    moment = parse_micro_time(text)
    return None if moment is None else max((now - moment).total_seconds(), 0.0)
