"""What a process of a run writes down of itself: one JSON object a line, each in one write, so that SIGKILL tears none.

    {"is": "begin", "at": monotonic seconds, "wall": Unix seconds, "process": …, …}

`wall` is what the process is told, `at` is right also where its clocks are wrong.

`begin` and `end` of a reconcile share a `key`; `sent` and `written` (with the resourceVersion) or `refused` a `write`.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos.clocks import true_monotonic


class Recorder:
    """Appends to `path`; `process` is this start of the program, `shard` its name."""

    def __init__(self, path: Path, process: str, shard: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._process = process
        self._shard = shard
        self._numbers = itertools.count(1)

    def begin(self, uid: str, version: str) -> str:
        """A reconcile of the object begins, which is there in that version; returns the key of this reconcile."""
        key = self._next()
        self._note("begin", key=key, uid=uid, version=version)
        return key

    def end(self, key: str) -> None:
        """That reconcile has ended."""
        self._note("end", key=key)

    def sent(self, key: str) -> str:
        """That reconcile is about to write; returns the write's id, for the object that it makes."""
        write = self._next()
        self._note("sent", key=key, write=write)
        return write

    def written(self, write: str, version: str) -> None:
        """That write was accepted, and made this version."""
        self._note("written", write=write, version=version)

    def refused(self, write: str, error: BaseException) -> None:
        """That write ended otherwise; whether the API server took it is not known."""
        self._note("refused", write=write, error=f"{type(error).__name__}: {error}"[:200])

    def _next(self) -> str:
        return f"{self._process}/{next(self._numbers)}"

    def _note(self, what: str, **facts: Any) -> None:
        line = {"is": what, "at": true_monotonic(), "wall": time.time(), "process": self._process, **facts}
        os.write(self._file, json.dumps({**line, "shard": self._shard}).encode() + b"\n")


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """All lines of all files in `folder`."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def records_of(folder: Path, process: str) -> str:
    """What a process has written down so far."""
    path = folder / f"{process}.jsonl"
    return path.read_text() if path.exists() else ""


def under_way(records: str) -> int:
    """How many reconciles have begun and not ended, by what their process has written down."""
    return records.count('{"is": "begin"') - records.count('{"is": "end"')
