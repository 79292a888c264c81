"""A ring at a glance: shards, objects, balance, and what is amiss; as text or as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sharder.core.conditions import ConditionReason
from sharder.core.membership import Membership
from sharder.core.ringspec import AssignBy, Role
from sharder.core.status import NOT_WORKED_ON
from sharder.kubectl.counting import Tally, Trouble
from sharder.kubectl.outcomes import Unread
from sharder.kubectl.shards import ShardStatus
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import GroupResource

#: Reasons of `Settled` that say no more than a count made just now does, or that the next resync ends.
_COUNTED: Final = (ConditionReason.IN_PLACE, ConditionReason.MOVING, ConditionReason.NOT_YET_KNOWN)


@dataclass(frozen=True, slots=True)
class ResourceCount:
    """Objects of one resource in a ring; None: not counted, because it could not be read or judged."""

    resource: GroupResource
    role: Role
    removed: bool
    by_shard: Mapping[str, int]
    draining: Mapping[str, int]
    unassigned: int | None
    stranded: int | None
    misplaced: int | None
    leaving: int | None
    unjudged: int
    examples: Mapping[Trouble, Sequence[str]]
    counted: bool = True

    @property
    def total(self) -> int:
        """Objects of the ring."""
        return sum(self.by_shard.values()) + (self.unassigned or 0)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the ring; `status` None is Unknown. `seconds`: since it last changed."""

    type: str
    status: bool | None
    reason: str
    message: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RangesView:
    """How a ring by ranges shares its space.

    `hash_by`: what of an object is hashed; `by_shard`: ranges of each shard that is named for any; `moving`: ranges not
    held by who is named for them (None: not known).
    """

    hash_by: str
    by_shard: Mapping[str, int]
    moving: int | None


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly main objects are spread over the available shards; 1.0 is the mean."""

    fullest: str
    emptiest: str
    fullest_share: float
    emptiest_share: float


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything that `status` shows of one ring.

    `read` False: the ring's object could not be read, only what carries its name, and nobody can tell whether the
    sharder is `up_to_date`.  `assign_by` None: nor how it assigns, as when its spec cannot be used.
    `shard_statuses` None: the leases could not be read; `membership` None: not all of
    them, so that nobody knows which shards there are.  `namespace`: of objects in
    namespaces only those of this one were counted.  `ranges` None: the ring assigns by labels.
    """

    name: str
    read: bool
    conditions: tuple[Condition, ...]
    up_to_date: bool | None
    problems: tuple[str, ...]
    scope: str
    shard_statuses: tuple[ShardStatus, ...] | None
    membership: Membership | None
    resources: tuple[ResourceCount, ...]
    unread: tuple[Unread, ...]
    namespace: str | None = None
    ranges: RangesView | None = None
    assign_by: AssignBy | None = AssignBy.LABELS

    @property
    def shard_label(self) -> str | None:
        """The label that says whose an object is; None: there is none, or nobody can tell."""
        return parse_ring_name(self.name).shard if self.assign_by is AssignBy.LABELS else None

    def condition(self, kind: str) -> Condition | None:
        """A condition by its type."""
        return next((each for each in self.conditions if each.type == kind), None)

    def count(self, trouble: Trouble) -> int | None:
        """How many objects are in this trouble; None: some resource was not counted."""
        counts = [count_of(each, trouble) for each in self.resources]
        return None if not self.complete or None in counts else sum(each or 0 for each in counts)

    def seen(self, trouble: Trouble) -> int:
        """How many objects were seen in this trouble, at least."""
        return sum(count_of(each, trouble) or 0 for each in self.resources)

    @property
    def complete(self) -> bool:
        """Whether everything was read that the numbers are made of."""
        return not self.problems and not self.unread and all(each.counted for each in self.resources)

    @property
    def settled(self) -> bool | None:
        """Whether every object is where it should be, as counted just now; None: not everything could be counted."""
        if any(self.seen(each) for each in Trouble) or self._has_abandoned:
            return False
        return True if self.complete and self.membership is not None else None

    @property
    def available(self) -> int:
        """How many shards are, as the ring's status counts them.

        Not those that get nothing, nor those whose Leases ran out, if the sharder says that it cannot take such over.
        """
        unused = self.membership.held - self.membership.available if self.membership is not None else frozenset[str]()
        there = (each for each in self.present or () if each.available and each.name not in unused)
        return sum(not (self._has_abandoned and each.ran_out) for each in there)

    @property
    def _has_abandoned(self) -> bool:
        """Whether shards are gone and nobody takes over what they have: by their Leases all is in its place."""
        found = self.condition("ShardsAvailable")
        return found is not None and self.up_to_date is True and found.reason in NOT_WORKED_ON

    @property
    def waits(self) -> Condition | None:
        """The sharder's own word, where it does not get settled before somebody has seen to something."""
        found = self.condition("Settled")
        return found if found is not None and found.reason not in _COUNTED else None

    @property
    def ready(self) -> bool | None:
        """The sharder's own word, about the present spec."""
        found = self.condition("Ready")
        return found.status if found is not None and self.up_to_date else None

    def has_left(self, shard_status: ShardStatus) -> bool:
        """Whether a shard is gone for good, with nothing left on it; its lease stays for a minute."""
        counts = (each.by_shard.get(shard_status.name, 0) for each in self.resources if each.counted)
        return shard_status.released and not any(counts)

    @property
    def present(self) -> tuple[ShardStatus, ...] | None:
        """The shards without those that have left; None: the leases could not be read."""
        if self.shard_statuses is None:
            return None
        return tuple(each for each in self.shard_statuses if not self.has_left(each))

    @property
    def wrong(self) -> bool:
        """Whether something needs somebody, or at least some time."""
        nobody = self.membership is not None and not self.membership.available
        unready = self.read and self.ready is not True
        return bool(self.problems) or unready or self.settled is False or nobody

    @property
    def unknown(self) -> bool:
        """Whether something could not be found out."""
        return self.settled is None or bool(self.unread)


def count_of(resource: ResourceCount, trouble: Trouble) -> int | None:
    """One number of a resource."""
    match trouble:
        case Trouble.UNASSIGNED:
            return resource.unassigned
        case Trouble.STRANDED:
            return resource.stranded
        case Trouble.MISPLACED:
            return resource.misplaced
        case Trouble.LEAVING:
            return resource.leaving
        case Trouble.DRAINING:
            return sum(resource.draining.values())


def count_resource(tally: Tally, *, judged: bool, overfull: bool) -> ResourceCount:
    """What a tally says; `judged`: the ring's shards were known."""
    uncounted = overfull and tally.subject.role is Role.CONTROLLED
    return ResourceCount(
        resource=tally.subject.resource.group_resource,
        role=tally.subject.role,
        removed=tally.removed,
        by_shard=dict(tally.by_shard),
        draining=dict(tally.draining),
        unassigned=tally.troubles[Trouble.UNASSIGNED],
        stranded=tally.troubles[Trouble.STRANDED] if judged else None,
        misplaced=tally.troubles[Trouble.MISPLACED] if judged and not uncounted else None,
        leaving=tally.troubles[Trouble.LEAVING],
        unjudged=tally.unjudged,
        examples={trouble: tuple(names) for trouble, names in tally.examples.items()},
    )


def uncounted_resource(resource: GroupResource, role: Role) -> ResourceCount:
    """A resource that could not be read."""
    return ResourceCount(resource, role, False, {}, {}, None, None, None, None, 0, {}, counted=False)


def read_conditions(status: Mapping[str, Any], seconds_since: Mapping[str, float]) -> tuple[Condition, ...]:
    """The conditions of a ring's status; malformed ones are passed over."""
    listed = status.get("conditions")
    return tuple(
        Condition(
            type=str(each.get("type")),
            status={"True": True, "False": False}.get(str(each.get("status"))),
            reason=str(each.get("reason") or ""),
            message=str(each.get("message") or ""),
            seconds=seconds_since.get(str(each.get("type"))),
        )
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, Mapping) and each.get("type")
    )


def balance_of(overview: Overview) -> Balance | None:
    """How evenly main objects are spread; None: nothing is spread, or not everything was counted."""
    loads = loads_of(overview.resources, overview.membership.available if overview.membership else ())
    total = sum(loads.values())
    if not loads or not total:
        return None
    mean = total / len(loads)
    fullest = max(sorted(loads), key=lambda name: loads[name])
    emptiest = min(sorted(loads), key=lambda name: loads[name])
    return Balance(fullest, emptiest, loads[fullest] / mean, loads[emptiest] / mean)


def loads_of(resources: Iterable[ResourceCount], shards: Iterable[str]) -> dict[str, int]:
    """Main objects of each shard."""
    mains = [each for each in resources if each.role is Role.MAIN]
    return {name: sum(each.by_shard.get(name, 0) for each in mains) for name in shards}


def unleased_shards(overview: Overview) -> tuple[str, ...]:
    """Shards that objects are labelled with and of which no lease was seen, in order of their names."""
    known = {shard_status.name for shard_status in overview.shard_statuses or ()}
    return tuple(sorted({name for each in overview.resources for name in each.by_shard} - known))
