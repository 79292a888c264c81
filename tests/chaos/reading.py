"""Files and watches of a run, made into one history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.chaos.audit import read_requests
from tests.chaos.history import Down, History, Reconcile, Version, Write
from tests.chaos.recorder import read_records
from tests.chaos.store import Store
from tests.chaos.writers import unknown_writers

#: For so long an API server may take to write down what it has answered.
_LATE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1


async def read_history(
    records: Path, store: Store, *, audit_logs: Sequence[Path] | None = None, **facts: Any
) -> History:
    """All that has happened until now; `facts` as in `_read_history`."""
    until = time.monotonic() + _LATE_SECONDS
    while True:
        history = _read_history(records, store, audit_logs=audit_logs, **facts)
        if time.monotonic() > until or not any(unknown_writers(history)):
            return history
        await asyncio.sleep(_LOOK_SECONDS)


def _read_history(
    records: Path,
    store: Store,
    *,
    downs: Sequence[Down],
    living: Iterable[str],
    children: int,
    by_ranges: bool,
    lease_seconds: float,
    begin: float,
    audit_logs: Sequence[Path] | None,
) -> History:
    lines = list(read_records(records))
    return History(
        versions=tuple(store.versions),
        reconciles=tuple(_reconciles(lines)),
        writes=tuple(_writes(lines, store.versions)),
        ticks=tuple(store.ticks),
        downs=tuple(downs),
        living=frozenset(living),
        children=children,
        by_ranges=by_ranges,
        lease_seconds=lease_seconds,
        begin=begin,
        requests=None if audit_logs is None else tuple(read_requests(audit_logs, store.set_backs)),
        restores=tuple(store.restores),
        end=time.monotonic(),
    )


def _reconciles(lines: Iterable[dict[str, Any]]) -> list[Reconcile]:
    found: dict[str, Reconcile] = {}
    for line in lines:
        if line["is"] == "begin":
            found[line["key"]] = Reconcile(line["key"], line["process"], line["shard"], line["uid"], line["at"], None)
        elif line["is"] == "end":
            begun = found[line["key"]]
            found[line["key"]] = Reconcile(
                begun.key, begun.process, begun.shard, begun.uid, begun.begin, line["at"]
            )  # fmt: skip
    return list(found.values())


def _writes(lines: Iterable[dict[str, Any]], versions: Iterable[Version]) -> list[Write]:
    """A version that an answer names is that of the store in which the write is found; a restored one may forget it."""
    made: dict[str, Version] = {}
    for version in versions:
        if version.write:
            made.setdefault(version.write, version)
    found: dict[str, Write] = {}
    for line in lines:
        if line["is"] == "sent":
            found[line["write"]] = Write(line["write"], line["key"], line["at"])
        elif line["is"] == "written" and line["write"] in made:
            sent, at = found[line["write"]], made[line["write"]].at
            if int(line["version"]) == at[1]:
                found[line["write"]] = Write(sent.id, sent.reconcile, sent.sent, line["at"], at)
    return list(found.values())
