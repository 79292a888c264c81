"""What is known of one lease, put together as the decision about it wants it.

Also: whether a read shows a lease that the cache does not have.  Nothing is decided
here, and nothing remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import Protocol

from sharder.cache.rings import LeaseKey, RingSnapshot
from sharder.core.observed import ObservedLease, held_until, shard_held_until, vanished_until
from sharder.core.shards import LeaseFacts, ShardState
from sharder.core.takeover import TakeoverFacts, needs_no_look
from sharder.takeover.lease_client import usable_seconds
from sharder.takeover.records import NEVER, Record, Records
from shardsdk.protocol.labels import LEASE_CONTROLLERRING_LABEL, LEASE_RING_LABEL, LEASE_STATE_LABEL
from shardsdk.protocol.leases import Lease


class WorkLeft(Protocol):
    """What shards have that are not available, as whoever assigns it knows."""

    def is_empty_of(self, shard: str) -> bool | None:
        """Whether nothing is seen that is this shard's; `None`: not known."""

    async def confirm_empty_of(self, shard: str) -> bool:
        """The same by a consistent read."""


def takeover_facts(
    snapshot: RingSnapshot,
    shard: str,
    observed: ObservedLease | None,
    judged: tuple[LeaseFacts, ShardState] | None,
    record: Record,
    empty: bool | None,
    ready: frozenset[str],
    names_ready: Container[str],
    proven_since: Callable[[float], float],
) -> TakeoverFacts:
    """The facts about the lease `observed` of `shard` (`None`: there is no lease of that name).

    `empty`: no object carries the shard's name (`None`: not known yet).  `ready`: which
    of the ring's shards are; `names_ready`: of which names some shard is, though two
    may have one.  `proven_since(duration)`: since when time counts against a lease of
    that duration.
    """
    lease, state = judged if judged is not None else (None, None)
    # A shard that moved to another namespace under its name takes what this lease, that it has left there, stands for.
    moved = lease is not None and lease.held_by_shard and shard in names_ready
    return TakeoverFacts(
        lease=lease,
        state=state,
        presumed_until=held_until(
            observed, snapshot.vanished_named(shard), record.missing_since, snapshot.leases.values(), proven_since
        ),
        spared_until=_spared_until(lease, record),
        hold_until=record.hold.until if record.held else None,
        hold_seconds=usable_seconds(record.hold_length),
        ready_elsewhere=bool(ready - {shard}) or moved,
        available_elsewhere=bool(snapshot.membership.available - {shard}),
        lives_elsewhere=lives_elsewhere(snapshot, shard),
        objects_left=None if empty is None else not empty,
        last_move_at=record.last_move_at,
        progress_at=record.progress_at,
        barred_until=record.barred_until,
    )


def _spared_until(lease: LeaseFacts | None, record: Record) -> float:
    """Until when whoever holds the lease is given to come back, since the API server takes writes of it again."""
    if lease is None or record.writable_since == NEVER:
        return 0.0
    return record.writable_since + lease.duration_seconds


def only_renewed(lease: Lease, state: ShardState, record: Record, recent: float) -> bool:
    """Whether a shard just goes on holding `lease`, so that it needs no look of its own.

    `recent`: since when our own writes may be missing in what is seen.
    """
    refused = record.unshown_until > NEVER  # the look that is due tries to label it again
    shown = state.state.value if refused else lease.metadata.label(LEASE_STATE_LABEL)
    may_lag = record.wrote_at >= recent
    return needs_no_look(shown, state, held=record.held, may_lag=may_lag, looks_at=record.looks_at)


def needing_a_look(
    snapshot: RingSnapshot,
    records: Records,
    judge: Callable[[ObservedLease], tuple[LeaseFacts, ShardState]],
    recent: float,
) -> Iterator[LeaseKey]:
    """The leases, and the records of such, about which the ring's other shards may decide.

    Who was ready and just goes on holding a lease has nothing to do with others: where hundreds come at once, each
    would have every one of those that are there looked at.  `recent` as in `only_renewed`.
    """
    for key in dict.fromkeys((*snapshot.leases, *records)):
        seen, record = snapshot.leases.get(key), records.get(key)
        if (
            seen is None
            or record is None
            or not record.ready
            or not only_renewed(seen.lease, judge(seen)[1], record, recent)
        ):
            yield key


def lives_elsewhere(snapshot: RingSnapshot, shard: str) -> bool:
    """Whether a shard holds some lease of this name: what carries the name belongs to that one."""
    return shard in snapshot.membership.available or shard in snapshot.membership.untouched


def unknown_lease(snapshot: RingSnapshot, shard: str, seen: ObservedLease | None, found: Iterable[Lease]) -> str | None:
    """What the cache does not know of all the Leases `found` that are called `shard`, of which it has `seen` one.

    That is one of the ring that it does not have at all, or one that says something else in the same version.
    """
    for lease in found:
        if seen is not None and _is_rewritten(seen.lease, lease):
            return f"what {lease.metadata.namespace}/{shard} says in that version"
        if (lease.metadata.namespace, shard) not in snapshot.leases and lease.ring == snapshot.name:
            return f"{lease.metadata.namespace}/{shard}"
    return None


def name_taken(snapshot: RingSnapshot, shard: str, found: Iterable[Lease]) -> str:
    """Why nobody can acquire the lease of `shard`, of which these are all, to move what it has; empty: somebody can.

    Its Lease is no shard's of this ring (any more).  Whoever held it for this ring may be gone for long; but its next
    process, which this Lease alone could keep off, may come while objects move.
    """
    homes = {namespace for namespace, _ in snapshot.leases}
    others = {lease.metadata.namespace: lease for lease in found if lease.ring != snapshot.name}
    if any((namespace, shard) in snapshot.leases for namespace in homes) or not others.keys() & homes:
        return ""
    lease = others[min(others.keys() & homes)]
    what = f"{lease.metadata.namespace}/{shard}"
    carried = f"objects of ring {snapshot.name} carry the name of shard {shard}, and the Lease {what}"
    ring = lease.ring or lease.metadata.label(LEASE_CONTROLLERRING_LABEL)
    if lease.held_by_shard and ring is not None:
        return (
            f"{carried} is held by a shard of ring {ring}, so that it cannot be acquired to move them; stop or rename"
            f" shard {shard} of ring {ring}, then delete the Lease"
        )
    return (
        f"{carried} is no shard's of that ring, so that it cannot be acquired to move them; delete that Lease, or give"
        f" it the label {LEASE_RING_LABEL}={snapshot.name} if a shard has lost it"
    )


def _is_rewritten(seen: Lease, found: Lease) -> bool:
    """Whether `found` is another Lease in the version of `seen`, or says something else in it.

    A store that came back from a backup gives versions a second time.  A write that asks for one of them goes through,
    whatever the lease says by now: that a shard which lives has renewed it, for example.
    """
    same = seen.metadata.namespace == found.metadata.namespace
    same = same and seen.metadata.resource_version == found.metadata.resource_version
    return same and (seen.metadata.uid, seen.spec) != (found.metadata.uid, found.spec)


def may_count_on(
    snapshot: RingSnapshot,
    shard: str,
    missing_since: Callable[[LeaseKey], float],
    proven_since: Callable[[float], float],
    now: float,
) -> bool:
    """Whether `shard` may count on a lease that is not there, or says that somebody else holds it, or nobody."""
    vanished = snapshot.vanished_named(shard)
    if presumed_held(snapshot, shard, proven_since, now):
        return True  # whatever another lease of that name says
    for key in lease_keys(snapshot, shard) or [("", shard)]:
        seen, missed = snapshot.leases.get(key), missing_since(key)
        if seen is None and not vanished and not missed:
            return True  # nobody has looked for it yet
        # One of which no Lease was ever seen waits as long: it may have had one since, of which the watch tells late.
        if now < shard_held_until(seen, vanished, missed, snapshot.leases.values(), proven_since):
            return True
    return False


def presumed_held(snapshot: RingSnapshot, shard: str, proven_since: Callable[[float], float], now: float) -> bool:
    """Whether a lease of that name vanished that counts as held, whatever others of the name say."""
    until = vanished_until(snapshot.vanished_named(shard), proven_since)
    return until is not None and now < until


def lease_keys(snapshot: RingSnapshot | None, shard: str) -> list[LeaseKey]:
    """The leases called `shard`, by (namespace, name)."""
    return [] if snapshot is None else [(each.lease.metadata.namespace, shard) for each in snapshot.leases_named(shard)]
