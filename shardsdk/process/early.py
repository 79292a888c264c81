"""SIGTERM while a program starts, before anything handles it.

A module of its own, which loads next to nothing: commands call it before they load what they need.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType
from typing import Final, NoReturn

#: A process that a signal ended exits with this plus the signal's number, as shells have it.
SIGNAL_EXIT_BASE: Final = 128


def end_by_sigterm() -> None:
    """From now on SIGTERM ends the process, also one that is process 1 of a container.

    Every other process it ends anyway.  To process 1 the kernel delivers no signal that is left at its default: one
    that comes during the start would be lost, and the process would take a lease and keep it until it is killed.
    """
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with contextlib.suppress(ValueError):  # in another thread than the main one, which may not
            signal.signal(signal.SIGTERM, end_at_once)


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Handle a signal as its default does."""
    os._exit(SIGNAL_EXIT_BASE + number)
