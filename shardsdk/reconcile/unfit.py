"""What a cache cannot show, and what becomes of the owners of such children.

A child that does not fit its model (or at which an index or a transform raises)
is there all the same.  Whoever reconciled its owner would not see it and make it
a second time, so its owner is held back: that one, and nobody else.

Does: say which owners are held back, and tell people, once for each version of
the child.  Refuses: to hold back an owner that is being deleted, which makes no
children and may have to clean up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, is_controlled
from shardsdk.events.recorder import EventRecorder, EventType, Regarding
from shardsdk.kube.api import Unfit
from shardsdk.kube.mirror import Delta, EventKind
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource

log: Final = logger_of(__name__)

#: Reasons of Events: about a main object, and about the owner of a child.
UNREADABLE: Final = "ObjectUnreadable"
CHILD_UNREADABLE: Final = "ChildUnreadable"


def as_delta(unfit: Unfit) -> Delta[PartialObject]:
    """The change by what is known of the object, for those who look at metadata alone."""
    kind = EventKind.DELETED if unfit.gone else EventKind.MODIFIED
    return Delta(kind, PartialObject(unfit.metadata), None, initial=False)


class UnfitObjects:
    """What of one controller's objects cannot be shown: `main` ones, and children in the caches `children`."""

    def __init__(
        self, controller: str, main: Resource, children: Sequence[Cache[Any]], recorder: EventRecorder | None
    ) -> None:
        self._controller = controller
        self._main = main
        self._children = children
        self._recorder = recorder
        #: Owners held back, each with the versions of the children that it is held back for.
        self._held: dict[Request, list[str]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def of(self, metadata: ObjectMeta) -> list[tuple[Cache[Any], Unfit]]:
        """The children that cannot be shown, each with its cache; of one that is being deleted they do not count."""
        if metadata.deletion_timestamp is not None:
            return []
        named = [(cache, each) for cache in self._children for each in cache.unfit_children(metadata.uid).values()]
        who = Request(metadata.namespace, metadata.name), metadata.uid
        return [pair for pair in named if is_controlled(PartialObject(pair[1].metadata), self._main, *who)]

    def hold_back(self, owner: Request, metadata: ObjectMeta) -> None:
        """`owner` is not reconciled for them: tell people, once for what they are now."""
        found = self.of(metadata)
        versions = [each.metadata.resource_version for _, each in found]
        if found and self._held.get(owner) != versions:
            self._held[owner] = versions
            self._tell_owner(metadata, *found[0], more=len(found) - 1)

    def forget(self, owner: Request) -> None:
        """`owner` is gone, or may be reconciled."""
        self._held.pop(owner, None)

    def tell(self, unfit: Unfit) -> None:
        """Tell people that a main object is not reconciled."""
        self._event(
            unfit.metadata,
            UNREADABLE,
            f"the object is not reconciled by controller {self._controller!r}, which cannot read it: {unfit.error}",
        )

    def _tell_owner(self, owner: ObjectMeta, cache: Cache[Any], unfit: Unfit, *, more: int) -> None:
        child = unfit.metadata
        log.warning(
            "Object held back: a child of its cannot be read",
            extra={
                "controller": self._controller,
                "namespace": owner.namespace,
                "object": owner.name,
                "resource": str(cache.resource.group_resource),
                "child": child.name,
                "more": more,
                "error": unfit.error,
            },
        )
        others = f" and {more} more" if more else ""
        self._event(
            owner,
            CHILD_UNREADABLE,
            f"the object is not reconciled by controller {self._controller!r}, which cannot read {cache.resource.kind}"
            f" {child.name!r}{others}, a child of its, and might make it a second time: {unfit.error}",
        )

    def _event(self, about: ObjectMeta, reason: str, message: str) -> None:
        if self._recorder is not None:
            self._recorder.event(Regarding.of(self._main, about), EventType.WARNING, reason, message)
