"""`shardsdk run --dev`: the program in a process of its own, started again whenever a file of it is saved.

    started ──> runs ──> a file is saved ──> asked to stop, ended ──> started
                     └─> ends by itself ───> waits for the next change

A program that cannot be loaded ends by itself, with its reason; saving it mended is enough.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

#: How long a program may take to stop before it is ended at once.
STOP_SECONDS: Final = 5.0
#: Saved files whose names are told; of more, how many.
NAMED: Final = 3

#: What has changed, again and again.
Changes = AsyncIterator[Sequence[str]]


async def supervise(command: Sequence[str], changes: Changes, tell: Callable[[str], None]) -> int:
    """Run `command`, and anew after each change, until it is interrupted; gives the exit code of the last.

    Ctrl-C goes to both, and the program ends in order.
    """
    changed = asyncio.ensure_future(anext(changes))
    try:
        while True:
            program = await asyncio.create_subprocess_exec(*command)
            ended = asyncio.ensure_future(program.wait())
            try:
                await asyncio.wait({changed, ended}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done() and not changed.done():
                    tell(f"ended with {ended.result()}; waiting for a file to be saved")
                saved = await changed
            except asyncio.CancelledError:
                return await _stop(program)
            except StopAsyncIteration:
                return await ended
            await _stop(program)
            tell(f"{_name(saved)} changed; starting again")
            changed = asyncio.ensure_future(anext(changes))
    finally:
        changed.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            await changed


async def saved_files(folder: Path) -> Changes:
    """The Python files below `folder` that are saved, those of virtual environments and caches left out."""
    from watchfiles import PythonFilter, awatch

    async for changes in awatch(folder, watch_filter=PythonFilter()):
        yield sorted({path for _, path in changes})


def supervise_here(arguments: Sequence[str], folder: Path) -> int:
    """`shardsdk ARGUMENTS`, started again whenever a Python file below `folder` is saved; gives the exit code."""

    def tell(text: str) -> None:
        sys.stderr.write(f"shardsdk: {text}\n")

    async def main() -> int:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, this.cancel)
        tell(f"watching {folder} for changes")
        return await supervise([sys.executable, "-m", "shardsdk", *arguments], saved_files(folder), tell)

    return asyncio.run(main())


def folder_of(source: str) -> Path:
    """Where the files of a program are, to be watched."""
    place = source.partition(":")[0]
    return Path(place).resolve().parent if place.endswith(".py") else Path.cwd()


async def _stop(program: asyncio.subprocess.Process) -> int:
    """Have it end in order, or at once when that takes too long; gives its exit code."""
    for _ in range(2):  # the second signal ends it at once
        if program.returncode is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            program.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await program.wait()
    if program.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            program.kill()
    return await program.wait()


def _name(saved: Sequence[str]) -> str:
    names = [Path(path).name for path in saved]
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} files"
