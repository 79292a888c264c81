"""What a ring waits for, summed up for people.

Refuses: to change anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sharder.backlog.informers import Kind
from sharder.placement.placement import Placement
from shardsdk.errors import ShardingError
from shardsdk.protocol.objects import GroupResource


@dataclass(frozen=True, slots=True)
class OldestDrain:
    """The drain that has waited longest for its acknowledgement."""

    resource: GroupResource
    namespace: str
    name: str
    shard: str
    seconds: float
    retired: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ring waits for; `counts` per kind of selection and resource.

    `leaving`: objects of resources that the ring lists no longer and that have its
    labels still; -1 while they have not been counted.
    """

    settled: bool = False
    counts: dict[tuple[Kind, GroupResource], int] = field(default_factory=dict)
    oldest_drain: OldestDrain | None = None
    failures: tuple[tuple[GroupResource, Kind, ShardingError], ...] = ()
    retired_clean: frozenset[GroupResource] = frozenset()
    leaving: dict[GroupResource, int] = field(default_factory=dict)

    def count(self, kind: Kind) -> int:
        """Objects of one kind over all resources."""
        return sum(number for (each, _), number in self.counts.items() if each is kind)


def summarize(placement: Placement, now: float) -> Summary:
    """What the ring waits for."""
    placed, informers, resync = placement.scope.placed, placement.backlog.informers, placement.resync
    counts = {
        (kind, placed[number].subject.resource.group_resource): len(informer)
        for kind in Kind
        for number, informer in informers.of(kind)
    }
    failures = tuple((each.subject.resource.group_resource, kind, error) for each, kind, error in informers.failures())
    clean = frozenset(each.subject.resource.group_resource for each in resync.retired_clean)
    leaving = {
        each.subject.resource.group_resource: resync.retired_left.get(each, -1)
        for each in placed.values()
        if each.retired and each not in resync.retired_clean
    }
    return Summary(resync.settled, counts, _oldest_drain(placement, now), failures, clean, leaving)


def _oldest_drain(placement: Placement, now: float) -> OldestDrain | None:
    scope, backlog = placement.scope, placement.backlog
    for key, since in backlog.drains_since.items():
        informer = backlog.informers.get(key.resource, Kind.DRAINING)
        obj = informer.get(key.namespace, key.name) if informer is not None else None
        if obj is None:
            continue
        placed, shard = scope.placed[key.resource], obj.metadata.label(scope.labels.shard) or ""
        resource = placed.subject.resource.group_resource
        return OldestDrain(resource, key.namespace, key.name, shard, now - since, placed.retired)
    return None
