"""A selection without the `watch` permission: listed now and then instead.

Does: list as soon as it shows that watching is not allowed, soon again while
there is anything, and at rest on the sync period; tell of what differs as a
watch would.  Refuses: to poll where the watch works.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from sharder.controllers.seen import SeenObject
from shardsdk.errors import Forbidden, ShardingError
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind, Reflector

#: Pause before the first list, and while lists find anything; it doubles at rest.
POLL_SECONDS: Final = 1.0
#: The longest pause where the sync period is longer, or off.
MAX_POLL_SECONDS: Final = 300.0

_Key = tuple[str, str]


class Poll:
    """Lists in place of `reflector` while that is not allowed to watch; `objects` None: it is, or no list is in."""

    def __init__(
        self,
        reflector: Reflector[SeenObject],
        pages: Callable[[], AsyncIterator[list[SeenObject]]],
        wanted: Callable[[SeenObject], bool],
        *,
        clock: Clock,
        sync_period_seconds: float,
    ) -> None:
        self._reflector = reflector
        self._pages = pages
        self._wanted = wanted
        self._clock = clock
        self._max_seconds = min(sync_period_seconds, MAX_POLL_SECONDS)
        self.objects: dict[_Key, SeenObject] | None = None

    def needed(self) -> bool:
        """Whether watching is not allowed at present."""
        return isinstance(self._reflector.failure, Forbidden)

    async def run(self, on_delta: Callable[[Delta[SeenObject]], None], on_listed: Callable[[], None]) -> None:
        """Poll until cancelled; `on_listed` is told of every first complete list."""
        pause = POLL_SECONDS
        while True:
            await self._clock.sleep(min(pause, self._max_seconds))
            pause = min(2 * pause, self._max_seconds)
            if not self.needed():
                self.objects = None
                continue
            try:
                listed = {_key(obj): obj async for page in self._pages() for obj in page if self._wanted(obj)}
            except ShardingError:
                # The reflector meets the same, and its failure is shown.
                continue
            if not self.needed():
                continue
            first, before = self.objects is None, self._shown()
            self.objects = listed
            for delta in _differences(before, listed):
                on_delta(delta)
            if first:
                on_listed()
            if listed:
                pause = POLL_SECONDS

    def _shown(self) -> dict[_Key, SeenObject]:
        return self.objects if self.objects is not None else {_key(obj): obj for obj in self._reflector.store}


def _differences(before: dict[_Key, SeenObject], after: dict[_Key, SeenObject]) -> Iterator[Delta[SeenObject]]:
    for key, obj in before.items():
        if key not in after:
            yield Delta(EventKind.DELETED, obj, obj, initial=True)
    for key, obj in after.items():
        old = before.get(key)
        if old is None:
            yield Delta(EventKind.ADDED, obj, None, initial=True)
        elif old.metadata.resource_version != obj.metadata.resource_version:
            yield Delta(EventKind.MODIFIED, obj, old, initial=True)


def _key(obj: SeenObject) -> _Key:
    return obj.metadata.namespace, obj.metadata.name
