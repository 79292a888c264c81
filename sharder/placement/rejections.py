"""Label patches that the API server refuses for good: admission policies, webhooks, validation, rights, sizes.

As good as refused is what has failed for long, though the lead's own writes go through: a webhook that has to answer
first is away, say.  Does: collect them and make one piece of news of them from time to time, with
what people can do.  Refuses: to retry (the watches bring the object back, and the
backlog ever less often), and to tell of each of ten thousand objects that one
policy refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from sharder.backlog.objects import RingResource
from sharder.core.lasting import LASTING_SECONDS
from sharder.core.summary import Refused
from shardsdk.errors import (
    BadRequest,
    ConnectionFailed,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotServed,
    ServerError,
    ShardingError,
    TooManyRequests,
)
from shardsdk.kube.pace import AtMostEvery
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.names import shown_name
from shardsdk.protocol.objects import GroupResource, SlimMeta

#: Answers that the same patch will get again until somebody changes something, or serves the type again.
REFUSING: Final = (Invalid, Forbidden, BadRequest, MethodNotAllowed, NotServed)
#: Answers, or none, that mostly are over soon.
FAILING: Final = (ServerError, ConnectionFailed, TooManyRequests)
#: What fails each time is tried again within that time until it has lasted, also where nothing answers: a failure after
#: a longer pause is another one.  It is shorter than what lasts, so two failures alone never do.
GAP_SECONDS: Final = 80.0
#: Of what has failed for long one object of each resource is tried as often as before, and the others as what is
#: refused, or once it goes through; when that one has not been tried for so long, it is another.
PROBE_SECONDS: Final = 60.0
#: Between two log lines about failures of one type with one resource.
LINE_SECONDS: Final = 10.0
#: Between two times that everything is tried which was refused, since something of it goes through.
RETRY_SECONDS: Final = 1.0
#: Before what takes several writes is begun again of which one was refused, and what was written and undone: those
#: writes come back by the watch.
PAUSE_SECONDS: Final = 20.0
#: Between two times that all that was refused is tried as something of it goes through; as often as
#: each is by itself in the end.
HOPE_SECONDS: Final = 60.0
#: Between two pieces of news about one ring.
TELL_SECONDS: Final = 60.0
#: Objects counted at most for one piece of news.
MAX_COUNTED: Final = 10_000
#: An object whose patch was refused so long ago, and no other since, is not waited for: what is refused comes again
#: within a minute or so, by the backlog or by the next resync.
LATELY_SECONDS: Final = 180.0


class Undone(NamedTuple):
    """A patch that is taken and undone: the `version` of the object then, and the labels that it is to have.

    `gone`: it is on a shard that is not available.
    """

    version: str
    labels: Mapping[str, str | None]
    gone: bool


class _Last(NamedTuple):
    """When a patch of an object was refused last; `undone`: which was taken and undone."""

    at: float
    undone: Undone | None


class Refusals:
    """What was refused of one ring's objects since it was last told, and not taken since."""

    def __init__(self, labels: RingLabels) -> None:
        self._labels = labels
        self._first: Refused | None = None
        self._objects: set[tuple[GroupResource, str, str]] = set()
        #: Of each the last time, the longest ago first.
        self._refused: dict[tuple[GroupResource, str, str], _Last] = {}
        #: By resource: when one of its objects was refused last, or has failed for long.
        self._resources: dict[GroupResource, float] = {}
        self._news = AtMostEvery(TELL_SECONDS)
        self._lines = AtMostEvery(LINE_SECONDS)
        self._retries = AtMostEvery(RETRY_SECONDS)
        #: Where something was refused that goes through, the rest may be refused still: each for a reason of its own.
        self._hopes = AtMostEvery(HOPE_SECONDS)
        #: Of each resource, and of each object: a webhook may be called for some of a resource's only.
        self._failing = _FailingSince()
        #: When something failed last that had for long, and nothing like it has gone through since.
        self._failed_at = float("-inf")
        #: By resource: which object is tried as often as before, and when it was last.
        self._probes: dict[GroupResource, tuple[str, str, float]] = {}
        self._errors: WeakSet[ShardingError] = WeakSet()
        #: Told when there is something to tell.
        self.when_noted: list[Callable[[], None]] = []
        #: Told when something goes through again that had failed for long, or was refused.
        self.when_over: list[Callable[[], None]] = []

    @property
    def pending(self) -> bool:
        """Whether there is news that has not been told."""
        return self._first is not None

    def any_lately(self, now: float) -> bool:
        """Whether the API server refuses to change some object, as far as its last answers tell."""
        while self._refused and next(iter(self._refused.values())).at <= now - LATELY_SECONDS:
            del self._refused[next(iter(self._refused))]
        return bool(self._refused) or self._failed_at > now - LATELY_SECONDS

    def any_lately_of(self, listed: GroupResource, now: float) -> bool:
        """Whether it refuses to change some object of this resource, though it may let others of it be changed."""
        return self._resources.get(listed, float("-inf")) > now - LATELY_SECONDS

    def note(
        self,
        resource: RingResource,
        meta: SlimMeta,
        patch: Mapping[str, Any],
        error: ShardingError,
        now: float,
        *,
        undone: Undone | None = None,
    ) -> None:
        """`patch` of the object was answered by `error`; what a retry may mend is none of ours until it lasts.

        `undone`: it was taken, and the object has its labels as before.
        """
        listed = resource.subject.resource.group_resource
        key = _key_of(resource, meta)
        if isinstance(error, FAILING):
            lasting = [self._failing.note(what, now) for what in (listed, key)]
            if not any(lasting):
                return
        elif not isinstance(error, REFUSING):
            return
        if isinstance(error, REFUSING) or not self._is_probe(listed, meta, now):
            self._errors.add(error)
        if self._first is None:
            wanted, failing = self._wanted(meta, patch), isinstance(error, FAILING)
            self._first = Refused(listed, meta.namespace, meta.name, wanted, str(error), 0, failing)
        if len(self._objects) < MAX_COUNTED:
            self._objects.add(key)
        self._resources[listed] = now
        if isinstance(error, FAILING):
            self._failed_at = now  # no object is known to stay as it is: what nobody answered may be executed
        elif self._refused.pop(key, None) is not None or len(self._refused) < MAX_COUNTED:
            self._refused[key] = _Last(now, undone)
        for tell in self.when_noted:
            tell()

    def has(self, error: BaseException) -> bool:
        """Whether this very error refused a patch, which waits: it is told from here; a read that is refused is not."""
        return error in self._errors

    def is_news(self, resource: RingResource, error: ShardingError, now: float) -> bool:
        """Whether a failure is neither told of once a minute, nor was another like it a moment ago."""
        about = (resource.subject.resource.group_resource, type(error))
        return not self.has(error) and self._lines.passes(now, about)

    def has_object(self, resource: RingResource, meta: SlimMeta) -> bool:
        """Whether the last patch of this object was refused."""
        return _key_of(resource, meta) in self._refused

    def check_pause(self, resource: RingResource, meta: SlimMeta, now: float) -> None:
        """Raises: Invalid, where a patch of this object was refused a moment ago."""
        last = self._refused.get(_key_of(resource, meta))
        if last is not None and now - last.at < PAUSE_SECONDS:
            ago = f"{now - last.at:.0f} s ago"
            error = Invalid(f"patch {shown_name(meta.name)}: it was refused {ago}, and is tried again after a while")
            self._errors.add(error)
            raise error

    def check_undone(self, resource: RingResource, meta: SlimMeta, again: Undone, now: float) -> None:
        """Raises: Invalid, where this very patch of the object as it is was undone a moment ago.

        Whoever undoes it, and writes something into it each time, would be answered by another patch each time.  Of
        another patch that says nothing, nor of the first one once the object's shard is gone, which that waits for.
        """
        last = self._refused.get(_key_of(resource, meta))
        if last is not None and last.undone == again:
            self.check_pause(resource, meta, now)

    def forget(self, resource: RingResource, meta: SlimMeta, now: float) -> None:
        """A patch of the object was taken: whatever was refused of it is no news any more."""
        listed, key, first = resource.subject.resource.group_resource, _key_of(resource, meta), self._first
        self._objects.discard(key)
        last = self._refused.pop(key, None)
        if first is not None and (first.resource, first.namespace, first.name) == key:
            self._first = None  # whatever else is refused still will be refused again, and then is told
        if self._probes.get(listed, ())[:2] == (meta.namespace, meta.name):
            del self._probes[listed]
        lasted = [self._failing.end(what) for what in (listed, key)]
        if any(lasted):
            self._failed_at = float("-inf")
        refused = last is not None and last.undone is None
        if (any(lasted) and self._retries.passes(now, listed)) or (refused and self._hopes.passes(now, listed)):
            for tell in self.when_over:
                tell()

    def take(self, now: float) -> Refused | None:
        """The news, if there is any and it is time to tell it; `now` is monotonic."""
        first = self._first
        if first is None or not self._news.passes(now):
            return None
        others = len(self._objects) - 1
        self._first = None
        self._objects.clear()
        return Refused(first.resource, first.namespace, first.name, first.wanted, first.answer, others, first.failing)

    def _is_probe(self, listed: GroupResource, meta: SlimMeta, now: float) -> bool:
        namespace, name, tried_at = self._probes.get(listed, ("", "", float("-inf")))
        if (namespace, name) != (meta.namespace, meta.name) and now - tried_at < PROBE_SECONDS:
            return False
        self._probes[listed] = meta.namespace, meta.name, now
        return True

    def _wanted(self, meta: SlimMeta, patch: Mapping[str, Any]) -> str:
        labels = patch["metadata"]["labels"]
        shard = meta.label(self._labels.shard)
        if self._labels.shard not in labels:
            return f"asked back from shard {shard}"
        target = labels[self._labels.shard]
        return f"released from shard {shard}" if target is None else f"given to shard {target}"


def _key_of(resource: RingResource, meta: SlimMeta) -> tuple[GroupResource, str, str]:
    return resource.subject.resource.group_resource, meta.namespace, meta.name


class _FailingSince:
    """Since when something fails each time it is tried."""

    def __init__(self) -> None:
        #: When it failed first and last, the longest ago last first.
        self._times: dict[Hashable, tuple[float, float]] = {}

    def note(self, what: Hashable, now: float) -> bool:
        """It has failed; whether it has for long."""
        while self._times and next(iter(self._times.values()))[1] <= now - LATELY_SECONDS:
            del self._times[next(iter(self._times))]
        first, last = self._times.pop(what, (now, now))
        if last - first < LASTING_SECONDS and now - last > GAP_SECONDS:
            first = now
        if len(self._times) < MAX_COUNTED:
            self._times[what] = first, now
        return now - first >= LASTING_SECONDS

    def end(self, what: Hashable) -> bool:
        """It has not; whether it had for long."""
        first, last = self._times.pop(what, (0.0, 0.0))
        return last - first >= LASTING_SECONDS
