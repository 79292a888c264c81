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

Guarantees, each named by a test in tests/unit/shardsdk/testing/test_virtual.py:

- `asyncio.sleep`, `asyncio.timeout` and `call_later` obey virtual time and cost no real time.
- Two runs of one scenario take the same steps in the same order, as long as the
  scenario itself iterates over no sets of tasks or futures.
- A scenario in which nothing can ever happen again ends with `Deadlock`, one
  that spins without letting time pass with `Livelock`, one that goes on for
  longer than `limit_seconds` with `TimeLimit`.

What is called in a thread (`asyncio.to_thread`) takes no virtual time: that stands still while it works, and goes
on while it waits for a coroutine that it has handed to the loop (`asyncio.run_coroutine_threadsafe`, `Context.run`).
One that waits for what takes time by other means ends with `Deadlock`, a minute of real time later.

Refuses: sockets and subprocesses.  Their progress has nothing to do with
virtual time, so a test that needs them belongs on a real loop.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import inspect
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from shardsdk.errors import ShardingError
from shardsdk.testing.processes import forget_processes, open_all_gates, process_task_factory
from shardsdk.testing.threads import Threads

T = TypeVar("T")
P = ParamSpec("P")

#: What the wall clock says when the monotonic clock says zero.
EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
#: A scenario that lasts longer is taken to be one that never ends.
LIMIT_SECONDS: Final = 7 * 24 * 3600.0
#: So many turns of the loop without any time passing are a scenario that spins.
LIMIT_TURNS: Final = 1_000_000
_THREAD_WAITS: Final = (
    "a thread waits for something that takes time, which stands still until it has returned (it goes on for coroutines"
    " that the thread hands to the loop and waits for, by ctx.run or asyncio.run_coroutine_threadsafe)"
)
#: Cancelled timers are swept out when there are so many, and more of them than of others.
_SWEEP_AT: Final = 64
#: What is cancelled may start others (a last request, say), and these again; no more often than this.
_END_ROUNDS: Final = 10


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
        return EPOCH + timedelta(0, self._now)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Let virtual time pass."""
        return asyncio.sleep(max(seconds, 0.0))

    def jump(self, seconds: float) -> None:
        """Move time forward; timers that are due then fire at once, as after a suspended machine's wake-up."""
        self._now = max(self._now + seconds, math.nextafter(self._now, math.inf))

    def move_to(self, moment: float) -> None:
        """Move time forward to `moment`, which is the next at which anything happens."""
        self._now = moment


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
        return self._clock._now * self._rate + self._boot

    def now(self) -> datetime:
        """This machine's idea of the time."""
        return EPOCH + timedelta(0, self._clock._now) + self._ahead

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Let virtual time pass, until this machine has counted so many seconds; never less, as real timers."""
        ends = self.monotonic() + seconds
        moment, now = (ends - self._boot) / self._rate, self._clock.monotonic()
        # What rounding takes away would leave a rest that is shorter than anything, and for which no time passes.
        while moment * self._rate + self._boot < ends:
            moment += max(math.ulp(moment), math.ulp(ends))
        pause = moment - now
        pause = pause if now + pause >= moment else pause + math.ulp(moment)
        return asyncio.sleep(max(pause, 0.0))


class _Handle(msgspec.Struct, eq=False):
    """A callback that is due; what asyncio's has, but for what that keeps for its debug mode."""

    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _context: Context
    _cancelled: bool = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled


class _Timer(msgspec.Struct, eq=False):
    """A callback that is due at a moment."""

    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _context: Context
    _when: float
    _loop: _JumpingLoop
    _cancelled: bool = False
    _scheduled: bool = True

    def when(self) -> float:
        return self._when

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            if self._scheduled:
                self._loop.forget_timer()


class _JumpingLoop(asyncio.BaseEventLoop):
    """An event loop that waits for nothing: time is moved to where a wait would have ended.

    It does what asyncio's own does, in the same order, and timers of one moment
    fire in the order in which they were set.  Inherited because asyncio's tasks,
    futures and runner want one.
    """

    _stopping: bool

    def __init__(self, clock: VirtualClock, limit_seconds: float, limit_turns: int) -> None:
        super().__init__()
        self._clock = clock
        self._ready: deque[_Handle | _Timer] = deque()
        self._scheduled: list[tuple[float, int, _Timer]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        self._turns = 0
        self._limit_turns = limit_turns
        self._end = clock.monotonic() + limit_seconds
        self._threads = Threads()
        self.strict = True
        # Everything that waits hangs on this one method.
        self.time = clock.monotonic  # type: ignore[method-assign]
        # Asked for each future and task that is made.
        self.get_debug = bool  # type: ignore[method-assign]
        self.create_future = functools.partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.set_task_factory(process_task_factory)

    # -- what tasks and futures call -----------------------------------------

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> _Handle:  # type: ignore[override]
        handle = _Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> _Handle:  # type: ignore[override]
        handle = self.call_soon(self._threads.noting(callback), *args, context=context)
        self._threads.tell()
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> _Timer:  # type: ignore[override]
        when = self._clock._now + delay
        timer = _Timer(callback, args, copy_context() if context is None else context, when, self)
        self._timers_set = number = self._timers_set + 1
        heapq.heappush(self._scheduled, (when, number, timer))
        return timer

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> _Timer:  # type: ignore[override]
        timer = _Timer(callback, args, copy_context() if context is None else context, when, self)
        self._timers_set = number = self._timers_set + 1
        heapq.heappush(self._scheduled, (when, number, timer))
        return timer

    def forget_timer(self) -> None:
        """One was cancelled: it leaves the heap when its turn comes, or with all others like it."""
        self._timers_cancelled += 1
        if self._timers_cancelled > _SWEEP_AT and 2 * self._timers_cancelled > len(self._scheduled):
            self._scheduled[:] = [entry for entry in self._scheduled if not entry[2]._cancelled]
            heapq.heapify(self._scheduled)
            self._timers_cancelled = 0

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """In a thread, in real time; the clock does not go on while it works."""
        called = self._threads.start(executor, functools.partial(func, *args))
        future = asyncio.wrap_future(called, loop=self)
        called.add_done_callback(self._threads.ended)  # after the future's own: what it returned is there by then
        return future

    # -- running ---------------------------------------------------------------

    def _run_once(self) -> None:
        """Turn after turn, until asyncio's `run_forever`, which calls this, is to stop.

        What is ready runs; what becomes ready by that runs in the next turn.
        """
        ready, scheduled, clock = self._ready, self._scheduled, self._clock
        while True:
            if not ready and not self._stopping:
                self._jump()
            now = clock._now
            while scheduled and scheduled[0][0] <= now:
                timer = heapq.heappop(scheduled)[2]
                timer._scheduled = False
                if timer._cancelled:
                    self._timers_cancelled -= 1
                else:
                    ready.append(timer)
            self._turns += 1
            if self._turns > self._limit_turns and self.strict:
                raise Livelock(f"{self._limit_turns} turns of the loop and no time has passed:\n{_describe_tasks()}")
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    try:
                        handle._context.run(handle._callback, *handle._args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        message = f"Exception in callback {handle!r}"
                        self.call_exception_handler({"message": message, "exception": error, "handle": handle})
            if self._stopping:
                return

    def _jump(self) -> None:
        """Nothing is ready: it is the moment of the next timer now, unless a thread works."""
        scheduled = self._scheduled
        while scheduled and scheduled[0][2]._cancelled:
            heapq.heappop(scheduled)
            self._timers_cancelled -= 1
        while not self._ready and self._threads.busy(waiting=not scheduled):
            if where := self._threads.wait():
                raise Deadlock(f"{_THREAD_WAITS}:\n{where}")
        if self._ready:
            return
        if not scheduled:
            raise Deadlock(f"nothing can happen any more, all tasks wait:\n{_describe_tasks()}")
        when = scheduled[0][0]
        if when > self._clock._now:
            self._turns = 0
            self._clock.move_to(when)
            if when > self._end and self.strict:
                raise TimeLimit(f"the scenario still runs at {when:.0f} s:\n{_describe_tasks()}")


def run_virtual(
    scenario: Callable[[VirtualClock], Awaitable[T]],
    *,
    clock: VirtualClock | None = None,
    limit_seconds: float = LIMIT_SECONDS,
    limit_turns: int = LIMIT_TURNS,
    clean_up: bool = True,
) -> T:
    """Run `scenario` to its end in virtual time and give its result.

    Tasks that are left when it ends are cancelled, those of paused and killed
    processes too; with `clean_up` False they are left as they are, for a process
    that is about to end.

    Raises: Deadlock, Livelock, TimeLimit, and whatever the scenario raises.
    """
    the_clock = clock or VirtualClock()
    loop = _JumpingLoop(the_clock, limit_seconds, limit_turns)

    async def main() -> T:
        return await scenario(the_clock)

    if not clean_up:
        return loop.run_until_complete(main())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            return runner.run(main())
        finally:
            loop.strict = False
            open_all_gates(loop)
            _end_tasks(loop)
            forget_processes(loop)


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks, and then those that they have started meanwhile: a runner cancels once."""
    for _ in range(_END_ROUNDS):
        if not (tasks := asyncio.all_tasks(loop)):
            return
        for task in tasks:
            task.cancel()
        for ended in loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True)):
            if isinstance(ended, Exception):
                loop.call_exception_handler({"message": "a task failed while it was cancelled", "exception": ended})


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
    return _JumpingLoop(clock, limit_seconds, LIMIT_TURNS)


def _describe_tasks() -> str:
    try:
        tasks = asyncio.all_tasks(asyncio.get_running_loop())
    except RuntimeError:
        return "(no loop)"
    return "\n".join(sorted(repr(task) for task in tasks if not task.done()))
