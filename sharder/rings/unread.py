"""Which of a ring's resources people are told cannot be read: those that could not for a while.

A watch that breaks, or a list that fails, is everyday life and tried again; who was told of each would soon
look no more.  What the sharder has no right to read is told as the right that is missing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sharder.core.rights import MissingRule
from sharder.core.summary import Failures
from shardsdk.errors import Forbidden, ShardingError
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import GroupResource

#: What fails for so long is told: longer than a watch or a resync pauses before it tries again, and then some.
UNREAD_SECONDS: Final = 90.0
#: How often it is looked while something fails, since what can be read again need not tell anybody.
LOOK_SECONDS: Final = 3.0
_READS: Final = ("list", "watch")


class Unread:
    """Remembers since when what fails has failed; `look` again after `LOOK_SECONDS` while `any` does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By resource and what reads it: since when it fails, and with which error.
        self._since: dict[tuple[GroupResource, str], tuple[float, ShardingError]] = {}

    def look(self, failures: Failures, denied: Collection[MissingRule]) -> Failures:
        """Of `failures`, as they are now, those that have lasted; each with the first error of its type.

        `denied`: rights that are known to be missing, and are told of.
        """
        now, before = self._clock.monotonic(), self._since
        self._since = {}
        for resource, reader, error in failures:
            if isinstance(error, Forbidden) and not {MissingRule(verb, resource) for verb in _READS}.isdisjoint(denied):
                continue
            since, first = before.get((resource, reader), (now, error))
            # Of one trouble the words may differ each time, and each time the ring's status would be written.
            self._since[resource, reader] = since, first if type(first) is type(error) else error
        return tuple((*each, error) for each, (since, error) in self._since.items() if now - since >= UNREAD_SECONDS)

    @property
    def any(self) -> bool:
        """Whether something failed when it was looked last, for however long."""
        return bool(self._since)
