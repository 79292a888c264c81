"""Objects as placement sees them: the few fields that a decision needs.

Refuses: to hold annotations, finalizers or managed fields; what is kept of an
object that is to move should cost little, of all others nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import msgspec

from sharder.core.keys import resource_key
from sharder.core.ringspec import LetGo, ResolvedMain, Role, Subject
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import Resource, SlimMeta, SlimObject


def slim(meta: SlimMeta, labels: RingLabels) -> SlimMeta:
    """Of an object's metadata what placement reads: the ring's labels, and what controls the object.

    How much it says besides is up to whoever makes it, a megabyte in labels and owner references alone.
    """
    worn = {label: value for label in (labels.shard, labels.drain) if (value := meta.label(label)) is not None}
    reference = meta.controller
    return SlimMeta(
        name=meta.name,
        namespace=sys.intern(meta.namespace),
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=worn or None,
        owner_references=[reference] if reference is not None and reference.names_an_object else None,
    )


#: Sets of labels that objects share: there are as many as there are shards.
MAX_SHARED: Final = 512


class Sharing:
    """Has objects say no more than placement reads, and share what many of them say: a namespace, labels.

    When a shard leaves, all of its objects are held until they have another, and each would bring its own copy of
    these: half of its memory.
    """

    def __init__(self, labels: RingLabels) -> None:
        self._of_ring = labels
        self._labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}

    @property
    def kept(self) -> int:
        """How many sets of labels it keeps to share."""
        return len(self._labels)

    def share(self, obj: SlimObject) -> SlimObject:
        """The same object; nobody may write into its labels."""
        meta = slim(obj.metadata, self._of_ring)
        if meta.labels:
            meta = msgspec.structs.replace(meta, labels=self._share_labels(meta.labels))
        return SlimObject(meta)

    def _share_labels(self, labels: dict[str, str]) -> dict[str, str]:
        said = tuple(labels.items())
        shared = self._labels.get(said)
        if shared is None:
            if len(self._labels) >= MAX_SHARED:
                self._labels.clear()
            shared = self._labels[said] = labels
        return shared


def newest_first(objects: Iterable[SlimObject]) -> list[SlimObject]:
    """Those that were written last first: among them is what was made for a shard that was dead already."""

    def version(obj: SlimObject) -> int:
        written = obj.metadata.resource_version
        return int(written) if written.isascii() and written.isdigit() else 0

    return sorted(objects, key=version, reverse=True)


class RingResource(msgspec.Struct, frozen=True, cache_hash=True):
    """A resource whose objects a ring places.

    `removed`: the ring lists it no longer; its objects are drained and released.
    `was_main`: it is controlled, and shards may have objects of it as main ones still; they are asked for those that
    are not with their owners.
    """

    subject: Subject
    removed: bool = False
    was_main: bool = False

    @property
    def role(self) -> Role:
        """As what its objects change hands: what is a main object to its shard is never taken from it."""
        return Role.MAIN if self.was_main else self.subject.role

    @property
    def let_go(self) -> LetGo:
        """It, once shards have let go of what they had of it before it was `removed`, or as it `was_main`."""
        main = self.subject.main.resource.group_resource
        return LetGo(self.subject.resource.group_resource, None if self.removed else main)

    def concerns(self, meta: SlimMeta) -> bool:
        """Whether the ring sees to an object of it that has a shard.

        A child that was orphaned keeps its label, and is nobody's business any more.
        """
        return self.removed or self.was_main or self.subject.key_of(meta) is not None

    @property
    def controls_others(self) -> bool:
        """Whether its objects move together with others that they control."""
        return bool(self.subject.main.controlled) and self.subject.resource == self.subject.main.resource

    @property
    def identity(self) -> tuple[Resource, Role, Resource, bool, bool]:
        """What stays the same while the rest of the ring is edited."""
        return self.subject.resource, self.subject.role, self.subject.main.resource, self.removed, self.was_main


def controls(main: ResolvedMain, owner: SlimMeta, child: RingResource, meta: SlimMeta) -> bool:
    """Whether `owner`, an object of `main`, controls this child.

    Its uid alone does not say so: an API server takes any in a reference, from whoever may write in some namespace.
    """
    reference = meta.controller
    if reference is None or reference.uid != owner.uid:
        return False
    return child.subject.key_of(meta) == resource_key(main.resource, owner.namespace, owner.name)


class ItemKey(msgspec.Struct, frozen=True):
    """What the placement queue holds: an object of one of the ring's resources (by number, see `RingScope`)."""

    resource: int
    namespace: str
    name: str
