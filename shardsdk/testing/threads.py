"""What is called in threads beside a loop in virtual time: it works, or waits for what it has the loop do.

called = threads.start(None, function)   # tell `threads.ended(called)` when it returns
while threads.busy():
    threads.wait()                       # in real time
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: A thread of which nothing was heard for so long, in real time, waits for what cannot happen before it returns.
PATIENCE_SECONDS: Final = 60.0


class _Call:
    """One function in a thread."""

    __slots__ = ("tasks", "thread")

    def __init__(self) -> None:
        self.thread = 0
        #: What it has had the loop begin.
        self.tasks: set[asyncio.Task[Any]] = set()

    def works(self) -> bool:
        return all(task.done() for task in self.tasks)


class Threads:
    """The calls that have not returned, and a line for each time when one of them has something for the loop."""

    def __init__(self) -> None:
        self._calls: dict[Future[Any], _Call] = {}
        self._lines: SimpleQueue[None] = SimpleQueue()
        self._here = threading.local()

    def start(self, executor: Executor | None, function: Callable[[], T]) -> Future[T]:
        """Call a function in a thread of `executor`, or in one of its own, for which no process waits to end."""
        call = _Call()

        def work() -> T:
            call.thread, self._here.call = threading.get_ident(), call
            return function()

        called = _in_thread(work) if executor is None else executor.submit(work)
        self._calls[called] = call
        return called

    def ended(self, called: Future[Any]) -> None:
        """It has returned."""
        self._calls.pop(called, None)
        self._lines.put(None)

    def tell(self) -> None:
        """There is something for the loop."""
        if self._calls:
            self._lines.put(None)

    def noting(self, callback: Callable[..., object]) -> Callable[..., object]:
        """A callback for the loop; a thread that gives it is taken to wait for the tasks that it starts.

        Nobody can see whether it does: what it waits in is a future of its own (`asyncio.run_coroutine_threadsafe`).
        """
        call: _Call | None = getattr(self._here, "call", None)
        if call is None:
            return callback

        def noted(*args: Any) -> None:
            before = asyncio.all_tasks()
            callback(*args)
            call.tasks = {task for task in call.tasks | (asyncio.all_tasks() - before) if not task.done()}

        return noted

    def busy(self, *, waiting: bool = False) -> bool:
        """Whether one works; or, with `waiting`, has not returned."""
        if not self._calls:
            return False  # as nearly always, and this is asked for each time when nothing is ready
        return any(waiting or call.works() for call in tuple(self._calls.values()))

    def wait(self) -> str:
        """Until there is something for the loop; else where they are, and nobody waits for them any more."""
        try:
            self._lines.get(timeout=PATIENCE_SECONDS)
        except (Empty, KeyboardInterrupt) as end:
            calls, frames = tuple(self._calls.values()), sys._current_frames()
            self._calls.clear()  # whoever cleans up is not to wait again
            if isinstance(end, KeyboardInterrupt):
                raise
            stacks = [traceback.format_stack(frames[each.thread]) for each in calls if each.thread in frames]
            return "\n".join("".join(stack) for stack in stacks) or "(not begun)"
        return ""


def _in_thread(work: Callable[[], T]) -> Future[T]:
    called: Future[T] = Future()

    def run() -> None:
        if not called.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:
            called.set_exception(error)
        else:
            called.set_result(result)

    threading.Thread(target=run, name="virtual", daemon=True).start()
    return called
