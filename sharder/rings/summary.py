"""What a ring waits for, summed up for people.

Refuses: to change anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sharder.backlog.informers import Pending
from sharder.placement.placement import Placement
from shardsdk.errors import Forbidden, NotFound, ShardingError
from shardsdk.protocol.objects import GroupResource


@dataclass(frozen=True, slots=True)
class OldestDrain:
    """The drain that has waited longest for its acknowledgement."""

    resource: GroupResource
    namespace: str
    name: str
    shard: str
    seconds: float
    removed: bool = False

    def __str__(self) -> str:
        return f"{self.resource} {self.namespace}/{self.name} on shard {self.shard}"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ring waits for; `counts` per kind of informer and resource.

    `leaving`: objects of resources that the ring lists no longer and that have its
    labels still; -1 while they have not been counted.
    """

    settled: bool = False
    counts: dict[tuple[Pending, GroupResource], int] = field(default_factory=dict)
    oldest_drain: OldestDrain | None = None
    failures: tuple[tuple[GroupResource, Pending, ShardingError], ...] = ()
    removed_clean: frozenset[GroupResource] = frozenset()
    leaving: dict[GroupResource, int] = field(default_factory=dict)

    def count(self, kind: Pending) -> int:
        """Objects of one kind over all resources."""
        return sum(number for (each, _), number in self.counts.items() if each is kind)

    def stuck_drain(self, alarm_seconds: float) -> OldestDrain | None:
        """The oldest drain, if it has waited for too long."""
        oldest = self.oldest_drain
        return oldest if oldest is not None and oldest.seconds >= alarm_seconds else None

    @property
    def forbidden(self) -> bool:
        """Whether an informer lacks a right."""
        return any(isinstance(error, Forbidden) for _, _, error in self.failures)

    @property
    def not_served(self) -> bool:
        """Whether a type that was served once is so no longer, or in another version."""
        return any(isinstance(error, NotFound) for _, _, error in self.failures)

    def outline(self, alarm_seconds: float) -> tuple[Any, ...]:
        """What the ring's status is made from: with the same outline it says the same."""
        stuck = self.stuck_drain(alarm_seconds)
        failures = tuple((resource, kind, type(error)) for resource, kind, error in self.failures)
        of_drain = (stuck.namespace, stuck.name) if stuck is not None else None
        return self.settled, self.counts, of_drain, failures, self.removed_clean, self.leaving


def summarize(placement: Placement, now: float) -> Summary:
    """What the ring waits for."""
    placed, informers, resync = placement.scope.placed, placement.backlog.informers, placement.resync
    counts = {
        (kind, placed[number].subject.resource.group_resource): len(informer)
        for kind in Pending
        for number, informer in informers.of(kind)
    }
    failures = tuple((each.subject.resource.group_resource, kind, error) for each, kind, error in informers.failures())
    clean = frozenset(each.subject.resource.group_resource for each in resync.removed_clean)
    leaving = {
        each.subject.resource.group_resource: resync.removed_left.get(each, -1)
        for each in placed.values()
        if each.removed and each not in resync.removed_clean
    }
    return Summary(resync.settled, counts, _oldest_drain(placement, now), failures, clean, leaving)


def _oldest_drain(placement: Placement, now: float) -> OldestDrain | None:
    scope, backlog = placement.scope, placement.backlog
    for key, since in backlog.drains_since.items():
        informer = backlog.informers.get(key.resource, Pending.DRAINING)
        obj = informer.get(key.namespace, key.name) if informer is not None else None
        if obj is None:
            continue
        placed, shard = scope.placed[key.resource], obj.metadata.label(scope.labels.shard) or ""
        resource = placed.subject.resource.group_resource
        return OldestDrain(resource, key.namespace, key.name, shard, now - since, placed.removed)
    return None
