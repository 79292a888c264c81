"""Giving memory back that a mass move has used.

Python has freed by then what nobody refers to; the C library's allocator still
holds on to it, and is asked to let go.
"""

from __future__ import annotations

import ctypes


def give_back_memory() -> bool:
    """Return freed memory to the system; False: this C library (musl, macOS) has no way to be asked.

    Source: malloc_trim(3), GNU extension.  It takes some milliseconds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True
