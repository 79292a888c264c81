"""Label patches that the API server refuses for good: admission policies, webhooks, validation, rights, sizes.

Does: collect them and make one piece of news of them from time to time, with
what people can do.  Refuses: to retry (the watches bring the object back, and the
backlog ever less often), and to tell of each of ten thousand objects that one
policy refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakSet

from sharder.backlog.objects import RingResource
from sharder.core.summary import Refused
from shardsdk.errors import BadRequest, Forbidden, Invalid, MethodNotAllowed, NotServed, ShardingError
from shardsdk.kube.pace import AtMostEvery
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import GroupResource, SlimMeta

#: Answers that the same patch will get again until somebody changes something, or serves the type again.
REFUSING: Final = (Invalid, Forbidden, BadRequest, MethodNotAllowed, NotServed)
#: Between two pieces of news about one ring.
TELL_SECONDS: Final = 60.0
#: Objects counted at most for one piece of news.
MAX_COUNTED: Final = 10_000
#: An object whose patch was refused so long ago, and no other since, is not waited for: what is refused comes again
#: within a minute or so, by the backlog or by the next resync.
LATELY_SECONDS: Final = 180.0


class Refusals:
    """What was refused of one ring's objects since it was last told, and not taken since."""

    def __init__(self, labels: RingLabels) -> None:
        self._labels = labels
        self._first: Refused | None = None
        self._objects: set[tuple[GroupResource, str, str]] = set()
        #: When each was refused last, the longest ago first.
        self._refused_at: dict[tuple[GroupResource, str, str], float] = {}
        self._news = AtMostEvery(TELL_SECONDS)
        self._errors: WeakSet[ShardingError] = WeakSet()
        #: Told when there is something to tell.
        self.when_noted: list[Callable[[], None]] = []

    @property
    def pending(self) -> bool:
        """Whether there is news that has not been told."""
        return self._first is not None

    def any_lately(self, now: float) -> bool:
        """Whether the API server refuses to change some object, as far as its last answers tell."""
        while self._refused_at and next(iter(self._refused_at.values())) <= now - LATELY_SECONDS:
            del self._refused_at[next(iter(self._refused_at))]
        return bool(self._refused_at)

    def note(
        self, resource: RingResource, meta: SlimMeta, patch: Mapping[str, Any], error: ShardingError, now: float
    ) -> None:
        """`patch` of the object was answered by `error`; errors that a retry may mend are none of ours."""
        if not isinstance(error, REFUSING):
            return
        self._errors.add(error)
        listed = resource.subject.resource.group_resource
        if self._first is None:
            self._first = Refused(listed, meta.namespace, meta.name, self._wanted(meta, patch), str(error), 0)
        key = (listed, meta.namespace, meta.name)
        if len(self._objects) < MAX_COUNTED:
            self._objects.add(key)
        if self._refused_at.pop(key, None) is not None or len(self._refused_at) < MAX_COUNTED:
            self._refused_at[key] = now
        for tell in self.when_noted:
            tell()

    def has(self, error: BaseException) -> bool:
        """Whether this very error refused a patch: it is told from here; a read that is refused is not."""
        return error in self._errors

    def has_object(self, resource: RingResource, meta: SlimMeta) -> bool:
        """Whether the last patch of this object was refused."""
        return (resource.subject.resource.group_resource, meta.namespace, meta.name) in self._refused_at

    def forget(self, resource: RingResource, meta: SlimMeta) -> None:
        """A patch of the object was taken: whatever was refused of it is no news any more."""
        listed, first = resource.subject.resource.group_resource, self._first
        self._objects.discard((listed, meta.namespace, meta.name))
        self._refused_at.pop((listed, meta.namespace, meta.name), None)
        if first is not None and (first.resource, first.namespace, first.name) == (listed, meta.namespace, meta.name):
            self._first = None  # whatever else is refused still will be refused again, and then is told

    def take(self, now: float) -> Refused | None:
        """The news, if there is any and it is time to tell it; `now` is monotonic."""
        first = self._first
        if first is None or not self._news.passes(now):
            return None
        others = len(self._objects) - 1
        self._first = None
        self._objects.clear()
        return Refused(first.resource, first.namespace, first.name, first.wanted, first.answer, others)

    def _wanted(self, meta: SlimMeta, patch: Mapping[str, Any]) -> str:
        labels = patch["metadata"]["labels"]
        shard = meta.label(self._labels.shard)
        if self._labels.shard not in labels:
            return f"asked back from shard {shard}"
        target = labels[self._labels.shard]
        return f"released from shard {shard}" if target is None else f"given to shard {target}"
