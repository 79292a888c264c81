"""Sources of requests that are no watch of an owned object: mapped watches, timers, pushes.

    trigger = Trigger()
    spec = (
        controller_for(SITES)
        .watches(SECRETS, lambda secret: [Request(secret.metadata.namespace, site) for site in sites_of(secret)])
        .source(Every(300))
        .source(trigger)
    )
    trigger.push(Request("default", "home"))    # from an HTTP handler, on any thread

Whatever comes from here is a request, not an order: an object that is not in
the controller's cache (another shard's, or gone) is left alone.

Does: map, tick, collect.  Refuses: to reconcile, and to keep without bounds what is pushed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, metadata_of
from shardsdk.errors import ConfigurationError
from shardsdk.kube.clock import Clock
from shardsdk.kube.identity import describe_given
from shardsdk.kube.reflector import Delta
from shardsdk.logs import logger_of
from shardsdk.queueing.predicates import Predicate, always
from shardsdk.queueing.queue import Priority
from shardsdk.queueing.workers import is_finite

log: Final = logger_of(__name__)

#: Which main objects a watched object matters to; asked about the object as it was and as it is.
MapFunc = Callable[[Any], Iterable[Request]]
#: So many different requests wait in a trigger whose controller does not run (yet).
MAX_PUSHED: Final = 10_000
#: So many requests of a timer are added before other tasks get a turn.
ADD_TURN: Final = 256


@dataclass(frozen=True, slots=True)
class Watched:
    """A cache of another resource whose changes `mapping` turns into requests."""

    cache: Cache[Any]
    mapping: MapFunc
    predicate: Predicate = always

    def requests(self, delta: Delta[Any]) -> list[Request]:
        """The requests of a change, each once; what `mapping` raises is logged, and the change is lost on it.

        So is a mapping that gives something else than requests.
        """
        found: dict[Request, None] = {}
        for thing in (delta.object, delta.old):
            try:
                asked = () if thing is None else self.mapping(thing)
                found.update((as_request(each, "a mapping gives requests"), None) for each in asked)
            except (Exception, asyncio.CancelledError):
                meta = metadata_of(delta.object)
                where = {"namespace": meta.namespace, "object": meta.name}
                log.exception("A mapping raised", extra={"resource": str(self.cache.resource.group_resource), **where})
        return list(found)


class Feed:
    """What a source is handed: it adds requests to one controller's queue.

    `clock` and `rng` are the manager's; whoever waits by them can be tested in virtual time.
    """

    def __init__(
        self,
        add: Callable[[Request, Priority], None],
        requests: Callable[[], list[Request]],
        clock: Clock,
        rng: Random,
    ) -> None:
        self._add = add
        #: The names of all objects that the controller has in its cache.
        self.requests = requests
        self.clock = clock
        self.rng = rng

    def add(self, request: Request, priority: Priority) -> None:
        """Have `request` reconciled, if the controller has it.  Raises: TypeError for what is no Request."""
        self._add(as_request(request, "a source adds requests"), priority)


class RequestSource(Protocol):
    """Where a controller's requests come from besides watches."""

    async def run(self, feed: Feed) -> None:
        """Feed the controller until cancelled; called once its caches are complete.

        It may return early; what it raises ends the process.
        """
        ...


class Every:
    """Has objects reconciled every `seconds`, though nothing has changed: all that the controller has, or `requests()`.

    They come with bulk priority, so that fresh events overtake them.

    >>> spec = spec.source(Every(600))  # doctest: +SKIP
    """

    def __init__(self, seconds: float, requests: Callable[[], Iterable[Request]] | None = None) -> None:
        if not is_finite(seconds) or seconds <= 0:
            raise ConfigurationError(
                f"Every({seconds!r}) would never pause, or for ever: use more than zero seconds, a finite number, of a"
                " timedelta its total_seconds()"
            )
        self.seconds = seconds
        self._requests = requests

    async def run(self, feed: Feed) -> None:
        """As `RequestSource.run`."""
        while True:
            await feed.clock.sleep(self.seconds)
            for count, request in enumerate((self._requests or feed.requests)(), start=1):
                feed.add(request, Priority.BULK)
                if count % ADD_TURN == 0:
                    await asyncio.sleep(0)


class Trigger:
    """Has an object reconciled because a program says so: `push` is for HTTP handlers, webhooks, message queues.

    It may feed several controllers, and what is pushed before all of them run waits here, each request once and
    `MAX_PUSHED` at most, until the last has begun with a copy of it; on a replica that does nothing but lead it waits
    until that replica does.  Of controllers that are not made yet nothing is known here: where one runs on every
    replica, or by shards, and another on the leader, the latter may miss what was pushed before it was made (it begins
    with all that its caches show, and `when` lets pass).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._early = _Mailbox(lambda: None)
        self._mailboxes: list[_Mailbox] = []
        #: How many controllers were made that have not begun.
        self._expected = 0

    def expect(self) -> None:
        """A controller that has this source was made: what is pushed from now on is kept until it begins."""
        with self._lock:
            self._expected += 1

    def push(self, request: Request, priority: Priority = Priority.FRESH) -> bool:
        """Have `request` reconciled soon; callable from any thread.

        Not from a handler of Python's `signal.signal`, which may interrupt a push and would wait for it for ever: a
        handler that the event loop calls (`add_signal_handler`) may push.

        `False`: `MAX_PUSHED` requests wait already, and this one was not taken.

        Raises: TypeError for what is no Request, here rather than in the controller, whose stack names no caller.
        """
        as_request(request, "push takes a request")
        with self._lock:
            waits = not self._mailboxes or self._expected > 0
            kept = self._early.put(request, priority) if waits else True
            taken = [mailbox.put(request, priority) for mailbox in self._mailboxes]
            # Who may never begin, because it cannot read what it wants, must not have others told that they are full.
            return all(taken) if taken else kept

    async def run(self, feed: Feed) -> None:
        """As `RequestSource.run`."""
        loop, filled = asyncio.get_running_loop(), asyncio.Event()
        mailbox = _Mailbox(lambda: loop.call_soon_threadsafe(filled.set))
        with self._lock:
            mailbox.waiting = dict(self._early.waiting)
            self._expected = max(self._expected - 1, 0)
            if not self._expected:
                self._early.waiting = {}
            self._mailboxes.append(mailbox)
        filled.set()
        try:
            while True:
                await filled.wait()
                filled.clear()
                with self._lock:
                    taken, mailbox.waiting = mailbox.waiting, {}
                for request, priority in taken.items():
                    feed.add(request, priority)
        finally:
            with self._lock:
                self._mailboxes.remove(mailbox)


class _Mailbox:
    """What was pushed and not taken yet."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self.waiting: dict[Request, Priority] = {}
        self._wake = wake

    def put(self, request: Request, priority: Priority) -> bool:
        before = self.waiting.get(request)
        if before is None and len(self.waiting) >= MAX_PUSHED:
            return False
        self.waiting[request] = priority if before is None else min(priority, before)
        if len(self.waiting) == 1:
            self._wake()
        return True


def as_request(request: object, wanted: str) -> Request:
    """The same, if it is one.

    Raises: TypeError, also for a pair: one that is no Request is as likely a name and a namespace.
    """
    if type(request) is Request:
        return request
    raise TypeError(f"{wanted}: write Request(namespace, name), not {describe_given(request)}")
