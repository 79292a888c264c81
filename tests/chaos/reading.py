"""Files and watches of a run, made into one history."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.history import Down, History, Reconcile, Version, Write
from tests.chaos.recorder import read_records
from tests.chaos.store import Store


def read_history(
    records: Path,
    store: Store,
    *,
    downs: Sequence[Down],
    living: Iterable[str],
    children: int,
    lease_seconds: float,
    begin: float,
) -> History:
    """All that has happened until now."""
    lines = list(read_records(records))
    return History(
        versions=tuple(store.versions),
        reconciles=tuple(_reconciles(lines)),
        writes=tuple(_writes(lines, store.versions)),
        ticks=tuple(store.ticks),
        downs=tuple(downs),
        living=frozenset(living),
        children=children,
        lease_seconds=lease_seconds,
        begin=begin,
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
