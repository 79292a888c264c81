"""Virtual time: an event loop whose clock jumps to the next timer as soon as nothing else can run.

    @in_virtual_time
    async def test_naps(clock: VirtualClock) -> None:
        await asyncio.sleep(3600)
        assert clock.monotonic() == 3600

>>> async def nap(clock: VirtualClock) -> float:
...     await clock.sleep(3600)
...     return clock.monotonic()
>>> run_virtual(nap)
3600.0

Guarantees, each named by a test in tests/unit/test_virtual.py:

- `asyncio.sleep`, `asyncio.timeout` and `call_later` obey virtual time and cost no real time.
- Two runs of one scenario take the same steps in the same order, as long as the
  scenario itself iterates over no sets of tasks or futures.
- A scenario in which nothing can ever happen again ends with `Deadlock`, one
  that spins without letting time pass with `Livelock`, one that goes on for
  longer than `limit_seconds` with `TimeLimit`.

Refuses: threads, sockets and subprocesses.  Their progress has nothing to do
with virtual time, so a test that needs them belongs on a real loop.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import selectors
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from shardsdk.errors import ShardingError
from shardsdk.testing.processes import open_all_gates, process_task_factory

T = TypeVar("T")
P = ParamSpec("P")

#: What the wall clock says when the monotonic clock says zero.
EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
#: A scenario that lasts longer is taken to be one that never ends.
LIMIT_SECONDS: Final = 7 * 24 * 3600.0
#: So many turns of the loop without any time passing are a scenario that spins.
LIMIT_TURNS: Final = 1_000_000


class Deadlock(ShardingError):
    """Every task waits, and no timer is left that could wake one."""


class Livelock(ShardingError):
    """Tasks keep running, and time does not pass."""


class TimeLimit(ShardingError):
    """The scenario goes on for longer than it was given."""


class VirtualClock:
    """The clock of a scenario; satisfies `shardsdk.kube.clock.Clock`."""

    __slots__ = ("_now",)

    def __init__(self, start_seconds: float = 0.0) -> None:
        self._now = start_seconds

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._now

    def now(self) -> datetime:
        """Wall clock that goes as fast as virtual time."""
        return EPOCH + timedelta(seconds=self._now)

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(max(seconds, 0.0))

    def jump(self, seconds: float) -> None:
        """Move time forward; timers that are due then fire at once, as after a suspended machine's wake-up."""
        self._now = max(self._now + seconds, math.nextafter(self._now, math.inf))


class SkewedClock:
    """The clock of another machine in the same scenario.

    `ahead_seconds` moves its wall clock, `boot_seconds` the zero of its
    monotonic clock, which goes `rate` times as fast as the scenario's.  The event
    loop's own timers (`asyncio.timeout`) keep the scenario's time.
    """

    __slots__ = ("_ahead", "_boot", "_clock", "_rate")

    def __init__(
        self, clock: VirtualClock, *, ahead_seconds: float = 0.0, boot_seconds: float = 0.0, rate: float = 1.0
    ) -> None:
        self._clock = clock
        self._ahead = timedelta(seconds=ahead_seconds)
        self._boot = boot_seconds
        self._rate = rate

    def monotonic(self) -> float:
        """Seconds since this machine's own zero, as this machine counts them."""
        return self._clock.monotonic() * self._rate + self._boot

    def now(self) -> datetime:
        """This machine's idea of the time."""
        return self._clock.now() + self._ahead

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass, until this machine has counted so many seconds."""
        await self._clock.sleep(seconds / self._rate)


class _JumpingSelector(selectors.BaseSelector):
    """What the loop waits on: instead of waiting, time is moved to where the wait would have ended."""

    def __init__(self, clock: VirtualClock, limit_seconds: float) -> None:
        self._clock = clock
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._turns = 0
        self._end = clock.monotonic() + limit_seconds
        self.strict = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock(f"nothing can happen any more, all tasks wait:\n{_describe_tasks()}")
        if timeout > 0:
            self._turns = 0
            self._clock.jump(timeout)
        self._turns += 1
        if self.strict and self._turns > LIMIT_TURNS:
            raise Livelock(f"{LIMIT_TURNS} turns of the loop and no time has passed:\n{_describe_tasks()}")
        if self.strict and self._clock.monotonic() > self._end:
            raise TimeLimit(f"the scenario still runs at {self._clock.monotonic():.0f} s:\n{_describe_tasks()}")
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, number, events, data)
        self._keys[number] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


def run_virtual(
    scenario: Callable[[VirtualClock], Awaitable[T]],
    *,
    clock: VirtualClock | None = None,
    limit_seconds: float = LIMIT_SECONDS,
) -> T:
    """Run `scenario` to its end in virtual time and give its result.

    Tasks that are left when it ends are cancelled, those of paused and killed
    processes too.

    Raises: Deadlock, Livelock, TimeLimit, and whatever the scenario raises.
    """
    the_clock = clock or VirtualClock()
    selector = _JumpingSelector(the_clock, limit_seconds)

    async def main() -> T:
        return await scenario(the_clock)

    with asyncio.Runner(loop_factory=lambda: _loop(the_clock, selector)) as runner:
        try:
            return runner.run(main())
        finally:
            selector.strict = False
            open_all_gates(runner.get_loop())


def in_virtual_time(test: Callable[Concatenate[VirtualClock, P], Awaitable[None]]) -> Callable[P, None]:
    """Decorate `async def test_something(clock, …)`; its other parameters stay fixtures."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(lambda clock: test(clock, *args, **kwargs))

    # A test runner looks at the signature for fixtures, and through `__wrapped__` for a coroutine function.
    _, *fixtures = inspect.signature(test).parameters.values()
    run.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
    del run.__dict__["__wrapped__"]
    return run


def virtual_loop(clock: VirtualClock, *, limit_seconds: float = LIMIT_SECONDS) -> asyncio.AbstractEventLoop:
    """A new event loop that lives in the time of `clock`, for those who run and close it themselves."""
    return _loop(clock, _JumpingSelector(clock, limit_seconds))


def _loop(clock: VirtualClock, selector: _JumpingSelector) -> asyncio.AbstractEventLoop:
    loop = asyncio.SelectorEventLoop(selector)
    # The loop asks itself for the time; everything that waits hangs on this one method.
    setattr(loop, "time", clock.monotonic)  # noqa: B010
    setattr(loop, "run_in_executor", _no_threads)  # noqa: B010
    loop.set_task_factory(process_task_factory)
    return loop


def _no_threads(*_: object) -> None:
    raise RuntimeError("threads do not run in virtual time; inject something that needs none")


def _describe_tasks() -> str:
    try:
        tasks = asyncio.all_tasks(asyncio.get_running_loop())
    except RuntimeError:
        return "(no loop)"
    return "\n".join(sorted(repr(task) for task in tasks if not task.done()))
