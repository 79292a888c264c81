"""Expectations: after its own write an object is not reconciled before the cache has seen that write.

Otherwise a reconcile that looks into a cache a moment too old makes a child a
second time.

Does: remember, per object, the versions that a cache must reach, and wake the
object when it has.  Refuses: to wait for ever; after `EXPECTATION_SECONDS` it
gives up and tells, so that a list can find out what the cache has missed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, is_at_least, metadata_of, request_of
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import GroupResource, ObjectMeta

log: Final = logger_of(__name__)

#: A watch delivers within milliseconds, and a broken one is replaced within
#: seconds; a write that is not seen for so long was never going to be (the
#: object was deleted at once, or does not match the cache's selection).
EXPECTATION_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class _Written:
    """A write that a cache is to show."""

    resource: GroupResource
    request: Request


@dataclass(slots=True)
class _Expected:
    """A version, or the end of the object with this uid."""

    until: float
    version: str = ""
    ends: str | None = None

    def is_shown_by(self, delta: Delta[Any]) -> bool:
        metadata = metadata_of(delta.object)
        if self.ends is not None:
            return delta.kind is EventKind.DELETED or _has_ended(metadata, self.ends)
        # A deletion counts by its version, too: the one before this object's re-creation proves nothing.
        return is_at_least(metadata.resource_version, self.version)


class Expectations:
    """What the caches are to show before an object is reconciled again.

    An object that was found to be `pending` is woken when it is no more:
    `wake(owner)`, or `wake_after(owner, seconds)` for when its expectations run
    out; `on_expired(owner)` is called then, when it is looked at again.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        wake: Callable[[Request], None],
        wake_after: Callable[[Request, float], None],
        on_expired: Callable[[Request], None] | None = None,
        seconds: float = EXPECTATION_SECONDS,
    ) -> None:
        self._clock = clock
        self._wake = wake
        self._wake_after = wake_after
        self._on_expired = on_expired
        self._seconds = seconds
        self._expected: dict[Request, dict[_Written, _Expected]] = {}
        #: Objects that came too early and want to be woken.
        self._postponed: set[Request] = set()
        #: Who waits for a write; a written object may be awaited by several.
        self._owners: dict[_Written, set[Request]] = {}

    def expect(self, owner: Request, cache: Cache[Any], request: Request, version: str) -> None:
        """`owner` waits until `cache` shows `request` at `version` or later, or its deletion."""
        if cache.has_seen(request, version):
            return  # the news were faster than the answer
        expected = _Expected(self._clock.monotonic() + self._seconds, version=version)
        self._add(owner, _Written(cache.resource.group_resource, request), expected)

    def expect_end(self, owner: Request, cache: Cache[Any], request: Request, uid: str) -> None:
        """`owner` waits until `cache` shows that the object with this uid is gone, or on its way out."""
        thing = cache.peek(request)
        if thing is None or _has_ended(metadata_of(thing), uid):
            return
        expected = _Expected(self._clock.monotonic() + self._seconds, ends=uid)
        self._add(owner, _Written(cache.resource.group_resource, request), expected)

    def pending(self, owner: Request) -> bool:
        """Whether `owner` still has to wait (it is woken then); expectations that ran out are dropped."""
        mine = self._expected.get(owner)
        if not mine:
            return False
        now = self._clock.monotonic()
        for written in [written for written, expected in mine.items() if expected.until <= now]:
            log.warning(
                "The cache did not show a write in time; asking the API server",
                extra={"object": str(owner), "resource": str(written.resource), "written": str(written.request)},
            )
            if self._on_expired:
                self._on_expired(owner)
            self._drop(owner, written)
        if owner not in self._expected:
            self._postponed.discard(owner)
            return False
        self._postponed.add(owner)
        self._wake_after(owner, min(expected.until for expected in mine.values()) - now)
        return True

    def observe(self, cache: Cache[Any], delta: Delta[Any]) -> None:
        """Take note of a change that `cache` shows now."""
        written = _Written(cache.resource.group_resource, request_of(delta.object))
        for owner in list(self._owners.get(written, ())):
            expected = self._expected[owner][written]
            if expected.is_shown_by(delta):
                self._drop(owner, written)
                if owner not in self._expected and owner in self._postponed:
                    self._postponed.discard(owner)
                    self._wake(owner)

    def forget(self, owner: Request) -> None:
        """`owner` is gone."""
        for written in list(self._expected.get(owner, ())):
            self._drop(owner, written)
        self._postponed.discard(owner)

    def _add(self, owner: Request, written: _Written, expected: _Expected) -> None:
        self._expected.setdefault(owner, {})[written] = expected
        self._owners.setdefault(written, set()).add(owner)

    def _drop(self, owner: Request, written: _Written) -> None:
        mine, owners = self._expected[owner], self._owners[written]
        del mine[written]
        owners.discard(owner)
        if not mine:
            del self._expected[owner]
        if not owners:
            del self._owners[written]


def _has_ended(metadata: ObjectMeta, uid: str) -> bool:
    return metadata.uid != uid or metadata.deletion_timestamp is not None
