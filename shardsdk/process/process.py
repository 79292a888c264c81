"""The process around a manager: its event loop, signals, exit codes, the end of last resort."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from types import FrameType
from typing import Any, Final, NoReturn

from shardsdk.errors import ConfigurationError, LeaseLost, ShardingError
from shardsdk.kube.cut import hush_cut_connections
from shardsdk.lease.hold import Hold, watch
from shardsdk.logs import logger_of
from shardsdk.process.beginning import check_may_run
from shardsdk.process.early import SIGNAL_EXIT_BASE, end_at_once, end_by_sigterm
from shardsdk.process.mainloop import name_threads
from shardsdk.queueing.exits import tell_exit

log: Final = logger_of(__name__)

Handler = Callable[[int, FrameType | None], Any] | int

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
#: How long what a process that is about to end has left in threads may go on, beside whoever has its lease next.
THREADS_SECONDS: Final = 1.0
#: How long a process that ends at once tries to say why; of the margin of the shortest lease less than all.
LAST_WORDS_SECONDS: Final = 0.1
#: How long what is left may take where an error has ended the event loop before `main` (a `sys.exit()` in a task does):
#: reconciles are cancelled and leases are released, all within the time that a pod has.
CANCELLED_SECONDS: Final = 10.0
#: Open files of a process, if it may have so many: those of a server that is flooded, and of its requests besides.
FILES_MAX: Final = 65_536
#: Why it is not waited for.
_TO_END: Final = " although the process is to end"

#: Whom a signal stops; a process has one set of handlers, however many managers it runs.
_STOPS: Final[list[Callable[[], object]]] = []
#: The event loop that stops them.
_STOPPING: Final[list[asyncio.AbstractEventLoop]] = []
#: Who handled signals before them.
_BEFORE: Final[dict[signal.Signals, Handler]] = {}
#: What undoes that a signal wakes an idle event loop.
_WAKING: Final = contextlib.ExitStack()
#: The event loops of `run_process`, whose process is wholly ours.
_OURS: Final[set[asyncio.AbstractEventLoop]] = set()
#: What the last `run_process` sets once its loop is closed: after those before it the program has gone on.
_LAST: Final[list[threading.Event]] = []
#: What `multiprocessing` tells, in each process that it forks, of the manager in its parent.
_FORKING: Final[list[_Forking]] = []
#: Source: Linux, include/uapi/linux/prctl.h.
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True)
class _Forking:
    """What a process that was forked needs to end with its parent: the system's call, that one's id and main thread."""

    prctl: Any
    parent: int
    main: int


class ExitCode(IntEnum):
    """How a manager's process ends."""

    #: It was asked to stop, and its work has ended.
    OK = 0
    #: Something that must not end has ended.
    FAILED = 1
    #: The configuration cannot work; 2 is what command lines exit with for wrong usage.
    CONFIGURATION = 2
    #: The lease was lost.
    LEASE_LOST = 3
    #: Work was still running when the time for stopping was over.
    STUCK = 4


def exit_code_for(error: ShardingError, where: Mapping[str, object] | None = None) -> ExitCode:
    """How a process ends that `error` has ended; says so in the log, with the fields `where`.

    Where a lease was lost, a handler of log lines that waits keeps it for `THREADS_SECONDS` at most.
    """
    log.logger.disabled = False  # by `logging.config`, say: a process never ends without a word
    match error:
        case ConfigurationError():
            log.critical("The process cannot run: %s", error, extra=where)
            return ExitCode.CONFIGURATION
        case LeaseLost():
            said = (
                "The process ends: %s"
                if _is_ours()
                else "The manager has ended, and its process is to be ended, too: %s"
            )
            with contextlib.suppress(RuntimeError):  # the system has no thread left
                _say(lambda: log.critical(said, error, extra=where), THREADS_SECONDS)
            return ExitCode.LEASE_LOST
        case _:
            log.critical("The process cannot go on: %s", error, extra=where)
            return ExitCode.FAILED


def _is_ours() -> bool:
    """Whether it is not somebody else's event loop that this is called on."""
    running = asyncio._get_running_loop()
    return running is None or running in _OURS


def end_with(hold: Hold, die: Callable[[int, str], None]) -> None:
    """Have `die` called if this event loop is not closed when `hold` ends, which was lost: work under it is over.

    It may have left something in threads of the loop's (`asyncio.to_thread`).  A loop of somebody else's may go on.
    """
    if asyncio.get_running_loop() in _OURS:
        why = f"{hold.name} is lost and the process has not ended in its time"
        watch(hold, lambda: die(ExitCode.LEASE_LOST, why), _LAST[0])


def die(code: int, why: str) -> NoReturn:
    """End the process now; no `finally`, no waiting for threads, nor for who reads why.  Callable from any thread."""

    def tell() -> None:
        # Not through logging, whose locks may be held by what is stuck.
        with contextlib.suppress(OSError):
            os.write(2, f"process ends at once (exit code {code}): {why}\n".encode())

    try:
        _say(tell, LAST_WORDS_SECONDS)
    finally:
        os._exit(code)


def _say(tell: Callable[[], None], seconds: float) -> None:
    """Wait so long for `tell`, in a thread of its own: a pipe that is full and that nobody reads never takes a line."""
    telling = threading.Thread(target=tell, name="last-words", daemon=True)
    telling.start()
    telling.join(seconds)


def raise_file_limit() -> None:
    """Let this process open as many files as it may, up to `FILES_MAX`, as Go's do; many are begun with 1,024.

    For processes that are wholly ours.  Those that it starts have that limit too.
    """
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
        if soft != resource.RLIM_INFINITY and soft < most:
            with contextlib.suppress(OSError, ValueError):  # macOS has a bound of its own
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def run_process(main: Coroutine[Any, Any, ExitCode], *, die: Callable[[int, str], object] = die) -> ExitCode:
    """Run `main` in an event loop of its own; gives how the process is to end.

    What `main` has left in threads of the loop (`asyncio.to_thread`) nobody can cancel, and a loop that is closed waits
    for them without a limit.  Here they have `THREADS_SECONDS`; then the process ends by `die`.  Where a lease was
    lost, the interpreter has so long once more for its own end, which waits for threads and for handlers of log lines;
    a program that by then has not begun to end, or that calls this again, has gone on and is left alone.

    Raises: what `main` raises, or a `sys.exit()` in a task; what is left has a limit then, too.  ConfigurationError
    within an event loop, and while a command loads the program.
    """
    try:
        check_may_run()
    except ConfigurationError:
        main.close()
        raise
    end_by_sigterm()
    raise_file_limit()
    closed = threading.Event()
    _LAST[:] = [closed]
    with contextlib.ExitStack() as once_closed, asyncio.Runner() as runner:
        loop = runner.get_loop()
        hush_cut_connections(loop)
        once_closed.callback(closed.set)
        _OURS.add(loop)
        once_closed.callback(_OURS.discard, loop)

        def limit(seconds: float, code: int, why: str) -> None:
            # By a thread of its own: the loop, and with it this one, is what waits.
            force = partial(_end_by_force, closed, seconds, code or ExitCode.STUCK, why, die)
            try:
                threading.Thread(target=force, name="end-by-force", daemon=True).start()
            except RuntimeError:  # the system has none left
                die(code or ExitCode.STUCK, f"no thread could be started that gives time to what is left: {why}")
            # An end by force flushes nothing.
            for stream in filter(None, (sys.stdout, sys.stderr)):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()

        try:
            code = runner.run(main)
        except BaseException as error:
            tell_exit(error)
            over = inspect.getcoroutinestate(main) == inspect.CORO_CLOSED
            limit(THREADS_SECONDS if over else CANCELLED_SECONDS, _code_after(error), _tell_left_after(error))
            raise
        limit(THREADS_SECONDS, code, "a function still runs in a thread (asyncio.to_thread)" + _TO_END)
    return code


def _end_by_force(
    closed: threading.Event, seconds: float, code: int, why: str, die: Callable[[int, str], object]
) -> None:
    """End a process whose loop is not closed in time, or, where a lease was lost, whose interpreter does not end."""
    if not closed.wait(seconds):
        die(code, why + name_threads())
    elif code == ExitCode.LEASE_LOST:
        main = threading.main_thread()
        main.join(seconds)
        # An interpreter waits for pools of threads before it says of its main thread that it has ended.
        ends = not main.is_alive() or getattr(threading, "_SHUTTING_DOWN", False)
        if ends and closed in _LAST:
            threading.Event().wait(seconds)
            die(code, "the interpreter does not end although the lease is lost")


def _code_after(error: BaseException) -> int:
    """With what a process ends that `error` ends, if nothing is left."""
    match error:
        case SystemExit(code=int() | None as code):
            return (code or 0) & 0xFF
        case KeyboardInterrupt():
            return SIGNAL_EXIT_BASE + signal.SIGINT
        case ConfigurationError():
            return ExitCode.CONFIGURATION
        case LeaseLost():
            return ExitCode.LEASE_LOST
        case _:
            return ExitCode.FAILED


def _tell_left_after(error: BaseException) -> str:
    """What is said where the process ends by force before the interpreter, or who calls, has told of `error`."""
    why = f"something still runs after {type(error).__name__}({error}){_TO_END}"
    if isinstance(error, SystemExit | ConfigurationError):
        return why  # where it was raised helps nobody
    return "\n".join((why, "".join(traceback.format_exception(error)).rstrip()))


@contextlib.contextmanager
def stop_on_signal(stop: Callable[[], object]) -> Iterator[None]:
    """Within this context the first SIGTERM or SIGINT calls `stop` on the running loop, the second ends the process.

    Several contexts may be open at once on one event loop, in a process with
    several managers; a signal stops all of them.  In a process that is not ours
    (`run_process`) whoever has handled signals before is told of the first one
    as well.  A process that is forked meanwhile handles them as before.

    Raises: ConfigurationError in another thread than the main one, where Python handles signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError(
            "it runs in another thread than the main one, and only there signals can be handled that stop it: run it in"
            " the main thread, and what else the program does in others"
        )
    if _STOPS and _STOPPING[0].is_closed():  # in the middle of contexts that nobody has left
        _STOPS.clear()
        _restore()
    if not _STOPS:
        _install()
    _STOPS.append(stop)
    try:
        yield
    finally:
        if stop in _STOPS:  # it is not in a child that was forked within the context
            _STOPS.remove(stop)
            if not _STOPS:
                _restore()
                _FORKING.clear()


def _install() -> None:
    """Handle signals from now on, until `_restore`."""
    loop = asyncio.get_running_loop()
    received = 0

    def receive(number: int, frame: FrameType | None) -> None:
        """Called even while something blocks the loop."""
        nonlocal received
        received += 1
        if received > 1:
            os._exit(SIGNAL_EXIT_BASE + number)
        if loop.is_closed():  # in the middle of what it ran: nobody is left who could be stopped in order
            _restore()
            signal.raise_signal(number)
            return
        loop.call_soon_threadsafe(announce, signal.Signals(number))
        before = _BEFORE.get(signal.Signals(number))
        if loop not in _OURS and callable(before) and not _ends_or_cancels(before):
            before(number, frame)

    def announce(number: signal.Signals) -> None:
        for stop in tuple(_STOPS):
            stop()
        # Last: it waits for whoever reads, and that may be nobody.
        log.info("Stopping; a second signal ends the process at once", extra={"signal": number.name})

    _STOPPING[:] = [loop]
    _wake(loop)
    _note_forking()
    for number in STOP_SIGNALS:
        _BEFORE[number] = signal.getsignal(number) or signal.SIG_DFL
        # Not by the loop's `add_signal_handler`: it has one for each signal, and that may be the program's.
        signal.signal(number, receive)


def _wake(loop: asyncio.AbstractEventLoop) -> None:
    """Have `loop` take a turn when a signal has come: Python calls no handler while the main thread waits for events.

    The kernel ends that wait only if the signal comes during it, and to that thread.
    """
    if (before := signal.set_wakeup_fd(-1)) != -1:
        signal.set_wakeup_fd(before)  # the loop's own, say, which it has for `add_signal_handler`
        return
    reading, writing = socket.socketpair()
    reading.setblocking(False)
    writing.setblocking(False)
    loop.add_reader(reading, lambda: reading.recv(4096))
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    process = os.getpid()

    def undo() -> None:
        # A child that was forked has in common with its parent what that one's loop waits for.
        if os.getpid() == process and not loop.is_closed():
            loop.remove_reader(reading)
        if (now := signal.set_wakeup_fd(-1)) != writing.fileno():
            signal.set_wakeup_fd(now)
        reading.close()
        writing.close()

    _WAKING.callback(undo)


def _ends_or_cancels(handler: object) -> bool:
    """Whether it is one that ends everything at once: Python's, asyncio's of SIGINT, or ours during a start."""
    owner = getattr(getattr(handler, "func", None), "__self__", None)
    return handler in (signal.default_int_handler, end_at_once) or isinstance(owner, asyncio.Runner)


def _restore() -> None:
    for number, handler in _BEFORE.items():
        signal.signal(number, handler)
    _BEFORE.clear()
    _WAKING.close()


def _leave_the_parent_alone() -> None:
    """In a process just forked: a signal for it is its own, and no event loop of its parent's hears of it."""
    if _STOPS:
        _STOPS.clear()
        _restore()
        signal.set_wakeup_fd(-1)


def _note_forking() -> None:
    """Have the processes that `multiprocessing` forks from now on, until it is forgotten, end with this one (Linux).

    Only those: they do a part of this program's work, and nobody else tells them that its lease is lost.  What a
    program forks by itself, or begins (`subprocess`), may be meant to outlive it.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
    if prctl is not None:
        from multiprocessing.util import register_after_fork  # loaded when it is used

        _FORKING[:] = [_Forking(prctl, os.getpid(), threading.get_ident())]
        register_after_fork(_FORKING[0], _end_with_parent)  # for as long as somebody keeps it


def _end_with_parent(forking: _Forking) -> None:
    """Have a process just forked killed when its parent ends.

    The kernel looks at the thread that has forked, which may end much sooner; so only what the main one forks.
    """
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None or parent.pid != forking.parent or threading.get_ident() != forking.main:
        return  # a child of that one's children, say
    forking.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (forking.parent, 0):  # it had ended before; 0: it is outside of this one's namespace
        os._exit(ExitCode.FAILED)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_the_parent_alone)
