"""Own writes: what the reconciles of one controller have written, told to expectations and barrier.

Each write is noted as its owner's, for the cache that is to show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, metadata_of
from shardsdk.protocol.objects import GroupResource, ObjectMeta
from shardsdk.reconcile.barrier import Barrier
from shardsdk.reconcile.expectations import Expectations


class OwnWrites:
    """What is written for objects of the cache `main`, whose children are in `children`."""

    def __init__(
        self,
        main: Cache[Any],
        children: Mapping[GroupResource, Cache[Any]],
        expectations: Expectations,
        barrier: Barrier,
    ) -> None:
        self._main = main
        self._children = children
        self._expectations = expectations
        self._barrier = barrier

    def of(self, owner: Request, metadata: ObjectMeta) -> WritesOf:
        """Where one reconcile, of `owner`, notes its writes."""
        return WritesOf(self, owner, metadata.uid)

    def wrote(self, owner: Request, resource: GroupResource, written: Request, version: str) -> None:
        """`owner` is not reconciled again before its cache shows `written` at `version`."""
        cache = self._cache_of(owner, resource, written)
        if cache is not None:
            self._expectations.expect(owner, cache, written, version)

    def deleting(self, owner: Request, resource: GroupResource, deleted: Request) -> Callable[[], None]:
        """The same for a deletion, of what the cache shows now; once what is returned is called."""
        cache = self._cache_of(owner, resource, deleted)
        thing = None if cache is None else cache.peek(deleted)
        if cache is None or thing is None:
            return lambda: None
        return partial(self._expectations.expect_end, owner, cache, deleted, metadata_of(thing).uid)

    def unknown(self, owner: Request, uid: str) -> None:
        """A child of `owner` may have been created without our knowing."""
        known = self._main.metadata(owner)
        self._barrier.note_unanswered(owner, uid, there=known is not None and known.uid == uid)

    def _cache_of(self, owner: Request, resource: GroupResource, written: Request) -> Cache[Any] | None:
        """Which cache shows what was written for `owner`; `None`: none does."""
        is_owner = written == owner and resource == self._main.resource.group_resource
        return self._main if is_owner else self._children.get(resource)


class WritesOf:
    """What one reconcile writes; satisfies `ownapi.WriteRecorder`."""

    def __init__(self, writes: OwnWrites, owner: Request, uid: str) -> None:
        self._writes = writes
        self._owner = owner
        self._uid = uid

    def wrote(self, resource: GroupResource, request: Request, version: str) -> None:
        """The object is now at `version`."""
        self._writes.wrote(self._owner, resource, request, version)

    def deleting(self, resource: GroupResource, request: Request) -> Callable[[], None]:
        """The object as it is known is about to be deleted; call what is returned once it is."""
        return self._writes.deleting(self._owner, resource, request)

    def outcome_unknown(self) -> None:
        """A child may have been created without our knowing."""
        self._writes.unknown(self._owner, self._uid)
