"""The event loop on which a reconcile was begun, for those who are in another thread."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from shardsdk.errors import ConfigurationError

R = TypeVar("R")
T = TypeVar("T")


class OwnLoop:
    """The running loop, its thread and its process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._process = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is another process, one that was forked: there the loop never takes a turn."""
        return os.getpid() != self._process

    def read(self, read: Callable[[], R]) -> R:
        """The answer of `read()`, asked on the loop's thread.  Raises: ConfigurationError in a forked process."""
        self._check_process()
        if threading.get_ident() == self._thread:
            return read()
        answer: Future[R] = Future()

        def call() -> None:
            try:
                answer.set_result(read())
            except BaseException as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(call)
        return answer.result()

    def shared(self, thing: T) -> T:
        """`thing`, as another thread may have it: whatever is asked of it is asked on the loop's thread."""
        if self.forked or threading.get_ident() == self._thread:
            return thing
        return cast("T", _OnLoop(thing, self.read))

    def check_waits(self) -> None:
        """Raises: ConfigurationError where nobody can wait for what runs on the loop."""
        self._check_process()
        if threading.get_ident() == self._thread:
            raise ConfigurationError("ctx.run(…) is for plain functions: in an async one, await the call")

    def wait(self, call: Coroutine[Any, Any, R]) -> R:
        """What `call` gives, run on the loop.  Raises: what it raises."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def _check_process(self) -> None:
        if self.forked:
            raise ConfigurationError(
                "the context belongs to the process that the reconcile runs in, and this one was forked from it: hand"
                " over what the work needs (ctx.object, say), and write when it has returned"
            )


class _OnLoop:
    """Something that only the loop's thread may look at, for others: `read` calls there."""

    def __init__(self, thing: Any, read: Callable[[Callable[[], Any]], Any]) -> None:
        self._thing = thing
        self._read = read

    def __getattr__(self, name: str) -> Any:
        method = getattr(type(self._thing), name, None)
        if not inspect.isfunction(method) or inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            return self._read(lambda: getattr(self._thing, name))
        return lambda *arguments, **named: self._read(lambda: method(self._thing, *arguments, **named))

    def __len__(self) -> int:
        return int(self._read(lambda: len(self._thing)))
