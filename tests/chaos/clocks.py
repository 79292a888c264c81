"""A machine whose clocks are wrong, as the processes of a run get it.

A library is loaded into them that answers in libc's stead whenever something asks for the time or waits for a while
(clocks.c): the wall clock is `ahead` by so many seconds, and all clocks run at `rate` times the right speed.  So the
event loop, threads, TLS and whatever is written in C are on that machine, too.  Only `true_monotonic` tells the truth,
to the recorder.  Linux with a C compiler is needed; the library is built once a machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_suffix(".c")
_FLAGS: Final = ("-O2", "-shared", "-fPIC")
_LIBRARIES: Final = ("-ldl", "-lpthread")
_COMPILERS: Final = ("cc", "gcc", "clang")
_MONOTONIC: Final = 1
_NANO: Final = 1_000_000_000


def clocks_environment(ahead: float, rate: float) -> dict[str, str]:
    """What a process is given to be on such a machine.

    Raises: LookupError where such a library cannot be built, with what to do.
    """
    if not ahead and rate == 1.0:
        return {}
    return {"LD_PRELOAD": str(built()), "CHAOS_AHEAD": str(ahead), "CHAOS_RATE": str(rate)}


def built(home: Path | None = None) -> Path:
    """The library.  Raises: LookupError."""
    from localcluster.binaries import cache_home  # processes with wrong clocks do not build

    compiler = _compiler()
    if sys.platform != "linux" or compiler is None:
        raise LookupError(
            "clocks are made wrong by a library that is built from tests/chaos/clocks.c: that takes Linux and a C"
            " compiler (Debian: apt-get install gcc libc6-dev)"
        )
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    path = (home or cache_home(os.environ)) / f"clocks-{digest}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="clocks-") as work:
            made = Path(work) / path.name
            done = subprocess.run(
                [compiler, *_FLAGS, "-o", str(made), str(_SOURCE), *_LIBRARIES],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise LookupError(
                    f"{compiler} cannot build tests/chaos/clocks.c, see that libc's headers are there"
                    f" (Debian: apt-get install libc6-dev): {done.stderr.strip()}"
                )
            made.replace(path)
    return path


def true_monotonic() -> float:
    """Seconds of this machine's CLOCK_MONOTONIC, also where this process is told another time."""
    ask = _truth()
    if ask is None:
        return time.monotonic()
    at = _Timespec()
    ask(_MONOTONIC, ctypes.byref(at))
    return float(at.seconds + at.nanoseconds / _NANO)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@cache
def _truth() -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), "true_clock_gettime", None)


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, _COMPILERS)), None)
