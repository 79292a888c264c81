"""Virtual time: an event loop that never waits, because its clock jumps to the next timer.

Does: run unchanged asyncio code (`sleep`, `timeout`, `call_later`) together with
a `Clock` that tells the loop's time, so that an hour passes in milliseconds and
a test that passes once passes always.  Refuses: threads, sockets and anything
else that makes progress outside the loop; when nothing in the loop can happen
any more it says so instead of hanging.

>>> async def nap(clock: VirtualClock) -> float:
...     await clock.sleep(3600)
...     return clock.monotonic()
>>> run_virtual(nap)
3600.0
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

#: What the wall clock of virtual time says when its monotonic clock says zero.
EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)


class Deadlock(Exception):
    """Every task waits, and no timer is set: nothing will ever happen again."""


class VirtualClock:
    """A `Clock` whose time is the virtual loop's; it starts at zero."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def now(self) -> datetime:
        """`EPOCH` plus the virtual time."""
        return EPOCH + timedelta(seconds=self._now)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(max(seconds, 0.0))

    def jump(self, seconds: float) -> None:
        """Let time pass without anything happening in it, as when a process is suspended."""
        self._now += seconds


class _JumpingSelector:
    """Stands in for a selector: where a real one would wait, time jumps."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready:
            return ready
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        self._clock.jump(max(timeout, 0.0))
        return []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def virtual_loop(clock: VirtualClock) -> asyncio.AbstractEventLoop:
    """A new event loop that lives in the time of `clock`."""
    loop = asyncio.SelectorEventLoop(_JumpingSelector(clock))  # type: ignore[arg-type]
    loop.time = clock.monotonic  # type: ignore[method-assign]
    loop._clock_resolution = 1e-9  # type: ignore[attr-defined]
    return loop


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, T]]) -> T:
    """Run `main(clock)` in virtual time and return what it returns.

    Raises: Deadlock when it can never end.
    """
    clock = VirtualClock()
    with asyncio.Runner(loop_factory=lambda: virtual_loop(clock)) as runner:
        return runner.run(main(clock))


def in_virtual_time(test: Callable[Concatenate[VirtualClock, P], Awaitable[None]]) -> Callable[P, None]:
    """Decorate `async def test_something(clock, …)`; other parameters stay fixtures."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def body(clock: VirtualClock) -> None:
            await test(clock, *args, **kwargs)

        run_virtual(body)

    # A test runner looks at the signature for fixtures, and through `__wrapped__` for a coroutine function.
    _, *fixtures = inspect.signature(test).parameters.values()
    run.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
    del run.__dict__["__wrapped__"]
    return run
