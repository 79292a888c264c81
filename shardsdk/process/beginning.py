"""Whether a process may begin its work here: not within an event loop, nor while a command loads its program."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shardsdk.errors import ConfigurationError

#: The programs that a command loads at the moment, as they were named: a file, a module.
_LOADING: Final[list[str]] = []


@contextmanager
def loading(program: str) -> Iterator[None]:
    """Within this context `program` is loaded to be looked at, or to be run later as its command says."""
    _LOADING.append(program)
    try:
        yield
    finally:
        _LOADING.pop()


def check_not_loading() -> None:
    """Raises: ConfigurationError within `loading`: what began here would heed no option of the command."""
    if _LOADING:
        raise ConfigurationError(
            f'{_LOADING[-1]} is only loaded here, and runs what it has: write `if __name__ == "__main__":` above that'
        )


def check_may_run() -> None:
    """Raises: ConfigurationError where nothing is to run, or nothing can be run to its end."""
    check_not_loading()
    if asyncio._get_running_loop() is not None:
        raise ConfigurationError(
            "an event loop runs here already, in which nothing can be run to its end: await run_async() of the manager"
            " there instead (an operator's is operator.manager())"
        )
