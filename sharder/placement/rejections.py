"""Label patches that the API server refuses for good: admission policies, webhooks, validation.

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
from shardsdk.errors import BadRequest, Forbidden, Invalid, MethodNotAllowed, ShardingError
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import GroupResource, SlimMeta

#: Answers that the same patch will get again until somebody changes something.
REFUSING: Final = (Invalid, Forbidden, BadRequest, MethodNotAllowed)
#: Between two pieces of news about one ring.
TELL_SECONDS: Final = 60.0
#: Objects counted at most for one piece of news.
MAX_COUNTED: Final = 10_000


class Refusals:
    """What was refused of one ring's objects since it was last told, and not taken since."""

    def __init__(self, labels: RingLabels) -> None:
        self._labels = labels
        self._first: Refused | None = None
        self._objects: set[tuple[GroupResource, str, str]] = set()
        self._quiet_until = float("-inf")
        self._errors: WeakSet[ShardingError] = WeakSet()
        #: Told when there is something to tell.
        self.when_noted: list[Callable[[], None]] = []

    @property
    def pending(self) -> bool:
        """Whether there is news that has not been told."""
        return self._first is not None

    def note(self, resource: RingResource, meta: SlimMeta, patch: Mapping[str, Any], error: ShardingError) -> None:
        """`patch` of the object was answered by `error`; errors that a retry may mend are none of ours."""
        if not isinstance(error, REFUSING):
            return
        self._errors.add(error)
        listed = resource.subject.resource.group_resource
        if self._first is None:
            self._first = Refused(listed, meta.namespace, meta.name, self._wanted(meta, patch), str(error), 0)
        if len(self._objects) < MAX_COUNTED:
            self._objects.add((listed, meta.namespace, meta.name))
        for tell in self.when_noted:
            tell()

    def has(self, error: BaseException) -> bool:
        """Whether this very error refused a patch: it is told from here; a read that is refused is not."""
        return error in self._errors

    def forget(self, resource: RingResource, meta: SlimMeta) -> None:
        """A patch of the object was taken: whatever was refused of it is no news any more."""
        listed, first = resource.subject.resource.group_resource, self._first
        self._objects.discard((listed, meta.namespace, meta.name))
        if first is not None and (first.resource, first.namespace, first.name) == (listed, meta.namespace, meta.name):
            self._first = None  # whatever else is refused still will be refused again, and then is told

    def take(self, now: float) -> Refused | None:
        """The news, if there is any and it is time to tell it; `now` is monotonic."""
        first = self._first
        if first is None or now < self._quiet_until:
            return None
        others = len(self._objects) - 1
        self._first, self._quiet_until = None, now + TELL_SECONDS
        self._objects.clear()
        return Refused(first.resource, first.namespace, first.name, first.wanted, first.answer, others)

    def _wanted(self, meta: SlimMeta, patch: Mapping[str, Any]) -> str:
        labels = patch["metadata"]["labels"]
        shard = meta.label(self._labels.shard)
        if self._labels.shard not in labels:
            return f"asked back from shard {shard}"
        target = labels[self._labels.shard]
        return f"released from shard {shard}" if target is None else f"given to shard {target}"
