"""Which failures people are told of: those that have lasted.

What fails and is tried again fails for a moment each time an API server restarts; who was told of each would soon look
no more.  Told by how often it fails it would be by the pauses in between, which differ and grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

What = TypeVar("What")
Error = TypeVar("Error", bound=Exception)

#: What fails for so long is told: longer than a watch or a resync pauses before it tries again, and then some.
LASTING_SECONDS: Final = 90.0


class Lasting(Generic[What, Error]):
    """Remembers since when what fails has failed."""

    def __init__(self) -> None:
        self._since: dict[What, tuple[float, Error]] = {}

    def look(self, failing: Mapping[What, Error], now: float, seconds: float = LASTING_SECONDS) -> dict[What, Error]:
        """Of all that is `failing` at `now` (monotonic) what has for so long; each with the first error of its type."""
        before, self._since = self._since, {}
        for what, error in failing.items():
            since, first = before.get(what, (now, error))
            # Of one trouble the words may differ each time, and each time the ring's status would be written.
            self._since[what] = since, first if type(first) is type(error) else error
        return {what: error for what, (since, error) in self._since.items() if now - since >= seconds}

    @property
    def any(self) -> bool:
        """Whether something failed when it was looked last, for however long."""
        return bool(self._since)
