"""Whether a ring's placement fails again and again: it begins anew each time, and the ring alone would not show it."""

from __future__ import annotations

from typing import Final

#: It is told when it has failed again so long after it failed first, and until it has not failed for so long.
TOLD_SECONDS: Final = 30.0
CALM_SECONDS: Final = 60.0


class Failing:
    """How the placements of one ring have failed; times are monotonic."""

    def __init__(self) -> None:
        self._since = self._last_at = float("-inf")
        self._error = ""

    def failed(self, error: Exception, now: float) -> None:
        """One has failed over something that nobody expected."""
        if not self.lately(now):
            self._since = now
        self._last_at, self._error = now, repr(error)

    def lately(self, now: float) -> bool:
        """Whether one has failed a short while ago."""
        return now - self._last_at < CALM_SECONDS

    def words(self, now: float) -> str | None:
        """What people are to know; `None`: nothing, or no more than the log says."""
        if not self.lately(now) or self._last_at - self._since < TOLD_SECONDS:
            return None
        return (
            "objects are not placed, or late: the placement fails again and again and begins anew:"
            f" {self._error[:200]}; this is a bug, please report the stack that the leader has logged"
        )
