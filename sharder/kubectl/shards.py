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
from sharder.kubectl.text import span
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
    `ahead_seconds`: how far in the future that renewal is, by this machine's clock; 0: it is not.
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
    ahead_seconds: float = 0.0

    @property
    def _old(self) -> bool:
        return self.renewed_seconds is not None and self.renewed_seconds > SILENT_DURATIONS * self.duration_seconds

    @property
    def ahead(self) -> bool:
        """Whether its last renewal is further in the future than clocks differ where they are set right."""
        return self.ahead_seconds > self.duration_seconds

    @property
    def renewed(self) -> str:
        """When that was, in words."""
        if self.ahead:
            return f"in {span(self.ahead_seconds)}, by its clock"
        return f"{span(self.renewed_seconds)} ago"

    @property
    def silent(self) -> bool:
        """Whether it counts as ready although nobody seems to renew it: no sharder looks at it."""
        return self.state is State.READY and self._old

    @property
    def ran_out(self) -> bool:
        """Whether its lease seems to have, though it is still its shard's."""
        return self.available and (self.silent or self.state is State.UNCERTAIN)

    @property
    def in_time(self) -> bool:
        """Whether its shard holds its lease, and has renewed it in time."""
        return self.available and self.state is State.READY and not self.silent

    @property
    def runs(self) -> bool:
        """Whether somebody but the sharder seems to hold it, whatever the sharder says of it."""
        return not (self.released or self.in_grace or self.taken_over or self._old)

    @property
    def strange(self) -> bool:
        """Whether somebody goes on renewing it that is neither its shard nor the sharder, by its own times."""
        if self.available or self.released or self.taken_over or None in (self.renewed_seconds, self.held_seconds):
            return False
        return not self._old and (self.held_seconds or 0.0) - (self.renewed_seconds or 0.0) > self.duration_seconds

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
        ahead_seconds=_seconds_ahead(lease.spec.renew_time, now),
    )


def read_membership(leases: Iterable[Lease], shard_statuses: Iterable[ShardStatus]) -> Membership:
    """The ring's shards, as sharder.core derives them."""
    ready = [shard_status for shard_status in shard_statuses if shard_status.state is State.READY]
    unrenewed = frozenset(shard_status.name for shard_status in ready if shard_status.silent)
    return membership.build(list(leases), {shard_status.name for shard_status in ready}, unrenewed=unrenewed)


def _state_label(lease: Lease) -> State | None:
    try:
        return State(lease.metadata.label(LEASE_STATE_LABEL) or "")
    except ValueError:
        return None


def _state_by_times(facts: LeaseFacts) -> State:
    """By the lease's own times; that it may go is for the sharder to say."""
    return classify(facts, Proof(since=-math.inf, until=0.0), orphaned_after_seconds=math.inf).state


def _seconds_ahead(text: str | None, now: datetime) -> float:
    moment = parse_micro_time(text)
    return 0.0 if moment is None else max((moment - now).total_seconds(), 0.0)


def _seconds_since(text: str | None, now: datetime) -> float | None:
    moment = parse_micro_time(text)
    return None if moment is None else max((now - moment).total_seconds(), 0.0)
