"""Kubernetes Events: what people see under `kubectl describe`.

Does: take an event in passing, count repeats together, combine what differs only
in its message once there is much of it, and write them in its own task.  Core v1
Events, because that is what `kubectl describe` lists with a count, and what roles
commonly grant (create and patch on `events`).  Events about cluster-scoped
objects go to the namespace `default`, where describe finds them.

Refuses: to raise into its caller, to wait in it, or to write without bounds.
What does not fit is dropped, counted and told; objects that fail all the time take
no room from the others, and a namespace that takes no Events holds up no other.
An Event is a hint for people, never the only record of anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from shardsdk.errors import AlreadyExists, Forbidden, NotFound, RetryRule, ShardingError
from shardsdk.events.failing import FailingNamespaces
from shardsdk.events.limits import EventLimits
from shardsdk.events.similar import Similar
from shardsdk.kinds.conditions import render_time
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.pace import AtMostEvery, TokenBucket
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import ObjectMeta, Resource

log: Final = logger_of(__name__)

EVENTS: Final = Resource("", "v1", "events", "Event")
#: What is stored as those is served as these as well.
_EVENT_VERSIONS: Final = (EVENTS.api_version, "events.k8s.io/v1")
#: Where Events about cluster-scoped objects belong.  Source: apiserver, legacyValidateEvent.
CLUSTER_NAMESPACE: Final = "default"
#: Source: Kubernetes, events.k8s.io/v1, limits of note and reason.
MAX_MESSAGE_CHARACTERS: Final = 1024
MAX_REASON_CHARACTERS: Final = 128
#: How long the last Events are written, where a lease waits for it, and how long the last of these may take.
FLUSH_SECONDS: Final = 1.0
#: What finds no room is told this often at most; the metric counts all.
TELL_DROPPED_SECONDS: Final = 60.0
#: How an Event begins that stands for several; what `kubectl describe` shows of Kubernetes' own.
COMBINED: Final = "(combined from similar events): "
#: What of an object's name an Event's name repeats; with its suffix it stays under 253.
_MAX_NAME_CHARACTERS: Final = 230


class EventType(StrEnum):
    """Whether someone should look."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about; `namespace` is empty for a cluster-scoped one.

    `kubectl describe` finds an Event by all of these: without `uid` it does not show it.
    """

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of(cls, resource: Resource, metadata: ObjectMeta) -> Regarding:
        """The object of `resource` with this metadata."""
        return cls(resource.api_version, resource.kind, metadata.name, metadata.namespace, metadata.uid)


@dataclass(frozen=True, slots=True)
class _Key:
    """What makes two occurrences the same Event; of combined ones the message is `COMBINED` alone."""

    regarding: Regarding
    type: EventType
    reason: str
    message: str


@dataclass(slots=True)
class _Pending:
    """Occurrences that are not written yet.

    `name` is that of the Event to be created; it stays the same over all attempts,
    so that a create whose answer was lost is not repeated.
    """

    first: datetime
    last: datetime
    message: str
    count: int = 1
    name: str = ""
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class _Written:
    """An Event in the cluster: its name, how often it has occurred, and when it was last written (monotonic)."""

    name: str
    count: int
    at: float


class EventRecorder:
    """Collects Events by `event()` and writes them while `run()` runs; `on_dropped` is told how many are lost."""

    def __init__(
        self,
        api: Api,
        component: str,
        clock: Clock,
        rng: random.Random,
        *,
        limits: EventLimits | None = None,
        on_dropped: Callable[[int], object] = lambda count: None,
    ) -> None:
        self._api = api
        self._component = component
        self._clock = clock
        self._rng = rng
        self._limits = limits or EventLimits()
        self._pending: OrderedDict[_Key, _Pending] = OrderedDict()
        self._written: OrderedDict[_Key, _Written] = OrderedDict()
        self._buckets: OrderedDict[Regarding, TokenBucket] = OrderedDict()
        self._failing = FailingNamespaces(rng, self._limits.retry_seconds, self._limits.remembered)
        self._similar = Similar(self._limits.similar, self._limits.similar_within_seconds, self._limits.remembered)
        self._wake = asyncio.Event()
        self._stopped = False
        self._on_dropped = on_dropped
        #: When dropping for want of room is told, and what has been dropped since it was.
        self._crowding = AtMostEvery(TELL_DROPPED_SECONDS)
        self._untold = 0
        self.dropped: int = 0

    def event(self, regarding: Regarding, event_type: EventType, reason: str, message: str) -> None:
        """Note that something happened to `regarding`.

        `reason` is a constant in CamelCase, `message` a sentence; the same three
        again count as a repeat.
        """
        if event_type not in tuple(EventType):
            self._drop(regarding, reason, 1, f"{event_type!r} is no type of an Event: use EventType.NORMAL or WARNING")
            return
        if regarding.kind == EVENTS.kind and regarding.api_version in _EVENT_VERSIONS:
            # One more for whoever is told of Events to write one about, and so on for ever.
            fields = {"namespace": regarding.namespace, "object": regarding.name, "reason": reason}
            log.info("No Event is written about an Event", extra={**fields, "text": _as_text(message)})
            return
        key = _Key(
            regarding,
            EventType(event_type),
            _as_text(reason)[:MAX_REASON_CHARACTERS],
            _as_text(message)[:MAX_MESSAGE_CHARACTERS],
        )
        shown = key.message
        group = (regarding, key.type, key.reason)
        if self._similar.too_many(group, key.message, self._clock.monotonic()):
            shown = f"{COMBINED}{key.message}"[:MAX_MESSAGE_CHARACTERS]
            key = replace(key, message=COMBINED)
        now = self._clock.now()
        known = self._pending.get(key)
        if known is not None:
            known.count += 1
            known.last = now
            known.message = shown
            return
        if not self._make_room(key):
            self._crowded_out(key, 1)
            return
        self._pending[key] = _Pending(now, now, shown)
        self._wake.set()

    async def run(self) -> None:
        """Write what is noted until stopped, or cancelled; then `flush` what is left."""
        while not self._stopped:
            self._wake.clear()
            key, wait_seconds = self._find_due()
            if key is not None:
                if await self._write(key, self._pending.pop(key), self._limits.attempts):
                    self._take_token(key.regarding)
                continue
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def stop(self) -> None:
        """Have `run` end once the write under way has its answer: one that is cut off may still be executed."""
        self._stopped = True
        self._wake.set()

    async def flush(self, seconds: float = math.inf) -> None:
        """Once `run` has ended, write what is left, each with one attempt; none begins after so many seconds.

        What that leaves, or it is cancelled before, is dropped.
        """
        until = self._clock.monotonic() + seconds
        try:
            while self._pending and self._clock.monotonic() < until:
                key = min(self._pending, key=lambda key: self._delay(key)[0])
                await self._write(key, self._pending.pop(key), attempts=1)
        finally:
            if left := sum(pending.count for pending in self._pending.values()):
                self._pending.clear()
                self._count_dropped(left)
                log.warning("events dropped: no time was left for them", extra={"dropped": left})

    async def flush_in_passing(self) -> None:
        """The same, within a second, and one more for the write under way: Events are hints, and nobody waits long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * FLUSH_SECONDS):
                await self.flush(FLUSH_SECONDS)

    # -- bounds -----------------------------------------------------------

    def _make_room(self, new: _Key) -> bool:
        """Whether there is room for `new`; what may be written at once displaces what is the least likely to be."""
        waiting = sum(key.regarding == new.regarding for key in self._pending)
        if waiting >= self._limits.pending_per_object and new.message != COMBINED:
            return False
        if len(self._pending) < self._limits.pending:
            return True
        if any(self._delay(new)):
            return False
        last = max(self._pending, key=self._delay)
        if not any(self._delay(last)):
            return False
        self._crowded_out(last, self._pending.pop(last).count)
        return True

    def _crowded_out(self, key: _Key, count: int) -> None:
        self._count_dropped(count)
        self._untold += count
        if not self._crowding.passes(self._clock.monotonic()):
            return
        fields = {"kind": key.regarding.kind, "object": key.regarding.name, "reason": key.reason}
        log.warning("events dropped: too many wait to be written", extra={**fields, "dropped": self._untold})
        self._untold = 0

    def _find_due(self) -> tuple[_Key | None, float | None]:
        """The oldest Event that may be written now, else how long until one may (`None`: there is none).

        Those of namespaces where Events fail come last: each of them may take long.
        """
        delays = {key: self._delay(key) for key in self._pending}
        due = [key for key, (_, seconds) in delays.items() if not seconds]
        if due:
            return min(due, key=lambda key: delays[key][0]), None
        return None, min((seconds for _, seconds in delays.values()), default=None)

    def _delay(self, key: _Key) -> tuple[bool, float]:
        """Whether Events fail in its namespace, and seconds until this one may be written."""
        now = self._clock.monotonic()
        bucket = self._buckets.get(key.regarding)
        seconds = 0.0 if bucket is None else bucket.seconds_until_token(now)
        paused = self._failing.seconds_until_attempt(_namespace_of(key.regarding), now)
        return (False, seconds) if paused is None else (True, max(seconds, paused))

    def _take_token(self, regarding: Regarding) -> None:
        bucket = self._buckets.pop(regarding, None)
        if bucket is None:
            bucket = TokenBucket(1 / self._limits.seconds_per_event, self._limits.burst)
        bucket.take(self._clock.monotonic())
        self._buckets[regarding] = bucket
        _forget_oldest(self._buckets, self._limits.remembered)

    # -- writing ----------------------------------------------------------

    async def _write(self, key: _Key, pending: _Pending, attempts: int) -> bool:
        """Make one attempt; `False`: it has been put back, for one of its next up to so many in all."""
        namespace = _namespace_of(key.regarding)
        pending.attempts += 1
        try:
            await self._write_once(key, pending)
        except asyncio.CancelledError:
            self._put_back(key, pending)
            raise
        except ShardingError as error:
            # What is forbidden stays so for a while, and others' Events are waiting.
            if error.retry is RetryRule.BACKOFF and not isinstance(error, Forbidden):
                self._failing.failed(namespace, self._clock.monotonic())
                if pending.attempts < attempts:
                    self._put_back(key, pending)
                    return False
            self._drop(key.regarding, key.reason, pending.count, str(error))
        except Exception as error:
            # Whatever it is about this one: whoever writes Events must not end, and with it the process.
            self._drop(key.regarding, key.reason, pending.count, f"{type(error).__name__}: {error}", error)
        else:
            self._failing.wrote(namespace)
        return True

    def _put_back(self, key: _Key, pending: _Pending) -> None:
        """Have it written later, behind others, with what has occurred of it meanwhile."""
        if meanwhile := self._pending.pop(key, None):
            pending.count += meanwhile.count
            pending.last, pending.message = meanwhile.last, meanwhile.message
        self._pending[key] = pending

    async def _write_once(self, key: _Key, pending: _Pending) -> None:
        """Raise the count of the Event that is there, or create it."""
        namespace = _namespace_of(key.regarding)
        written = self._written.get(key)
        if written is not None and self._clock.monotonic() - written.at < self._limits.repeat_within_seconds:
            with contextlib.suppress(NotFound):
                await self._repeat(key, pending, written.name, written.count + pending.count)
                return
        pending.name = pending.name or self._make_name(key.regarding.name)
        try:
            await self._api.create(EVENTS, self._render(key, pending, namespace), namespace)
        except AlreadyExists:  # by an attempt whose answer was lost; it may have occurred again since
            await self._repeat(key, pending, pending.name, pending.count)
        else:
            self._remember(key, _Written(pending.name, pending.count, self._clock.monotonic()))

    async def _repeat(self, key: _Key, pending: _Pending, name: str, count: int) -> None:
        repeat = {"count": count, "lastTimestamp": render_time(pending.last)}
        if key.message == COMBINED:
            repeat["message"] = pending.message
        await self._api.patch(EVENTS, name, _namespace_of(key.regarding), repeat)
        self._remember(key, _Written(name, count, self._clock.monotonic()))

    def _drop(
        self, regarding: Regarding, reason: object, count: int, why: str, unexpected: Exception | None = None
    ) -> None:
        self._count_dropped(count)
        where = {"kind": regarding.kind, "namespace": regarding.namespace, "object": regarding.name}
        extra = {**where, "reason": _as_text(reason), "error": why}
        log.warning("event not written", extra=extra, exc_info=unexpected)

    def _count_dropped(self, count: int) -> None:
        self.dropped += count
        self._on_dropped(count)

    def _remember(self, key: _Key, written: _Written) -> None:
        self._written.pop(key, None)
        self._written[key] = written
        _forget_oldest(self._written, self._limits.remembered)

    def _make_name(self, about: str) -> str:
        readable = re.sub(r"[^a-z0-9.-]", "-", about.lower())[:_MAX_NAME_CHARACTERS].strip(".-")
        return f"{readable or self._component}.{self._rng.getrandbits(64):016x}"

    def _render(self, key: _Key, pending: _Pending, namespace: str) -> dict[str, Any]:
        about = key.regarding
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}
        optional = {"namespace": about.namespace, "uid": about.uid}
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": pending.name, "namespace": namespace},
            "involvedObject": involved | {field: value for field, value in optional.items() if value},
            "type": key.type.value,
            "reason": key.reason,
            "message": pending.message,
            "count": pending.count,
            "firstTimestamp": render_time(pending.first),
            "lastTimestamp": render_time(pending.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
        }


def _namespace_of(regarding: Regarding) -> str:
    """Where Events about it are written."""
    return regarding.namespace or CLUSTER_NAMESPACE


def _as_text(words: object) -> str:
    """What can be sent as JSON: bytes that were no text (`os.fsdecode`) are shown by their numbers."""
    return str(words).encode("utf-8", "backslashreplace").decode()


def _forget_oldest(remembered: OrderedDict[Any, Any], most: int) -> None:
    while len(remembered) > most:
        remembered.popitem(last=False)
