"""Pauses: those that grow, with jitter, and those that an answer asks for."""

from __future__ import annotations

import math
import random
from typing import Final

from shardsdk.errors import ApiError, TooManyRequests

#: Doubling beyond this power changes nothing any more and would overflow in the end.
_POWER_MAX: Final = 60
#: An API server that has too much to do (429) may ask to be left alone for so long.  It asks for half a minute at the
#: most itself.  Source: apiserver, util/flowcontrol/dropped_requests_tracker.go, maxRetryAfter = 32 seconds.
ASKED_MAX_SECONDS: Final = 60.0
#: Whoever cannot answer (503) may for so long: an API server that begins or ends asks for one second, a load balancer
#: without a backend for a minute or an hour, and may be well a second later.
UNWELL_MAX_SECONDS: Final = 5.0


def asked_by(error: BaseException) -> float:
    """For how many seconds whoever answered with `error` is to be left alone; 0.0: it has not asked for that."""
    asked = (error.retry_after_seconds if isinstance(error, ApiError) else None) or 0.0
    return min(asked, ASKED_MAX_SECONDS if isinstance(error, TooManyRequests) else UNWELL_MAX_SECONDS)


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
