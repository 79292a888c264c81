"""What is a ring's: its resources, the keys of their objects, its namespaces, its shards.

Refuses: to know any object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sharder.backlog.objects import RingResource
from sharder.cache.namespaces import Namespaces
from sharder.core.mains import Mains
from sharder.core.membership import Membership
from sharder.core.ringspec import ResolvedRing, Role
from shardsdk.protocol.objects import GroupResource, SlimMeta


@dataclass(slots=True)
class Members:
    """The ring's shards: `membership` is what objects are placed by, `newest` what is known.

    They differ only until what is newest has been adopted: the informers that depend on it are
    begun anew first, then objects are enqueued.  `mains`: what shards reconcile as main.
    """

    membership: Membership = field(default_factory=Membership)
    newest: Membership = field(default_factory=Membership)
    mains: Mains = field(default_factory=Mains)

    def learn(self, newest: Membership, now: float) -> None:
        """This is what is known at `now` (monotonic)."""
        self.newest = newest
        self.mains.see(newest, now)

    @property
    def adopted(self) -> bool:
        """Whether objects are placed by what is known."""
        return self.membership == self.newest


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be placed.

    The ring as it is resolved, and what it listed once and whose objects may be labelled still.  `were_main`: what it
    lists as controlled, and whose objects shards may have as main ones still.
    """

    ring: ResolvedRing
    removed: tuple[RingResource, ...]
    were_main: frozenset[GroupResource] = frozenset()


class RingScope:
    """One ring as it is resolved, with the resources that it lists no longer and whose objects are labelled still.

    `resources` has them by number; one that `before` had as well keeps its number.
    """

    def __init__(
        self,
        ring: ResolvedRing,
        removed: tuple[RingResource, ...],
        namespaces: Namespaces,
        before: RingScope | None = None,
        *,
        were_main: frozenset[GroupResource] = frozenset(),
    ) -> None:
        self.ring = ring
        self.removed = removed
        self.name = ring.spec.name
        self.labels = ring.spec.labels
        self._namespaces = namespaces
        known: dict[int, RingResource] = before.resources if before is not None else {}
        listed = (
            RingResource(each, was_main=each.role is Role.CONTROLLED and each.resource.group_resource in were_main)
            for each in ring.subjects()
        )
        self.resources: dict[int, RingResource] = _number((*listed, *removed), known)

    def covers(self, namespace: str, *, unseen: bool = False) -> bool:
        """Whether objects of `namespace` (empty: cluster-scoped) are in the ring's scope; `unseen`: nobody knows."""
        return self._namespaces.covers(self.ring, namespace, unseen=unseen)

    def namespaces(self) -> tuple[str, ...] | None:
        """The namespaces in the ring's scope, as far as they have been seen; `None`: all but those excluded by name."""
        return self._namespaces.in_scope(self.ring)

    def includes(self, resource: RingResource, meta: SlimMeta) -> bool:
        """Whether an object is in the ring's scope.

        One that has a shard is while nobody knows its namespace; and whose owner has no namespace is wherever it is,
        since that one stays, and whoever works on it has to see it.
        """
        labelled = meta.label(self.labels.shard) is not None
        return resource.subject.owners_stay or self.covers(meta.namespace, unseen=labelled)

    def is_ours(self, resource: RingResource, meta: SlimMeta) -> bool:
        """Whether the ring has a key for the object, and has it in scope."""
        return self.includes(resource, meta) and resource.subject.key_of(meta) is not None

    def keeps_owners(self, main: RingResource) -> bool:
        """Whether owners stay where they are, since of what they control some is about to join them."""
        return main.controls_others and any(
            each.was_main and each.subject.main == main.subject.main for each in self.resources.values()
        )

    @property
    def owners_leave(self) -> bool:
        """Whether objects leave, with their resource, that may control others."""
        return any(each.removed and each.subject.role is Role.MAIN for each in self.resources.values())


def _number(resources: tuple[RingResource, ...], before: Mapping[int, RingResource]) -> dict[int, RingResource]:
    known = {resource.identity: number for number, resource in before.items()}
    free = max(before, default=-1) + 1
    numbered: dict[int, RingResource] = {}
    for resource in resources:
        number = known.get(resource.identity)
        if number is None:
            number, free = free, free + 1
        numbered[number] = resource
    return numbered
