"""Whether the event loop takes turns, asked from other threads; and if it does not, what holds it up.

A call that blocks (`time.sleep`, a client that is not asynchronous, a long computation) in
an async reconcile stops every other one, and with them whatever renews an election's lease.
The process then ends for the lost lease; the cause is told before that.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: How often the event loop shows that it takes turns, and how often somebody looks.
BEAT_SECONDS: Final = 1.0
#: A loop that has taken no turn for so long is told of.
BLOCKED_SECONDS: Final = 3.0
#: Frames of its stack that are named, from the innermost on.
MAX_FRAMES: Final = 12


class MainLoop:
    """The event loop of the thread that makes this; `check` and `watch` are for other threads.

    A loop that is blocked for longer than `limit_seconds`, a lease's duration,
    would have lost that lease if it were renewed by the same loop.
    """

    def __init__(
        self,
        clock: Clock,
        limit_seconds: float,
        *,
        blocked_seconds: float = BLOCKED_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._blocked_seconds = blocked_seconds
        self._beat_seconds = beat_seconds
        self._beat_at = clock.monotonic()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def beat(self) -> None:
        """Show that turns are taken, until cancelled."""
        while True:
            self._beat_at = self._clock.monotonic()
            await self._clock.sleep(self._beat_seconds)

    @property
    def stalled_seconds(self) -> float:
        """For how long no turn was taken that was due."""
        return self._clock.monotonic() - self._beat_at - self._beat_seconds

    def check(self) -> str | None:
        """What is wrong; `None`: nothing."""
        stalled = self.stalled_seconds
        return f"the event loop has been blocked for {stalled:.0f} s" if stalled > self._limit_seconds else None

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Within this context a thread tells of a loop that is blocked, and by what."""
        ended = threading.Event()
        threading.Thread(target=self._watch, args=(ended,), name="main-loop-watch", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def _watch(self, ended: threading.Event) -> None:
        suspect = told = 0.0
        while not ended.wait(self._beat_seconds):
            beat = self._beat_at
            if self.stalled_seconds <= self._blocked_seconds or beat == told:
                continue
            # A machine that was suspended looks like this once: its loop takes a turn before the next look.
            if beat == suspect:
                self._tell()
                told = beat
            suspect = beat

    def _tell(self) -> None:
        frame = sys._current_frames().get(self._thread)
        task = asyncio.current_task(self._loop)
        log.error(
            "The event loop is blocked: nothing else of this process goes on; await what takes time, or do it in a"
            " plain function, which runs in a thread",
            extra={
                "blocked_seconds": round(self.stalled_seconds, 1),
                "task": task.get_name() if task is not None else "",
                **describe_stack(frame),
            },
        )


def describe_stack(frame: FrameType | None) -> dict[str, str]:
    """Where a thread is: `at` in the program's own code, and the `frames` from the innermost on."""
    frames = list(reversed(traceback.extract_stack(frame))) if frame is not None else []
    places = [f"{each.filename}:{each.lineno} in {each.name}: {each.line}" for each in frames]
    own = [place for each, place in zip(frames, places, strict=True) if is_the_users(each.filename)]
    named = " < ".join(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in frames[:MAX_FRAMES])
    return {"at": (own or places or ["?"])[0], "frames": named}


def name_threads() -> str:
    """Where the program's own code is in threads of its event loop (`asyncio.to_thread`), for the end of a sentence.

    Whoever asks ends the process, so no line of a file is read, which may take its time, and nothing is raised.
    """
    frames, found = sys._current_frames(), []
    with contextlib.suppress(Exception):
        for thread in threading.enumerate():
            frame = frames.get(thread.ident or 0) if thread.name.startswith("asyncio_") else None
            while frame is not None and not is_the_users(frame.f_code.co_filename):
                frame = frame.f_back
            if frame is not None:
                found.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
    return f": {'; '.join(found)}" if found else ""


def is_the_users(filename: str) -> bool:
    """Whether a line of code is the program's own, and not a library's."""
    path = Path(filename)
    library = Path(traceback.__file__).parent
    ours = Path(__file__).parents[1]
    return "site-packages" not in path.parts and not any(path.is_relative_to(each) for each in (library, ours))
