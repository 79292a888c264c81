"""Which resources may carry a ring's labels although the ring lists them no longer, or not in the part that they had.

The ring's status remembers them (`placedResources`), so that one that is taken off
the list is cleaned up, whoever leads then.  Hence the order, which the caller keeps:
a resource is written down before any of its objects gets a label.  And it says as
what they got it: one that was main and is controlled now is written down as controlled
when shards have let go of what they had as main objects apart from its owners.

What the API server calls them is looked up beside that, in a loop of its own: an API
group that does not answer must keep nothing from being placed, of whatever ring.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from sharder.backlog.objects import RingResource
from sharder.cache.resources import look_up
from sharder.core.ringspec import LetGo, ResolvedMain, ResolvedRing, Role, Subject, placed_resources, workable
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue

log = logging.getLogger(__name__)

#: How soon, and at last how often, those are asked for again that did not answer.
RETRY_SECONDS: Final = 10.0
RETRY_MAX_SECONDS: Final = 60.0
#: How long an answer is believed: a type may come back, go, or be served in another version.
BELIEVED_SECONDS: Final = 60.0


class RemovedResources:
    """Those of one ring; `write(status)` merges into the ring's status, `run` looks them up.

    `slots`: how many rings do so at once.  `when_found` is called when `record` would return something else by now.
    """

    def __init__(
        self,
        ring: str,
        api: Api,
        write: Callable[[Mapping[str, Any]], Awaitable[None]],
        *,
        clock: Clock,
        slots: asyncio.Semaphore,
        when_found: Callable[[], None],
    ) -> None:
        self._ring = ring
        self._api = api
        self._write = write
        self._slots = slots
        self._when_found = when_found
        self._queue: WorkQueue[str] = WorkQueue(
            clock, name=f"removed/{ring}", rate_limit=RateLimit(RETRY_SECONDS, RETRY_MAX_SECONDS)
        )
        #: Taken off the ring, as `record` found last, each with whether it was controlled; and those asked for since.
        self._removed: dict[GroupResource, bool] = {}
        #: Listed as controlled, and placed as main so far, as `record` found last.
        self.were_main: frozenset[GroupResource] = frozenset()
        self._asked: set[GroupResource] = set()
        #: What they and the listed ones are called, as far as anybody has said; `None`: not served.
        self._known: dict[GroupResource, Resource | None] = {}
        #: What this leader has written of the ring with that uid; its watch may not show it yet.
        self._written: dict[GroupResource, bool] = {}
        self._uid = ""

    def written(self, status: Mapping[str, Any], uid: str) -> dict[GroupResource, bool]:
        """What is written down, or may be, of the ring with that `uid`; each with whether it is controlled."""
        if uid != self._uid:
            self._uid, self._written = uid, {}
        return {**dict(placed_resources(status)), **self._written}

    async def record(
        self, status: Mapping[str, Any], resolved: ResolvedRing, clean: frozenset[LetGo]
    ) -> tuple[RingResource, ...]:
        """Write down every resource that may carry the ring's labels: those that it had, and those of `resolved`.

        What the ring's spec names and `resolved` leaves out stays as it was: it is not served, or has to wait for
        rights.  What it had as main and lists as controlled stays main until shards have let go of it as that; these
        are `were_main` then.  Returns those that the ring lists no longer, as far as it is known what they are called.
        `status`: the ring's, as last seen.  `clean`: removed resources of which no object has labels any more, and
        those that were main and whose objects are with the owners that they have by now; each counts for the part
        that it has there, and for no other that `resolved` gives it.
        Raises: ShardingError when it is not written down; then no object may get a label.
        """
        shown, before = dict(placed_resources(status)), self.written(status, resolved.spec.uid)
        mains = {each.resource.group_resource: each.main.resource.group_resource for each in resolved.subjects()}
        listed = {each.resource.group_resource: each.role is Role.CONTROLLED for each in resolved.subjects()}
        were_main = {name for name, controlled in listed.items() if controlled and not before.get(name, True)}
        self.were_main = frozenset(name for name in were_main if LetGo(name, mains[name]) not in clean)
        listed.update(dict.fromkeys(self.were_main, False))
        # Also what an owner that is not served controls: its labels are needed when it is served again.
        left_out = set(resolved.spec.named) - listed.keys()
        removed = {
            name: controlled
            for name, controlled in before.items()
            if name not in listed and name not in left_out and LetGo(name) not in clean
        }
        wanted = {**{name: kept for name, kept in before.items() if name in left_out}, **removed, **listed}
        # What is listed now is known when it is taken off: its objects are not lost sight of until somebody answers.
        self._known = {name: known for name, known in self._known.items() if name in wanted}
        self._known.update({each.resource.group_resource: each.resource for each in resolved.subjects()})
        if wanted != shown:
            rendered = [
                {"group": name.group, "resource": name.resource, "controlled": controlled}
                for name, controlled in sorted(wanted.items())
            ]
            # Also when nobody knows whether it was: what may be written down is not forgotten, nor that it was main.
            self._written.update({name: kept and before.get(name, True) for name, kept in wanted.items()})
            await self._write({"placedResources": rendered})
        self._written = wanted
        self._removed = removed
        self._asked &= removed.keys()
        if removed.keys() - self._asked:
            self._queue.add(self._ring)
        return self._found()

    @property
    def unknown(self) -> frozenset[GroupResource]:
        """Those of which nobody has said yet what they are called."""
        return frozenset(self._removed.keys() - self._known.keys())

    async def run(self) -> None:
        """Look up what is removed, and again what did not answer."""
        try:
            await self._queue.process(self._look_up, self._not_looked_up)
        finally:
            await self._queue.shut_down()

    def _found(self) -> tuple[RingResource, ...]:
        return tuple(
            as_removed(resource, controlled=controlled)
            for name, controlled in sorted(self._removed.items())
            if (resource := self._known.get(name)) is not None
        )

    async def _look_up(self, _: str) -> None:
        async with self._slots:
            names = sorted(self._removed)
            self._asked.update(names)
            answers = await look_up(self._api, names)
        before = (self._found(), self.unknown)
        served = {name: workable(found) for name, found in answers.served.items()}
        self._known.update({name: found for name, found in served.items() if name in self._removed})
        if (self._found(), self.unknown) != before:
            self._when_found()
        for name, error in answers.failures.items():
            extra = {"ring": self._ring, "resource": str(name), "error": str(error)}
            log.warning("resource that was taken off the ring not looked up, will retry", extra=extra)
        if answers.failures:
            raise next(iter(answers.failures.values()))
        if self._removed:
            self._queue.add_after(self._ring, BELIEVED_SECONDS, Priority.BULK)

    def _not_looked_up(self, ring: str, error: Exception) -> None:
        if not isinstance(error, ShardingError):
            extra = {"ring": ring}
            log.error("resource that was taken off the ring not looked up, will retry", extra=extra, exc_info=error)
        self._queue.add_rate_limited(ring)


def as_removed(resource: Resource, *, controlled: bool) -> RingResource:
    """A resource that the ring lists no longer, as placement sees it."""
    main = ResolvedMain(resource)
    return RingResource(Subject(Role.CONTROLLED if controlled else Role.MAIN, resource, main), removed=True)
