"""Own writes: what the reconciles of one controller have written, told to expectations and barrier.

Each write is noted as its owner's, for the cache that is to show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, metadata_of
from shardsdk.protocol.objects import GroupResource
from shardsdk.reconcile.barrier import Barrier
from shardsdk.reconcile.expectations import Expectations


class OwnWrites:
    """What one reconcile, of `owner`, writes: an object of the cache `main`, whose children are in `children`.

    Satisfies `ownapi.WriteRecorder`.
    """

    def __init__(
        self,
        main: Cache[Any],
        children: Mapping[GroupResource, Cache[Any]],
        expectations: Expectations,
        barrier: Barrier,
        owner: Request,
        uid: str,
    ) -> None:
        self._main = main
        self._children = children
        self._expectations = expectations
        self._barrier = barrier
        self._owner = owner
        self._uid = uid
        #: The versions that it has made.
        self.versions: list[str] = []

    def wrote(self, resource: GroupResource, request: Request, version: str) -> None:
        """The owner is not reconciled again before its cache shows the object at `version`."""
        self.versions.append(version)
        cache = self._cache_of(resource, request)
        if cache is not None:
            self._expectations.expect(self._owner, cache, request, version)

    def deleting(self, resource: GroupResource, request: Request) -> Callable[[], None]:
        """The same for a deletion, of what the cache shows now; once what is returned is called."""
        cache = self._cache_of(resource, request)
        thing = None if cache is None else cache.peek(request)
        if cache is None or thing is None:
            return lambda: None
        return partial(self._expectations.expect_end, self._owner, cache, request, metadata_of(thing).uid)

    def outcome_unknown(self) -> None:
        """A child may have been created without our knowing."""
        known = self._main.metadata(self._owner)
        self._barrier.note_unanswered(self._owner, self._uid, there=known is not None and known.uid == self._uid)

    def _cache_of(self, resource: GroupResource, written: Request) -> Cache[Any] | None:
        """Which cache shows what was written; `None`: none does."""
        is_owner = written == self._owner and resource == self._main.resource.group_resource
        return self._main if is_owner else self._children.get(resource)
