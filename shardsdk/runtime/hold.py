"""The hold: until when this process may write, by its own clock.

Does: answer `remaining()` to whoever is about to write, from any thread.
Refuses: to be opened again once it was closed, and to be set back.
"""

from __future__ import annotations

import math

from shardsdk.kube.clock import Clock


class Hold:
    """A fence (`shardsdk.kube.api.Fence`) that is open while a lease is held.

    Its keeper moves the end; everybody else only asks.  Each field is written by
    one thread and read as one value, so there is no lock.
    """

    __slots__ = ("_clock", "_closed", "_ends_at", "_name")

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._ends_at = -math.inf
        self._closed = False

    @property
    def name(self) -> str:
        """The lease, for messages."""
        return self._name

    @property
    def ends_at(self) -> float:
        """When the hold ends unless the lease is renewed, on the clock's `monotonic`; minus infinity: never held."""
        return self._ends_at

    @property
    def closed(self) -> bool:
        """Whether it was closed for good."""
        return self._closed

    def remaining(self) -> float:
        """Seconds for which writes are allowed; zero or less: none are."""
        return -math.inf if self._closed else self._ends_at - self._clock.monotonic()

    def extend(self, ends_at: float) -> None:
        """A renewal was confirmed: the hold lasts until `ends_at` at least."""
        self._ends_at = max(self._ends_at, ends_at)

    def close(self) -> None:
        """Allow no write any more."""
        self._closed = True
