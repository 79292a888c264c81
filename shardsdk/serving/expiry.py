"""Tells of a serving certificate that should have been renewed long ago, before it has expired and from then on.

Nothing else shows it: what is loaded is served on, and API servers that do not trust it any more say so to those whose
requests they refuse, or let pass unasked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: At most so long before its end: a week, in which whoever looks after it is at work.
EARLY: Final = timedelta(days=7)
#: How often it is told again.
AGAIN_SECONDS: Final = 24 * 3600.0


class ExpiryWarnings:
    """Warns of the end of a certificate; `remedy` is what can be done about it."""

    def __init__(self, clock: Clock, remedy: str) -> None:
        self._clock = clock
        self._remedy = remedy
        #: The certificate's end, whether it had come, and when that was told (monotonic).
        self._told: tuple[datetime, bool, float] | None = None

    def look(self, expires_at: datetime, early: timedelta, where: Mapping[str, str]) -> None:
        """Warn `early` before the end (a week, if that is later), again each day, and when it has come."""
        now, left = self._clock.monotonic(), expires_at - self._clock.now()
        expired = left <= timedelta(0)
        if left > min(early, EARLY):
            self._told = None
            return
        if self._told is not None:
            of, as_expired, at = self._told
            if (of, as_expired) == (expires_at, expired) and now - at < AGAIN_SECONDS:
                return
        self._told = (expires_at, expired, now)
        facts = {**where, "expires_at": expires_at.isoformat(), "remedy": self._remedy}
        if expired:
            log.error("webhook certificate is not valid now", extra=facts)
        else:
            log.warning("webhook certificate expires soon", extra=facts)
