"""Owners with children, and a look at whether they ever change hands apart."""

from __future__ import annotations

from shardsdk.testing.memory import Change
from tests.unit.sharder.placement.stage import CHILDREN, LABELS, OWNERS, Stage, thing


def split_families(stage: Stage) -> list[str]:
    """Owners that got a shard while one of their children was with another; filled as it happens."""
    split: list[str] = []

    def look(change: Change) -> None:
        if change.resource != OWNERS.group_resource or change.new is None:
            return
        meta, before = change.new["metadata"], (change.old or change.new)["metadata"]
        shard = (meta.get("labels") or {}).get(LABELS.shard)
        if shard is None or shard == (before.get("labels") or {}).get(LABELS.shard):
            return
        children = stage.server.select(CHILDREN)
        mine = [each["metadata"] for each in children if each["metadata"]["ownerReferences"][0]["uid"] == meta["uid"]]
        if any(each["labels"] != {LABELS.shard: shard} for each in mine):
            split.append(meta["name"])

    stage.server.listeners.append(look)
    return split


def create_family(
    stage: Stage, name: str, *, shard: str | None, children: tuple[str | None, ...], draining: bool = False
) -> None:
    """An owner on `shard`, and a child on each of `children`."""
    owner = stage.create(OWNERS, thing(name, shard=shard, draining=draining))
    for number, where in enumerate(children):
        stage.create(CHILDREN, thing(f"{name}-{number}", shard=where, owner=owner))
