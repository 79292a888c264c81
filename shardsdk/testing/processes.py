"""Processes in virtual time that can be paused, resumed and killed between any two of their steps.

A paused process takes no step while time and everybody else go on, as after
SIGSTOP or a suspended virtual machine; what reached it meanwhile is delivered
when it is resumed, timeouts first.  A killed one never takes a step again, not
even a `finally`.

    process = Process("shard-a")
    process.start(shard(api, clock))      # and every task that this one starts
    process.pause()

The tasks that a process starts are found by a context variable that tasks inherit.
Plain callbacks (`call_later`) are not stopped, nor is whatever a simulated server
does for the process: start that with `outside`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from enum import Enum
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_CURRENT: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("process", default=None)
_OPENED: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, bool]] = WeakKeyDictionary()
#: A process that stands still is referred to by nothing but itself; without this its tasks would be collected.
_PROCESSES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, list[Process]]] = WeakKeyDictionary()


class ProcessState(Enum):
    """Whether a process takes steps."""

    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"


#: Asked for at each step of each task.
_RUNNING: Final = ProcessState.RUNNING


class Process:
    """A process of a scenario: a name, its tasks, and whether they take steps."""

    __slots__ = ("_gates", "_tasks", "name", "state")

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.state: ProcessState = ProcessState.RUNNING
        self._gates: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Run `coroutine` as a task of this process; tasks that it starts belong to the process too."""
        loop = asyncio.get_running_loop()
        _PROCESSES.setdefault(loop, []).append(self)
        context = contextvars.copy_context()
        context.run(_CURRENT.set, self)
        return loop.create_task(coroutine, name=name or self.name, context=context)

    def pause(self) -> None:
        """Take no further step until `resume`."""
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.PAUSED

    def resume(self) -> None:
        """Go on; a killed process stays dead."""
        if self.state is ProcessState.PAUSED:
            self.state = ProcessState.RUNNING
            self._open_gates()

    def kill(self) -> None:
        """Never take a step again."""
        self.state = ProcessState.KILLED

    def gate(self) -> asyncio.Future[None]:
        """A future that is done once the process may go on."""
        gate = asyncio.get_running_loop().create_future()
        self._gates = [waiting for waiting in self._gates if not waiting.done()]
        self._gates.append(gate)
        return gate

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """`task` is one of this process's, until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _open_gates(self) -> None:
        gates, self._gates = self._gates, []
        for gate in gates:
            if not gate.done():
                gate.set_result(None)


class _Gated(Coroutine[Any, Any, T]):
    """A coroutine that takes its steps only while its process runs."""

    __slots__ = ("_inner", "_pending", "_process")

    def __init__(self, inner: Coroutine[Any, Any, T], process: Process) -> None:
        self._inner = inner
        self._process = process
        #: The step that was due when the process stood still.
        self._pending: Callable[[], Any] | None = None

    def send(self, value: Any) -> Any:
        if self._pending is None and self._process.state is _RUNNING:
            return self._inner.send(value)
        return self._step(self._pending or (lambda: self._inner.send(value)))

    def throw(self, *error: Any) -> Any:
        # A cancellation wins over the value that was due, as it does in asyncio.
        if self._process.state is ProcessState.RUNNING:
            self._pending = None
            return self._inner.throw(*error)
        return self._step(lambda: self._inner.throw(*error))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return (yield from self._inner.__await__())

    def __getattr__(self, name: str) -> Any:
        """Its name, its frame, and whether it runs, for those who show tasks or ask how far they are."""
        return getattr(self._inner, name)

    def _step(self, step: Callable[[], Any]) -> Any:
        if self._process.state is ProcessState.RUNNING or _OPENED.get(asyncio.get_running_loop()):
            self._pending = None
            return step()
        self._pending = step
        gate = self._process.gate()
        # What `Future.__await__` sets before it hands itself to the task.
        gate._asyncio_future_blocking = True
        return gate


def process_task_factory(
    loop: asyncio.AbstractEventLoop, coroutine: Any, *, context: contextvars.Context | None = None, **options: Any
) -> asyncio.Task[Any]:
    """Make a task; one that is started within a process is gated by it."""
    process = _CURRENT.get() if context is None else context.get(_CURRENT)
    if process is None:
        return asyncio.Task(coroutine, loop=loop, context=context, **options)
    task: asyncio.Task[Any] = asyncio.Task(_Gated(coroutine, process), loop=loop, context=context, **options)
    process.adopt(task)
    return task


def outside(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run what the world does (a server, a network), whatever happens to the process that caused it."""
    return asyncio.get_running_loop().create_task(coroutine, context=contextvars.Context())


def open_all_gates(loop: asyncio.AbstractEventLoop) -> None:
    """Let every task of `loop` take steps again, so that it can be cleaned up."""
    _OPENED[loop] = True


def forget_processes(loop: asyncio.AbstractEventLoop) -> None:
    """No task of `loop` is left: what its processes keep refers to it, and would have it stay."""
    _PROCESSES.pop(loop, None)
