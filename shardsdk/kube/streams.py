"""A row of streams, one after the other: how long to pause between them, and what it means that one is silent."""

from __future__ import annotations

import math
import random
from typing import Final

from shardsdk.errors import ApiError, ConnectionFailed, ServerError, ShardingError
from shardsdk.kube.backoff import Backoff, asked_by, double
from shardsdk.kube.clock import Clock
from shardsdk.kube.waits import Unanswered
from shardsdk.protocol.objects import Resource

#: After a stream that lasted so long, the pause is no longer than it was, so that however
#: often it breaks, it is up half of the time; it is short again if it outlived the pause before it.
HEALTHY_SECONDS: Final = 2.0
#: Longest pause between two attempts.
PAUSE_MAX_SECONDS: Final = 30.0
#: Where no bookmarks come, a list looks at least so often whether silence has hidden anything.
QUIET_SECONDS: Final = 600.0
#: How an API server says, in a 503 that is no Status, that what serves a group is away.
#: Source: kube-aggregator, pkg/apiserver/handler_proxy.go; apimachinery, pkg/util/proxy/upgradeaware.go.
_GROUP_AWAY: Final = ("service unavailable", "error trying to reach service")


class Pauses:
    """How long to pause before the next attempt at a stream, by how long this one has lasted."""

    __slots__ = ("_backoff", "_clock", "_unanswered", "last", "opened_at", "refused_since")

    def __init__(self, clock: Clock, rng: random.Random, max_seconds: float) -> None:
        self._clock = clock
        self._backoff = Backoff(rng, max_seconds=max_seconds)
        #: Monotonic time at which this attempt's stream was accepted; `None`: it has not been.
        self.opened_at: float | None = None
        #: The pause before this attempt.
        self.last: float = 0.0
        #: Monotonic time since which the API server has refused whatever was asked; `None`: it has not.  No answer ends
        #: that, and so does a load balancer's: nobody knows what the API server would say, and an outage is told as
        #: such (`Outage`), once for all resources.
        self.refused_since: float | None = None
        #: The last stream has had no answer.
        self._unanswered = False

    def begin(self) -> None:
        """Another attempt begins."""
        self.opened_at = None

    def open(self, *, all_of_it: bool) -> None:
        """This attempt's stream was accepted, and shows `all_of_it`, or what is missing is still refused."""
        self.opened_at, self._unanswered = self._clock.monotonic(), False
        if all_of_it:
            self.refused_since = None

    def listed(self) -> float:
        """A list is complete, from which streams go on; when that was."""
        self._unanswered = False
        return self._clock.monotonic()

    def are_unanswered(self, error: ShardingError) -> bool:
        """Whether neither this stream, which ends by `error`, has had an answer, nor the one before it since the list.

        One alone is an API server that is slow for a moment; a list each time would make it slower.
        """
        before, self._unanswered = self._unanswered, self.opened_at is None and isinstance(error, Unanswered)
        return before and self._unanswered

    def reset(self) -> None:
        """Begin with the shortest pause next time."""
        self._backoff.reset()

    def after(self, error: ShardingError | None) -> float:
        """The attempt has ended, by `error` or in order; seconds to pause, at least those that the error asks for."""
        if self.opened_at is None and _is_no_answer(error):
            self.refused_since = None
        elif self.opened_at is None and self.refused_since is None and isinstance(error, ApiError):
            self.refused_since = self._clock.monotonic()
        lasted = 0.0 if self.opened_at is None else self._clock.monotonic() - self.opened_at
        healthy = lasted >= HEALTHY_SECONDS
        if outlived := healthy and lasted >= self.last:
            self._backoff.reset()
        if outlived and error is None:
            self.last = 0.0
        else:
            asked = 0.0 if error is None else asked_by(error)
            most = lasted if healthy else math.inf
            self.last = self._backoff.next(asked_seconds=asked, most_seconds=most)
        return self.last


def _is_no_answer(error: ShardingError | None) -> bool:
    """Whether nobody has answered for the API server but, perhaps, what stands before it."""
    if isinstance(error, ServerError) and error.status in (502, 503, 504):
        return not error.reason and not error.said.startswith(_GROUP_AWAY)
    return isinstance(error, ConnectionFailed)


class Silence:
    """What it means that a watch says nothing.

    An API server accepts a version that etcd, back from a backup, has never had; then it is silent for ever.  Where
    bookmarks come each minute, silence shows that.  Of what is not in its watch cache, such as core Events, an API
    server sends none: then silence says that nothing has happened, most of the time.
    """

    __slots__ = ("_bookmarked", "_confirmed", "_hides", "_resource", "_seconds", "_was_quiet")

    def __init__(self, seconds: float, bookmarked: set[Resource], resource: Resource) -> None:
        self._seconds = seconds
        #: Of these they come, as far as anybody has found out.
        self._bookmarked = bookmarked
        self._resource = resource
        #: Since the last list, a watch has been silent for `seconds`.
        self._was_quiet = False
        #: So many lists have shown that such a one hid nothing.
        self._confirmed = 0
        #: A list has shown that one did; then nothing is believed any more.
        self._hides = False

    @property
    def trusted_seconds(self) -> float:
        """After how much of it, however the watches end, only a list can tell where one is."""
        # A proxy that forwards nothing is as silent: the more lists have confirmed, the longer it is believed.
        times = self._confirmed if self._may_be_quiet else 0
        return double(self._seconds, times, max(self._seconds, QUIET_SECONDS))

    @property
    def _may_be_quiet(self) -> bool:
        return not self._hides and self._resource not in self._bookmarked

    def heard_bookmark(self) -> None:
        """One came, other than that at the end of initial events."""
        self._bookmarked.add(self._resource)

    def takes_for_quiet(self, seconds: float) -> bool:
        """A watch ends that has said nothing for so long: whether it may have been quiet, and no more."""
        quiet = self._may_be_quiet and seconds >= self._seconds
        self._was_quiet = self._was_quiet or quiet
        return quiet

    def has_hidden(self, before: int | None, told: int) -> bool:
        """A list is complete: whether it has told what no watch had.

        Changes that were told when it began, of a list that was made for the silence (`None`: it was not), and now.
        """
        was_quiet, self._was_quiet = self._was_quiet, False
        if before is None:
            return False
        hidden = told > before
        self._hides = self._hides or hidden
        # Watches that somebody ends sooner than bookmarks are due were not put to the test.
        self._confirmed += was_quiet and not hidden
        return hidden
