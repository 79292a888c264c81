"""Who is in a ring right now, as an immutable snapshot.

Does: derive from the leases alone which shards are available, so that every
replica agrees without comparing clocks.  Refuses: to place objects on a name
that two leases claim, or that cannot be a label value, or on a shard that may not see them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from enum import Enum

from sharder.core.hashring import HashRing
from shardsdk.protocol.labels import is_label_name
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import GroupResource

_EMPTY = HashRing(())


class NotNow(Enum):
    """Why nothing is drained toward an available shard; the value says it in words."""

    LEAVING = "is about to leave"
    LEFT = "has left its lease to its next process"
    UNRENEWED = "has not renewed a lease that was out of date when it was first seen"
    LATE = "does not renew its lease at present"
    UNSTEADY = "crashed a moment ago"


@dataclass(frozen=True, slots=True)
class Membership:
    """A ring's shards.

    `available`: held by exactly one shard; those that are not about to leave make the hash ring.
    `ready`: those of them that objects may be drained toward.
    `ambiguous`: names held in two namespaces; what they have stays where it is.
    `unusable`: held, but the name cannot be a label value (over 63 characters).
    `mixed`, `overlong`: held, but the Lease carries the label of another library as well, or asks for more time than a
    shard may; what they have stays where it is, too.
    `leaving`: available ones that say that they are about to leave; `left`: those of which no process is at work, since
    it has left their lease to the next of their name.
    `silent`: these, and those that have missed renewals; what nobody has goes past them to others that stay, if there
    are any, by the ring of those (`lively`).  `unsteady`: those that have come back from a crash a moment ago.
    `unrenewed`: those whose Lease was out of date when it was first seen, and has not been renewed since; they are
    silent by what is observed alone, as any, since clocks that differ are to place nothing elsewhere.
    `as_main`: which shard reconciles which resource as a main one, as far as leases that are held say.
    """

    available: frozenset[str] = frozenset()
    ready: frozenset[str] = frozenset()
    ambiguous: frozenset[str] = frozenset()
    unusable: frozenset[str] = frozenset()
    mixed: frozenset[str] = frozenset()
    overlong: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    unsteady: frozenset[str] = frozenset()
    unrenewed: frozenset[str] = frozenset()
    as_main: frozenset[tuple[GroupResource, str]] = frozenset()
    ring: HashRing = field(default=_EMPTY, compare=False)
    lively: HashRing = field(default=_EMPTY, compare=False)

    def shards_with_main(self, resource: GroupResource) -> tuple[str, ...]:
        """The shards that say that they reconcile `resource` as a main one."""
        return tuple(sorted({shard for each, shard in self.as_main if each == resource}))

    def shards_without_main(self, resource: GroupResource) -> tuple[str, ...]:
        """Available shards that say what they reconcile as main, but not `resource`; one that says nothing may."""
        telling = self.available & {shard for _, shard in self.as_main}
        return tuple(sorted(telling.difference(self.shards_with_main(resource))))

    @property
    def staying(self) -> frozenset[str]:
        """Available shards that are given something: those that are not about to leave, or all if all are."""
        return self.available - self.leaving or self.available

    @property
    def held(self) -> frozenset[str]:
        """Names of which some lease is held, also of shards that get nothing."""
        return self.available | self.ambiguous | self.unusable | self.unfit

    @property
    def unfit(self) -> frozenset[str]:
        """Shards that get nothing because of what their Lease says."""
        return self.mixed | self.overlong

    @property
    def untouched(self) -> frozenset[str]:
        """Names whose objects stay where they are, while they get nothing."""
        return self.ambiguous | self.unfit

    def stand_in(self, key: str) -> str | None:
        """Who gets `key` if nobody has it while its shard is silent: whoever will when that is taken over."""
        return self.lively.owner(key)

    def may_drain_to(self, shard: str) -> bool:
        """Whether what another shard has may be drained for this one."""
        return self.why_not_drain_to(shard) is None

    def why_not_drain_to(self, shard: str) -> NotNow | None:
        """What keeps it from that; `None`: nothing."""
        if shard in self.leaving:
            return NotNow.LEAVING
        if shard in self.left:
            return NotNow.LEFT
        if shard in self.unrenewed:
            return NotNow.UNRENEWED
        if shard in self.silent or shard not in self.ready:
            return NotNow.LATE
        return NotNow.UNSTEADY if shard in self.unsteady else None

    def target(self, key: str) -> str | None:
        """The ring's answer for `key`; `None` when no shard is available."""
        return self.ring.owner(key)


def counts_the_same(one: Lease, other: Lease) -> bool:
    """Whether two versions of a lease make the same of a ring's membership."""
    return _counted(one) == _counted(other)


def _counted(lease: Lease) -> tuple[object, ...]:
    return (
        lease.held_by_shard, lease.mixed, lease.overlong, lease.main_resources, lease.leaving, lease.left,
    )  # fmt: skip


def build(
    leases: Iterable[Lease],
    ready: Container[str],
    previous: Membership | None = None,
    *,
    silent: frozenset[str] = frozenset(),
    unsteady: frozenset[str] = frozenset(),
    unrenewed: frozenset[str] = frozenset(),
) -> Membership:
    """The membership that one ring's `leases` tell; `ready` names the shards whose lease has not expired.

    `silent` are those that have missed renewals.  When all available shards are silent, none is: there is nobody else.

    The hash ring of `previous` is used again when its names are the same:
    building one takes milliseconds, renewals come all the time.
    """
    holding = [lease for lease in leases if lease.held_by_shard]
    held = Counter(lease.metadata.name for lease in holding)
    unusable = frozenset(name for name in held if not is_label_name(name))
    ambiguous = frozenset(name for name, count in held.items() if count > 1) - unusable
    mixed = frozenset(lease.metadata.name for lease in holding if lease.mixed) - unusable - ambiguous
    overlong = frozenset(lease.metadata.name for lease in holding if lease.overlong) - unusable - ambiguous
    available = frozenset(held) - ambiguous - unusable - mixed - overlong
    leaving = available & {lease.metadata.name for lease in holding if lease.leaving}
    left = available & {lease.metadata.name for lease in holding if lease.left}
    silent = silent | left
    silent = frozenset() if silent >= available else silent & available
    staying = available - leaving or available
    ring = previous.ring if previous is not None and previous.staying == staying else HashRing(staying)
    if previous is not None and (previous.staying, previous.silent) == (staying, silent):
        lively = previous.lively
    else:
        lively = HashRing(staying - silent) if silent & staying else ring
    return Membership(
        available=available,
        ready=frozenset(name for name in available if name in ready),
        ambiguous=ambiguous,
        unusable=unusable,
        mixed=mixed,
        overlong=overlong,
        leaving=leaving,
        left=left,
        silent=silent,
        unsteady=unsteady & available,
        unrenewed=unrenewed & available,
        as_main=frozenset((each, lease.metadata.name) for lease in holding for each in lease.main_resources),
        ring=ring,
        lively=lively,
    )
