"""What is known of one lease, put together as the decision about it wants it.

Does: say until when a lease that nobody holds counts as held, and whether a read
shows a lease that the cache does not have.  Refuses: to decide, and to remember.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sharder.cache.rings import RingEntry, SeenLease, hold_of
from sharder.core.shards import LeaseFacts, ShardState
from sharder.core.takeover import TakeoverFacts, needs_no_look
from sharder.takeover.lease_client import Record, usable_seconds
from shardsdk.errors import ConfigurationError
from shardsdk.protocol.labels import LEASE_RING_LABEL, LEASE_STATE_LABEL, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease


def takeover_facts(
    entry: RingEntry,
    shard: str,
    seen: SeenLease | None,
    judged: tuple[LeaseFacts, ShardState] | None,
    record: Record,
    empty: bool | None,
    ready: frozenset[str],
    proven_since: Callable[[float], float],
) -> TakeoverFacts:
    """The facts about the lease `seen` of `shard` (`None`: there is no lease of that name).

    `empty`: no object carries the shard's name (`None`: not known yet).  `ready`: which
    of the ring's shards are.  `proven_since(duration)`: since when time counts
    against a lease of that duration.
    """
    lease, state = judged if judged is not None else (None, None)
    return TakeoverFacts(
        lease=lease,
        state=state,
        presumed_until=presumed_until(entry, shard, seen, record.missing_since, proven_since),
        hold_until=record.hold.until if record.held else None,
        hold_seconds=usable_seconds(record.hold_length),
        ready_elsewhere=bool(ready - {shard}),
        available_elsewhere=bool(entry.membership.available - {shard}),
        lives_elsewhere=lives_elsewhere(entry, shard),
        objects_left=None if empty is None else not empty,
        last_move_at=record.last_move_at,
        progress_at=record.progress_at,
        barred_until=record.barred_until,
    )


def only_renewed(lease: Lease, state: ShardState, record: Record, recent: float) -> bool:
    """Whether a shard just goes on holding `lease`, so that it needs no look of its own.

    `recent`: since when our own writes may be missing in what is seen.
    """
    shown, may_lag = lease.metadata.label(LEASE_STATE_LABEL), record.wrote_at >= recent
    return needs_no_look(shown, state, held=record.held, may_lag=may_lag, looks_at=record.looks_at)


def lives_elsewhere(entry: RingEntry, shard: str) -> bool:
    """Whether a shard holds some lease of this name: what carries the name belongs to that one."""
    return shard in entry.membership.available or shard in entry.membership.ambiguous


def unknown_lease(entry: RingEntry, shard: str, found: Iterable[Lease]) -> str | None:
    """A lease of the ring's shard `shard` that is among all those `found` of that name, and not in the cache.

    Raises: ConfigurationError when a Lease that is no shard's of this ring has the name, and there is none that is.
    """
    known, others = [], []
    for lease in found:
        if (lease.metadata.namespace, shard) in entry.leases:
            known.append(lease)
        elif lease.ring == entry.name:
            return f"{lease.metadata.namespace}/{shard}"
        else:
            others.append(lease.metadata.namespace)
    if not known and (taken := set(others) & {namespace for namespace, _ in entry.leases}):
        raise ConfigurationError(
            f"objects carry the name of shard {shard}, and the Lease {min(taken)}/{shard} is no shard's of ring"
            f" {entry.name}, so that it cannot be acquired to move them; delete that Lease, or give it the label"
            f" {LEASE_RING_LABEL}={entry.name} if a shard has lost it"
        )
    return None


def presumed_until(
    entry: RingEntry,
    shard: str,
    seen: SeenLease | None,
    missing_since: float,
    proven_since: Callable[[float], float],
) -> float:
    """Until when a lease that is not held by its shard, or not there, counts as held (0: it is free)."""
    vanished = vanished_until(entry, shard, proven_since)
    if seen is not None:
        if seen.lease.holder in (shard, SHARDER_HOLDER):
            return 0.0
        # One that we made in another namespace, and gave back, says nothing of the shard's own.
        return max(_ends(*hold_of(seen), proven_since), vanished or 0.0)
    if vanished is not None:
        return vanished
    return _ends(missing_since, entry.longest_duration, proven_since)


def vanished_until(entry: RingEntry, shard: str, proven_since: Callable[[float], float]) -> float | None:
    """Until when leases of that name count as held that are not there any more; `None`: none is known."""
    ends = [
        _ends(gone.held_from, gone.held_seconds, proven_since) for gone in entry.vanished.values() if gone.name == shard
    ]
    return max(ends, default=None)


def missed(entry: RingEntry, shard: str) -> bool:
    """Whether nothing is known of a lease that is not there: nobody here has seen it go."""
    return not any(gone.name == shard for gone in entry.vanished.values())


def presumed_held(entry: RingEntry, shard: str, proven_since: Callable[[float], float], now: float) -> bool:
    """Whether a lease of that name vanished that counts as held, whatever others of the name say."""
    until = vanished_until(entry, shard, proven_since)
    return until is not None and now < until


def _ends(begins: float, seconds: float, proven_since: Callable[[float], float]) -> float:
    # Time that no commit proves lets nothing run out.
    return max(begins, proven_since(seconds)) + seconds if seconds else 0.0
