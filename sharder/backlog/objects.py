"""Objects as placement sees them: the few fields that a decision needs.

Refuses: to hold annotations, finalizers or managed fields; what is kept of an
object that is to move should cost little, of all others nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharder.core.ringspec import Role, Subject
from shardsdk.protocol.objects import PartialObject, Resource, SlimMeta, SlimObject


def slim(obj: PartialObject) -> SlimObject:
    """The same object with no more than placement needs."""
    meta = obj.metadata
    return SlimObject(
        SlimMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            labels=meta.labels,
            owner_references=meta.owner_references,
        )
    )


def newest_first(objects: list[SlimObject]) -> list[SlimObject]:
    """Those that were written last first: among them is what was made for a shard that was dead already."""

    def version(obj: SlimObject) -> int:
        written = obj.metadata.resource_version
        return int(written) if written.isascii() and written.isdigit() else 0

    return sorted(objects, key=version, reverse=True)


@dataclass(frozen=True, slots=True)
class RingResource:
    """A resource whose objects a ring places.

    `removed`: the ring lists it no longer; its objects are drained and released.
    """

    subject: Subject
    removed: bool = False

    @property
    def controls_others(self) -> bool:
        """Whether its objects move together with others that they control."""
        return bool(self.subject.main.controlled) and self.subject.resource == self.subject.main.resource

    @property
    def identity(self) -> tuple[Resource, Role, Resource, bool]:
        """What stays the same while the rest of the ring is edited."""
        return self.subject.resource, self.subject.role, self.subject.main.resource, self.removed


@dataclass(frozen=True, slots=True)
class ItemKey:
    """What the placement queue holds: an object of one of the ring's resources (by number, see `RingScope`)."""

    resource: int
    namespace: str
    name: str
