"""With a reconcile that runs though its object, or the range that it is in, is to be given away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardsdk.cache.identity import Identity, facts_of
from shardsdk.cache.objects import Request
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import Resource

log: Final = logger_of(__name__)

#: It is told that something is held up by one for so long, and again after twice as long, and so on.
TELL_SECONDS: Final = 15.0
#: A moment that is so near is now.
AT_ONCE_SECONDS: Final = 0.001


class Patience:
    """When it is told that an object is busy, and when `cancel()` is called: after `limit_seconds` (`None`: never)."""

    __slots__ = ("_cancel", "_cancel_in", "_request", "_resource", "_shard", "_tell_in")

    def __init__(
        self,
        limit_seconds: float | None,
        cancel: Callable[[], object],
        shard: Identity,
        resource: Resource,
        request: Request,
    ) -> None:
        self._cancel = cancel
        self._cancel_in = float("inf") if limit_seconds is None else limit_seconds
        self._tell_in = TELL_SECONDS
        self._shard = shard
        self._resource = resource
        self._request = request

    def look(self, waited_seconds: float) -> float:
        """Do what is due by now, after so many seconds; in how many there is more to do."""
        now = waited_seconds + AT_ONCE_SECONDS
        where = facts_of(self._shard, self._resource, self._request)
        if self._cancel_in <= now:
            self._cancel_in = float("inf")
            log.warning("Reconcile cancelled: its object is being drained", extra=where)
            self._cancel()
        elif self._tell_in <= now:
            log.warning(
                "A drain waits for a reconcile that runs for long",
                extra={**where, "waited_seconds": round(waited_seconds)},
            )
        while self._tell_in <= now:
            self._tell_in *= 2
        return min(self._tell_in, self._cancel_in) - waited_seconds
