"""What the sharder may write into a ring's RingAssignment next: revocations at once, grants of what is free.

A range changes hands in two writes.  The first names nobody for it; its shard sees
that, ends what it does there and takes the range off what its lease holds.  The
second names the next shard, and only what no other shard holds is granted.

Guarantees (tests/properties/test_ranges_steps.py): nothing is granted that was not
nobody's in the version that is written against, nor anything that another shard
held when the leases were read *after* that version; a shard keeps what it should
have, so nothing changes hands without need; of what is wanted nothing is forgotten.

Does not guarantee that the leases are still so when the write arrives: whoever holds
more by then does so by an assignment that is newer, and the write's
resourceVersion is refused.  Where somebody writes assignments by hand, the shards' look at
each other's leases holds alone (shardsdk, "Take").
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from sharder.core.owners import Claims
from shardsdk.errors import ConfigurationError
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    HELD_RANGES_ANNOTATION,
    NOWHERE,
    HashBy,
    HashRanges,
    Named,
)


def holdings(leases: Iterable[Lease]) -> dict[str, HashRanges]:
    """What each shard that holds its lease may be working on; two leases of one name hold together."""
    held: dict[str, HashRanges] = {}
    for lease in leases:
        if lease.held_by_shard:
            name = lease.metadata.name
            held[name] = held.get(name, NOWHERE) | (lease.held_ranges or NOWHERE)
    return held


def unreadable(leases: Iterable[Lease]) -> frozenset[str]:
    """The shards whose lease says what makes no sense of that, so that they count as holding everything."""
    return frozenset(
        lease.metadata.name
        for lease in leases
        if lease.held_by_shard
        and lease.held_ranges == EVERYWHERE
        and not _is_readable((lease.metadata.annotations or {}).get(HELD_RANGES_ANNOTATION, ""))
    )


def _is_readable(said: str) -> bool:
    """Whether it says so itself: by `parse_held` what makes no sense holds everything as well."""
    try:
        HashRanges.parse(said.partition("@")[0])
    except ConfigurationError:
        return False
    return True


def homes_for(said: Mapping[str, str], there: Mapping[str, Collection[str]], lasting: Container[str]) -> dict[str, str]:
    """By the Lease in which namespace each shard may be named; of whom that cannot be told, nobody is.

    `said` is by which it was named before (empty: unknown), `there` where each shard holds a Lease, and who is
    `lasting` may still count on one that is not there, which may be unknown, too.  Two of one name are two shards: who
    was named first stays so, and the other is named for nothing, until nothing can be left of the first.
    """
    homes: dict[str, str] = {}
    for shard in {**said, **there}:
        before, now = said.get(shard, ""), there.get(shard, ())
        if before and (before in now or not now or shard in lasting):
            homes[shard] = before
        elif len(now) == 1 and shard not in lasting:
            homes[shard] = next(iter(now))
    return homes


def next_named(named: Named, wanted: Named, held: Mapping[str, HashRanges]) -> Named:
    """What to write against the version that said `named`, so that it becomes `wanted`; `named` itself: nothing yet.

    `held` was read after that version, live: of every shard of the ring, those whose lease
    vanished lately among them.
    """
    free = named.nobodys
    claims = Claims(held)
    shards: dict[str, HashRanges] = {}
    for shard in {**named.shards, **wanted.shards}:
        target = wanted.of(shard)
        ranges = (named.of(shard) & target) | claims.without_others(shard, target & free)
        if ranges:
            shards[shard] = ranges
    return Named(named.by, shards)


def revoked(named: Named, following: Named) -> HashRanges:
    """What some shard has to let go that has it by `named`."""
    return HashRanges.union(ranges - following.of(shard) for shard, ranges in named.shards.items())


def granted(named: Named, following: Named) -> HashRanges:
    """What some shard may take that nobody had by `named`."""
    return HashRanges.union(ranges - named.of(shard) for shard, ranges in following.shards.items())


def rebuilt(by: HashBy, held: Mapping[str, HashRanges], presumed: Container[str] = ()) -> Named:
    """An assignment in place of one that is gone or makes no sense: each shard has what it alone holds.

    Nothing moves by it.  What two of them claim to hold is nobody's until one has let go.
    Of those `presumed` nobody knows what they hold; it is nothing that a lease says another
    holds, since that was not granted before they had let it go.
    """
    claims = Claims(held)
    said = Claims({shard: ranges for shard, ranges in held.items() if shard not in presumed})
    shards: dict[str, HashRanges] = {}
    for shard, ranges in held.items():
        alone = (claims if shard in presumed else said).without_others(shard, ranges)
        if alone:
            shards[shard] = alone
    return Named(by, shards)
