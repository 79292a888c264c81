"""Until when an operator can be told what it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shardsdk.errors import ConfigurationError


class Declaring:
    """Whether an operator of this name has been handed to a manager, which hears of nothing that comes later."""

    def __init__(self, operator: str) -> None:
        self._operator = operator
        self._over = False

    def end(self) -> None:
        """From now on `check` refuses."""
        self._over = True

    @contextmanager
    def ended_meanwhile(self) -> Iterator[None]:
        """What `end` is called for in here ends with it."""
        before = self._over
        try:
            yield
        finally:
            self._over = before

    def check(self, what: str) -> None:
        """Raises: ConfigurationError when nothing would come of it any more."""
        if self._over:
            raise ConfigurationError(
                f"operator {self._operator!r} has been made a manager of, or runs, so that nothing would come of"
                f" {what}: declare it before"
            )
