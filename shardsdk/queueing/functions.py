"""Functions of a user's: which are async, and which could not be called as they are meant, so that they are refused.

A reconcile may be either: a plain one runs in a thread.  What is asked between two events of a watch (a predicate, an
index) is plain, because nothing is awaited there.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from shardsdk.errors import ConfigurationError


def is_async(function: Any) -> bool:
    """Whether calling it only gives something to await.

    A plain function under which there is an async one (`functools.wraps`) may do the same, or run that in a loop of
    its own: so it is called in a thread, and what it returns is awaited if that has to be.
    """
    if isinstance(function, functools.partial):
        return is_async(function.func)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def check_no_generator(function: Any) -> None:
    """Raises: ConfigurationError for a function with a `yield`: called, it does nothing yet."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{getattr(function, '__qualname__', repr(function))} has a `yield`, so that a call runs nothing of it:"
            " write it without"
        )


def check_plain(function: Any, what: str) -> None:
    """Raises: ConfigurationError for what cannot be called, and for an async function, which nobody would await."""
    if not callable(function):
        raise ConfigurationError(f"{what} is {function!r}, which is no function")
    if is_async(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{what} is an async function, but is asked between two events of a watch: write a plain one (`def`)"
        )
