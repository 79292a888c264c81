"""What commands print and write: it has left when they end, or they say what is in the way, and fail."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from shardsdk.errors import ConfigurationError

#: What becomes of a write where nobody reads, there is no room, or nothing is open.
_UNPRINTED: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})

#: How Python has standard output handle what its encoding lacks, by the locale.
_UNSAID: Final = ("strict", "surrogateescape")


def is_unprinted(error: BaseException) -> bool:
    """Whether it is that nobody takes what is printed; errors of files say which one."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _UNPRINTED


def printing(program: str, work: Callable[[], int], *, failed: int = 1, serves: bool = False) -> int:
    """Do `work` and write out what it printed; gives its exit code, or `failed` where nobody took that, and says so.

    That is written as UTF-8, unless the program has said what becomes of signs that a terminal lacks: users' texts hold
    any, and kubectl reads nothing else.  `serves`: it is not done for what it prints, which is somebody else's.
    """
    if sys.stdout is None:
        # Closed by whoever started us, and its number is not to go to a socket.  Writes are to fail as they would, but
        # not somebody's `print` in what goes on all the same.
        mode = os.O_WRONLY if serves else os.O_RDONLY
        sys.stdout = open(os.open(os.devnull, mode), "w", encoding="utf-8")  # noqa: SIM115
    elif not serves and isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in _UNSAID:
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # arguments leave as the bytes they were
    code = 0
    try:
        code = work()
        sys.stdout.flush()
        return code
    except OSError as error:
        if not is_unprinted(error):
            raise
        # Whoever closed a pipe has seen enough; a command that failed has said already what went wrong.
        if error.errno != errno.EPIPE and not code:
            sys.stderr.write(f"{program}: {error.strerror}: standard output\n")
    with suppress(OSError, ValueError):
        # What is left in the buffer is not to be tried again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code or failed


@contextmanager
def writing(folder: str, remedy: str) -> Iterator[None]:
    """Files are written into `folder`.  Raises: ConfigurationError where that cannot be."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        raise ConfigurationError(f"{where} cannot be written: {error.strerror or error}; {remedy}") from error
