"""Where a tenure runs: on the owner's event loop, or on one in a thread of its own.

The thread is what lets a lease be renewed while the owner's loop is blocked.
It is a daemon: it never keeps a process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from shardsdk.kube.cut import hush_cut_connections

#: How it ended: what `body` returned, or what it raised.
Ended = Callable[[bool, BaseException | None], None]
Body = Callable[[], Coroutine[Any, Any, bool]]


class LoopHost:
    """The owner's own loop; for simulations, and for programs that never block theirs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[bool] | None = None

    def start(self, body: Body, ended: Ended) -> None:
        """Run `body` to its end and then call `ended` on the owner's loop."""

        async def run() -> bool:
            clean, error = False, None
            try:
                clean = await body()
            except BaseException as raised:  # whatever it is, the owner must learn of it
                error = raised
                if not isinstance(raised, Exception | asyncio.CancelledError):
                    raise  # the loop is to end
            finally:
                ended(clean, error)
            return clean

        self._task = self._loop.create_task(run(), name="lease")

    def post(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the tenure's loop soon; dropped once it has ended."""
        self._loop.call_soon(callback)

    def tell(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the owner's loop soon; dropped once that loop is closed."""
        self._loop.call_soon(callback)

    def abandon(self) -> None:
        """Cancel `body`."""
        if self._task is not None:
            self._task.cancel()


class ThreadHost:
    """A thread with an event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._owner = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        hush_cut_connections(self._loop)
        self._task: asyncio.Task[Any] | None = None
        self._abandoned = False

    def start(self, body: Body, ended: Ended) -> None:
        """As `LoopHost.start`.  Raises: RuntimeError where no thread can be started."""
        try:
            threading.Thread(target=self._main, args=(body, ended), name=self._name, daemon=True).start()
        except Exception:  # the system has no thread left
            self._loop.close()
            raise

    def _main(self, body: Body, ended: Ended) -> None:
        clean = False
        error: BaseException | None = None
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                clean = runner.run(self._run(body))
            except BaseException as raised:  # whatever it is, the owner must learn of it
                error = raised
            # Before the loop is closed, which waits for what is left in its threads: a name that is looked up, say.
            self.tell(lambda: ended(clean, error))

    async def _run(self, body: Body) -> bool:
        self._task = asyncio.current_task()
        if self._abandoned:
            return False
        return await body()

    def post(self, callback: Callable[[], None]) -> None:
        """As `LoopHost.post`."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback)

    def tell(self, callback: Callable[[], None]) -> None:
        """As `LoopHost.tell`."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._owner.call_soon_threadsafe(callback)

    def abandon(self) -> None:
        """As `LoopHost.abandon`."""
        self.post(self._cancel)

    def _cancel(self) -> None:
        self._abandoned = True
        if self._task is not None:
            self._task.cancel()
