"""Initial events, by which a watch begins with everything that exists: whether an API server sends them.

An API server that is older than they are refuses them, or does not know them and ignores the wish, as one that is
aggregated may: then what exists comes all the same, and no end of it.  A proxy that holds an answer back until it is
complete lets no stream begin, but lists in pages pass.
"""

from __future__ import annotations

from typing import Final

from shardsdk.errors import Invalid, ShardingError, StreamInterrupted
from shardsdk.kube.waits import Unanswered

#: After so many streams in a row that ended early, lists are made in pages.
STREAM_FAILURES_MAX: Final = 2
#: Where they do not work they are asked for again so rarely: API servers are upgraded.
ASK_AGAIN_SECONDS: Final = 3600.0
#: Where streams have only broken, as they do when an API server restarts.
BROKEN_SECONDS: Final = 60.0
#: Where they had no answer: what does not pass streams on does not for long, and each try takes its time.
UNANSWERED_SECONDS: Final = 600.0


#: What ends a stream before it was complete in a way that `InitialEvents.failed` is to know of.
FAILURES: Final = (Invalid, StreamInterrupted, Unanswered)


class Silent(StreamInterrupted):
    """A stream has said nothing for so long that it is taken for dead."""


class NoEnd(StreamInterrupted):
    """A stream's initial events have come, and their end has not."""


class InitialEvents:
    """What one client knows of them for one resource, whoever asked; times are monotonic."""

    __slots__ = ("_ask_at", "_failed_at", "_failures")

    def __init__(self) -> None:
        self._failures = 0
        self._failed_at = float("-inf")
        self._ask_at = float("-inf")

    def worth_a_try(self, now: float) -> bool:
        """Whether to ask for them."""
        return now >= self._ask_at

    def failed(self, error: ShardingError, began: float, now: float) -> None:
        """They were refused, or a stream that `began` then ended before it was complete."""
        told = isinstance(error, Invalid | NoEnd)
        if began < self._failed_at and not told:
            return  # what has ended another one meanwhile has ended this one, too
        self._failures, self._failed_at = self._failures + 1, now
        if told or self._failures >= STREAM_FAILURES_MAX:
            # Where nothing exists, silence is all that comes of a wish that is ignored.
            held_back = UNANSWERED_SECONDS if isinstance(error, Unanswered) else BROKEN_SECONDS
            seconds = ASK_AGAIN_SECONDS if told or isinstance(error, Silent) else held_back
            self._failures, self._ask_at = 0, now + seconds

    def worked(self) -> None:
        """A stream is complete."""
        self._failures = 0
