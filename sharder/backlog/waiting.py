"""Since when objects have been waiting to be placed."""

from __future__ import annotations

from collections.abc import Callable

from sharder.backlog.objects import ItemKey
from shardsdk.kube.clock import Clock


class WaitingSince:
    """By object, in seconds of the monotonic clock: from when it is enqueued first until it is placed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[ItemKey, float] = {}

    def begin(self, key: ItemKey) -> None:
        """The object has to be placed; it may have been waiting before."""
        self._since.setdefault(key, self._clock.monotonic())

    def of(self, key: ItemKey) -> float:
        """Since when it has been waiting; since now, if it has not."""
        return self._since.get(key, self._clock.monotonic())

    def end(self, key: ItemKey) -> None:
        """It waits no longer: it has been placed, or need not be."""
        self._since.pop(key, None)

    def keep(self, held: Callable[[ItemKey], bool]) -> None:
        """Forget the objects that are not `held` any more."""
        self._since = {key: since for key, since in self._since.items() if held(key)}

    def compact(self) -> None:
        """Let go of the room that a mass move has taken: a dict keeps what it had at its largest."""
        self._since = dict(self._since)

    def __len__(self) -> int:
        return len(self._since)
