"""How little memory a process keeps: settings of allocator and TLS, for processes that are wholly ours.

Measured (48 connections to an API server by TLS, after some lists of a few MB; threshold of 128 KiB):
70 MiB resident instead of 102 with uvloop, 81 instead of 132 with asyncio's loop,
of which the smaller buffers are 9.

Set when asked for only; a library that is imported changes nothing of a program's.
"""

from __future__ import annotations

import ctypes
import sys
from asyncio import sslproto
from typing import Any, Final

#: glibc gives memory of this size and more back to the system at once.  It begins with 128 KiB, but raises it up to
#: 32 MiB as soon as a larger piece is freed; then those pieces stay, and break up the heap.  uvloop reads a TLS
#: connection into a piece of 256 KiB each time: taken from the system for each read, and faulted in, these cost an
#: eighth of the CPU time of a label write.
#: Source: mallopt(3), M_MMAP_THRESHOLD; uvloop, SSL_READ_MAX_SIZE.
MMAP_THRESHOLD_BYTES: Final = 320 * 1024
_M_MMAP_THRESHOLD: Final = -3
#: What asyncio reads of a TLS connection at once.  It has a buffer of that size for each, written over once
#: (256 KiB by default); a record of TLS has 16 KiB at most.
TLS_BUFFER_BYTES: Final = 64 * 1024


def spare_memory() -> None:
    """Keep this process small from now on; where that cannot be set, nothing is."""
    if sys.platform == "linux":
        mallopt: Any = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
    protocol: Any = sslproto.SSLProtocol
    if getattr(protocol, "max_size", 0) > TLS_BUFFER_BYTES:
        protocol.max_size = TLS_BUFFER_BYTES


def give_back_memory() -> bool:
    """Have the allocator return what Python has freed, as after a mass move; False: this C library cannot be asked.

    Source: malloc_trim(3), GNU extension (musl and macOS have none).  It takes some milliseconds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True
