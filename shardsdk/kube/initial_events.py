"""Whether a list is read as the initial events of a watch, or in pages."""

from __future__ import annotations

from typing import Final

#: After so many streams in a row that ended early, the next list is in pages: an
#: API server that does not know initial events ignores the wish and never ends them.
STREAM_FAILURES_MAX: Final = 2


class InitialEvents:
    """What is known of them for one resource."""

    __slots__ = ("_failures", "_refused")

    def __init__(self) -> None:
        self._failures = 0
        self._refused = False

    @property
    def worth_a_try(self) -> bool:
        """Whether to ask for them."""
        return not self._refused and self._failures < STREAM_FAILURES_MAX

    def refused(self) -> None:
        """The API server does not serve them: never again."""
        self._refused = True

    def failed(self) -> None:
        """A stream ended before it was complete."""
        self._failures += 1

    def listed(self) -> None:
        """A list is complete, however it was read."""
        self._failures = 0
