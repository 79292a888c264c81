"""Until when an operator can be told what it does."""

from __future__ import annotations

import os
import sys
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


def does_nothing(operator: str) -> ConfigurationError:
    """What is wrong with an operator to which nobody has given a function, or none to this one."""
    main, again = sys.modules.get("__main__"), ""
    if file := getattr(main, "__file__", None):
        # As others import it: `python split.py`, and `from split import operator` in what that imports.
        copies = (name for name, each in tuple(sys.modules.items()) if each is not main and _is_of(each, file))
        again = next(copies, "")
    if not again:
        return ConfigurationError(f"operator {operator!r} does nothing: decorate a function with reconcile(Kind)")
    return ConfigurationError(
        f"operator {operator!r} does nothing: {file} was loaded twice, as the program and as the module {again!r}, and"
        " the functions are that one's: make the Operator in a file of its own, that both import"
    )


def _is_of(module: object, file: str) -> bool:
    other = getattr(module, "__file__", None)
    return bool(other) and os.path.abspath(str(other)) == os.path.abspath(file)
