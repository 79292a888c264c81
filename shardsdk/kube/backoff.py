"""Pauses that grow, with jitter."""

from __future__ import annotations

import math
import random
from typing import Final

#: Doubling beyond this power changes nothing any more and would overflow in the end.
_POWER_MAX: Final = 60


def double(first_seconds: float, times: int, max_seconds: float) -> float:
    """`first_seconds` doubled so many times, at most `max_seconds`."""
    return min(first_seconds * 2.0 ** min(times, _POWER_MAX), max_seconds)


class Backoff:
    """Exponential pauses from `first_seconds` to `max_seconds`.

    Each is drawn from the upper half of its span, so that many clients that
    failed together do not come back together.
    """

    __slots__ = ("_failures", "_first_seconds", "_max_seconds", "_rng")

    def __init__(self, rng: random.Random, *, first_seconds: float = 0.2, max_seconds: float = 30.0) -> None:
        self._rng = rng
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds
        self._failures = 0

    @property
    def failures(self) -> int:
        """Pauses since the last reset."""
        return self._failures

    def next(self, *, asked_seconds: float = 0.0, most_seconds: float = math.inf) -> float:
        """Seconds to pause after one more failure, at most so many; but those asked for, up to the longest pause."""
        span = double(self._first_seconds, self._failures, self._max_seconds)
        self._failures += 1
        return max(min(self._rng.uniform(span / 2, span), most_seconds), min(asked_seconds, self._max_seconds))

    def reset(self) -> None:
        """It works again: begin with the shortest pause next time."""
        self._failures = 0
