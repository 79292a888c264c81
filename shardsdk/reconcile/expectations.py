"""Expectations: after its own write an object is not reconciled before the cache has seen that write.

Otherwise a reconcile that looks into a cache a moment too old makes a child a
second time.

Does: remember, in an object's state (shardsdk/reconcile/state.py), the versions
that a cache must reach, and wake the object when it has.  Refuses: to wait for
ever; after `EXPECTATION_SECONDS` it gives up and tells, so that a list can find
out what the cache has missed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, is_at_least, metadata_of, request_of
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.reconcile.state import Awaited, Child, Expected, ObjectStates, WriteEvent, Writes

log: Final = logger_of(__name__)

#: A watch delivers within milliseconds, and a broken one is replaced within
#: seconds; a write that is not seen for so long was never going to be (the
#: object was deleted at once, or does not match the cache's selection).
EXPECTATION_SECONDS: Final = 15.0


class Expectations:
    """What the caches are to show before an object is reconciled again.

    Whoever finds an object `pending` as it is to be reconciled drops what is
    overdue (`expire`) and puts it off (`postpone`).  It is woken when nothing is
    pending any more: `wake(owner)`, or `wake_at(owner, moment)` for when its
    expectations run out, which `cancel(owner, moment)` takes back;
    `on_expired(owner)` is called for each that has.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        wake: Callable[[Request], None],
        wake_at: Callable[[Request, float], None],
        cancel: Callable[[Request, float], None],
        on_expired: Callable[[Request], None] | None = None,
        states: ObjectStates | None = None,
    ) -> None:
        self._clock = clock
        self._wake = wake
        self._wake_at = wake_at
        self._cancel = cancel
        self._on_expired = on_expired
        self._states = ObjectStates() if states is None else states
        self._awaited = Awaited()

    def expect(self, owner: Request, cache: Cache[Any], request: Request, version: str) -> None:
        """`owner` waits until `cache` shows `request` at `version` or later, or its deletion."""
        if cache.has_seen(request, version):
            return  # the news were faster than the answer
        now = self._clock.monotonic()
        expected = Expected(now, now + EXPECTATION_SECONDS, version)
        self._add(owner, Child(cache.resource.group_resource, request), expected)

    def expect_end(self, owner: Request, cache: Cache[Any], request: Request, uid: str) -> None:
        """`owner` waits until `cache` shows that the object with this uid is gone, or on its way out."""
        thing = cache.peek(request)
        if thing is None or _has_ended(metadata_of(thing), uid):
            return
        now = self._clock.monotonic()
        expected = Expected(now, now + EXPECTATION_SECONDS, ends=uid)
        self._add(owner, Child(cache.resource.group_resource, request), expected)

    def pending(self, owner: Request) -> bool:
        """Whether a cache has yet to show something that was written for `owner`."""
        state = self._states.get(owner)
        return state is not None and state.writes is not Writes.SHOWN

    def expire(self, owner: Request) -> bool:
        """Give up what the caches did not show in time; whether there was any."""
        state, now = self._states.get(owner), self._clock.monotonic()
        expected = {} if state is None or state.expected is None else state.expected
        overdue = [written for written, each in expected.items() if each.until <= now]
        for written in overdue:
            log.warning(
                "The cache did not show a write in time; asking the API server",
                extra={"object": str(owner), "resource": str(written.resource), "written": str(written.key)},
            )
            if self._on_expired:
                self._on_expired(owner)
            self._drop(owner, written, WriteEvent.OVERDUE)
        return bool(overdue)

    def postpone(self, owner: Request) -> None:
        """`owner` was to be reconciled: it is woken when nothing is pending, or when that has run out."""
        state = self._states.get(owner)
        if state is not None and state.expected:
            state.wrote(WriteEvent.POSTPONED)
            state.alarm = min(each.until for each in state.expected.values())
            self._wake_at(owner, state.alarm)

    def observe(self, cache: Cache[Any], delta: Delta[Any]) -> None:
        """Take note of a change that `cache` shows now."""
        written = Child(cache.resource.group_resource, request_of(delta.object))
        for owner in self._awaited.owners(written):
            expected = self._states.of(owner).expected
            if expected and _is_shown(expected[written], delta) and self._drop(owner, written, WriteEvent.SHOWN):
                self._wake(owner)

    def forget(self, owner: Request) -> None:
        """`owner` is gone."""
        state = self._states.get(owner)
        for written in list((state.expected if state is not None else None) or ()):
            self._drop(owner, written, WriteEvent.LEFT)

    def _add(self, owner: Request, written: Child, expected: Expected) -> None:
        state = self._states.of(owner)
        if state.expected is None:
            state.expected = {}
        state.expected[written] = expected
        state.wrote(WriteEvent.WROTE)
        self._awaited.add(written, owner)

    def _drop(self, owner: Request, written: Child, event: WriteEvent) -> bool:
        """Expect one write less; with the last comes `event`.  Whether `owner` is to be woken."""
        state = self._states.of(owner)
        assert state.expected is not None
        del state.expected[written]
        self._awaited.drop(written, owner)
        if state.expected:
            return False
        state.expected = None
        if state.alarm is not None and event is not WriteEvent.OVERDUE:
            self._cancel(owner, state.alarm)  # else it would be reconciled once more, for nothing
        state.alarm = None
        wakes = state.wrote(event)
        self._states.tidy(owner)
        return wakes


def _is_shown(expected: Expected, delta: Delta[Any]) -> bool:
    """Whether a change shows what is expected of its object."""
    metadata = metadata_of(delta.object)
    if expected.ends is not None:
        return delta.kind is EventKind.DELETED or _has_ended(metadata, expected.ends)
    # A deletion counts by its version, too: the one before this object's re-creation proves nothing.
    return is_at_least(metadata.resource_version, expected.version)


def _has_ended(metadata: ObjectMeta, uid: str) -> bool:
    return metadata.uid != uid or metadata.deletion_timestamp is not None
