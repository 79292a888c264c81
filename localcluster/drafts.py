"""Folders in the user's cache in which something is made, once, by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def one_at_a_time(path: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock file `path`; waits, with a word, while another build holds it."""
    with open(path, "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"localcluster: another process builds already; waiting for it ({path})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def draft_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder below `parent` that goes in the end, as do those of interrupted builds before it is made.

    For whoever holds the lock (`one_at_a_time`): the drafts of that prefix are nobody else's then.
    """
    for leftover in parent.glob(f"{prefix}*"):
        delete_tree(leftover)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        delete_tree(folder)


def delete_tree(folder: Path) -> None:
    """Delete a folder with Go's write-protected sources in it."""
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(parent, name), 0o700)
    shutil.rmtree(folder, ignore_errors=True)
