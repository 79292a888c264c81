"""Which of a ring's resources people are told cannot be read: those that could not for a while.

What the sharder has no right to read is told as the right that is missing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sharder.core.lasting import Lasting
from sharder.core.rights import MissingRule
from sharder.core.summary import Failures
from shardsdk.errors import Forbidden, ShardingError
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import GroupResource

#: How often it is looked while something fails, since what can be read again need not tell anybody.
LOOK_SECONDS: Final = 3.0
_READS: Final = ("list", "watch")


class Unread:
    """Remembers since when what fails has failed; `look` again after `LOOK_SECONDS` while `any` does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By resource and what reads it.
        self._failing: Lasting[tuple[GroupResource, str], ShardingError] = Lasting()

    def look(self, failures: Failures, denied: Collection[MissingRule]) -> Failures:
        """Of `failures`, as they are now, those that have lasted; each with the first error of its type.

        `denied`: rights that are known to be missing, and are told of.
        """
        failing = {
            (resource, reader): error
            for resource, reader, error in failures
            if not (isinstance(error, Forbidden) and any(MissingRule(verb, resource) in denied for verb in _READS))
        }
        return tuple((*each, error) for each, error in self._failing.look(failing, self._clock.monotonic()).items())

    @property
    def any(self) -> bool:
        """Whether something failed when it was looked last, for however long."""
        return self._failing.any
