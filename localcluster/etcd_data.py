"""Etcd's data as a first API server leaves them, kept beside the programs for the control planes after it.

In an empty etcd an API server makes some 250 objects (roles and their bindings, priorities, namespaces), which takes
half of the CPU time of its start.  With a copy of these data it starts as one does that is started again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from localcluster.binaries import Binaries

#: Goes up with what an API server here makes by its flags (the Services' addresses, say).
_EDITION: Final = 1
#: The unit of what is left out where there is nothing: etcd keeps 64 MB for its log.
_BLOCK_BYTES: Final = 1 << 16


def kept_data(binaries: Binaries) -> Path | None:
    """Where the data lie that these programs begin with; `None` for programs that are not our own cache's."""
    program = Path(binaries.etcd[0])
    return program.with_name(f"etcd-data-{_EDITION}") if binaries.etcd[1:] else None


def begin_with_kept(binaries: Binaries, folder: Path) -> None:
    """Copy the data to `folder`, where an etcd is to start; without any that one begins with nothing."""
    kept = kept_data(binaries)
    if kept is not None and kept.is_dir():
        _copy(kept, folder)


def keep(folder: Path, target: Path) -> None:
    """Keep the data of an etcd that has stopped; whoever does so at the same time may win."""
    with tempfile.TemporaryDirectory(dir=target.parent) as made:
        whole = Path(made, "data")
        _copy(folder, whole)
        try:
            whole.rename(target)
        except OSError:
            if not target.is_dir():
                raise


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=_copy_sparsely)


def _copy_sparsely(source: str, target: str) -> None:
    with open(source, "rb") as old, open(target, "wb") as new:
        while block := old.read(_BLOCK_BYTES):
            if block.count(0) == len(block):
                new.seek(len(block), os.SEEK_CUR)
            else:
                new.write(block)
        new.truncate()
    shutil.copymode(source, target)
