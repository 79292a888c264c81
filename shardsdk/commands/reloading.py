"""`shardsdk run --dev`: the program in a process of its own, started again whenever a file of it is saved.

    started ──> runs ──> a file is saved ──> asked to stop, ended ──> started
                     ├─> fails ────────────> after a pause, or when a file is saved ──> started
                     └─> cannot be loaded, or was asked to stop ──> waits for the next change

What fails may fail for what no file mends (an API server that is away, a definition that is not installed), so it is
tried again, after pauses that grow.  A program that cannot be loaded says why; saving it mended is enough.

What supervises may be killed (SIGKILL, no memory left), of which no signal tells: then the program ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from shardsdk.errors import ConfigurationError
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.process.early import end_at_once

#: How long a program may take to stop before it is ended at once.
STOP_SECONDS: Final = 5.0
#: How often a program looks whether what supervises it is still there.
LOOK_SECONDS: Final = 1.0
#: Pauses before what has failed is started again: the first, doubling, and the longest.
RETRY_SECONDS: Final = (1.0, 30.0)
#: What ran for so long before it failed is started again after the first pause.
WORKED_SECONDS: Final = 60.0
#: How a supervised program exits that only another file mends.  Source: sysexits.h, EX_DATAERR.
UNLOADABLE: Final = 65
#: Given to a program that is supervised, at the end of its command line, with the number of the process that does.
SUPERVISED: Final = "--supervised"
#: Saved files whose names are told; of more, how many.
NAMED: Final = 3

#: What has changed, again and again.
Changes = AsyncIterator[Sequence[str]]


async def supervise(
    command: Sequence[str], changes: Changes, tell: Callable[[str], None], clock: Clock | None = None
) -> int:
    """Run `command`, and anew after each change, until it is interrupted; gives the exit code of the last.

    What interrupts it (Ctrl-C, `kill %1`) goes to everybody in its process group: the program has one of its own, for
    it would take the second signal, ours, for one that ends it at once.

    Raises: whatever `changes` raises, when the program has ended.
    """
    clock = clock or SystemClock()
    changed = asyncio.ensure_future(anext(changes))
    failures = 0
    try:
        while True:
            began = clock.monotonic()
            program = await asyncio.create_subprocess_exec(*command, process_group=0)
            ended = asyncio.ensure_future(program.wait())
            try:
                await asyncio.wait({changed, ended}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done() and not changed.done():
                    failures = 0 if clock.monotonic() - began >= WORKED_SECONDS else failures
                    if await _await_change(changed, ended.result(), failures, tell, clock):
                        failures += 1
                        continue
                saved = await changed
                await _stop(program)
            except asyncio.CancelledError:
                with contextlib.suppress(asyncio.CancelledError):
                    await _stop(program)
                return await ended
            except StopAsyncIteration:
                return await ended
            finally:
                await _stop(program)  # also where nobody can tell any more what is saved
            tell(f"{_name(saved)} changed; starting again")
            changed, failures = asyncio.ensure_future(anext(changes)), 0
    finally:
        changed.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            await changed


async def _await_change(
    changed: asyncio.Future[Sequence[str]], code: int, failures: int, tell: Callable[[str], None], clock: Clock
) -> bool:
    """Wait until a file is saved (False), or until it is time to try again a program that exited with `code`."""
    if code in (0, UNLOADABLE):
        tell(f"{'ended' if code == 0 else 'not started'}; waiting for a file to be saved")
        await asyncio.wait({changed})
        return False
    seconds = double(RETRY_SECONDS[0], failures, RETRY_SECONDS[1])
    tell(f"ended with {code}; starting again in {seconds:g} s, or when a file is saved")
    pause = asyncio.ensure_future(clock.sleep(seconds))
    try:
        either: set[asyncio.Future[Any]] = {changed, pause}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return not changed.done()
    finally:
        pause.cancel()


async def saved_files(folder: Path) -> Changes:
    """The Python files below `folder` that are saved, those of virtual environments and caches left out.

    Raises: ConfigurationError when it cannot be watched.
    """
    from watchfiles import PythonFilter, awatch

    watching = awatch(folder, watch_filter=PythonFilter())
    while True:
        try:
            changes = await anext(watching)
        except OSError as error:
            raise ConfigurationError(
                f"{folder} cannot be watched: {error}; run it without --dev, or, where the system's limit is reached,"
                " raise that: `sysctl fs.inotify.max_user_watches`, or `.max_user_instances`"
            ) from error
        except StopAsyncIteration:
            return
        yield sorted({path for _, path in changes})


def supervise_here(arguments: Sequence[str], folder: Path) -> int:
    """`shardsdk ARGUMENTS`, started again whenever a Python file below `folder` is saved; gives the exit code.

    Raises: ConfigurationError when the folder cannot be watched.
    """

    def tell(text: str) -> None:
        sys.stderr.write(f"shardsdk: {text}\n")

    async def main() -> int:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None
        # A terminal that is closed tells its foreground process group alone.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, this.cancel)
        tell(f"watching {folder} for changes")
        command = [sys.executable, "-m", "shardsdk", *arguments, f"{SUPERVISED}={os.getpid()}"]
        return await supervise(command, saved_files(folder), tell)

    return asyncio.run(main())


def end_with_supervisor(supervisor: int) -> None:
    """Have this process be asked to stop once that one, which has started it, is gone; ended when that takes too long.

    By a thread, which reconciles that hold up the event loop do not keep from it.
    """
    pause = threading.Event()

    def follow() -> None:
        while os.getppid() == supervisor:
            pause.wait(LOOK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        pause.wait(STOP_SECONDS)
        end_at_once(signal.SIGTERM, None)

    threading.Thread(target=follow, name="shardsdk/supervisor", daemon=True).start()


def folder_of(source: str) -> Path:
    """Where the files of a program are, to be watched."""
    place = source.partition(":")[0]
    return Path(place).resolve().parent if place.endswith(".py") else Path.cwd()


async def _stop(program: asyncio.subprocess.Process) -> None:
    """Have it end in order; at once when that takes too long, or when this is interrupted once more."""
    try:
        for _ in range(2):  # the second signal ends it at once
            if program.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                program.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await program.wait()
    finally:
        if program.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                program.kill()
            await program.wait()


def _name(saved: Sequence[str]) -> str:
    names = [Path(path).name for path in saved]
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} files"
