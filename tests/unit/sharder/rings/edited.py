"""A ring whose resources are edited from main to controlled, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    LABELS,
    OWNERS,
    RING,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)

OTHERS: Final = {"resource": CHILDREN.plural}
FAMILY: Final = ALONE | {"controlledResources": [OTHERS]}
SHARDS: Final = ("one", "two")


@dataclass(frozen=True)
class Edited:
    """Owners and what will be their children, both main so far; an owner and two children on each of two shards.

    `apart`: the child that is not with its owner on each, `together` the one that is; `orphan` has no owner.
    `taken`: children that went from a shard to another, or to none, without having been asked back.
    """

    stage: Stage
    owners: dict[str, str]
    apart: dict[str, str]
    together: dict[str, str]
    orphan: str
    taken: list[str] = field(default_factory=list)

    def edit(self, *resources: Any) -> None:
        self.stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": list(resources)}})

    def let_go(self, name: str) -> None:
        """What a shard does with a main object that drains."""
        gone = {"metadata": {"labels": {LABELS.shard: None, LABELS.drain: None}}}
        self.stage.server.patch(CHILDREN, name, "default", gone)

    def let_all_go(self) -> None:
        """All that is asked back."""
        for name in sorted(self.asked_back):
            self.let_go(name)

    @property
    def placed_as(self) -> str:
        status = (self.stage.server.find(CLUSTERRINGS, RING) or {}).get("status", {})
        controlled = {each["resource"]: each["controlled"] for each in status.get("placedResources", [])}
        return {True: "controlled", False: "main"}[controlled[CHILDREN.plural]]

    @property
    def asked_back(self) -> set[str]:
        names = (*self.apart.values(), *self.together.values(), self.orphan)
        return {name for name in names if self.stage.draining(CHILDREN, name)}

    async def until_asked_back(self) -> None:
        await self.stage.until(lambda: self.asked_back == {*self.apart.values(), self.orphan})

    def look(self, change: Change) -> None:
        if change.resource != CHILDREN.group_resource or change.new is None or change.old is None:
            return
        now, before = (each["metadata"].get("labels") or {} for each in (change.new, change.old))
        shard = before.get(LABELS.shard)
        if shard in self.stage.shards and now.get(LABELS.shard) != shard and LABELS.drain not in before:
            self.taken.append(change.new["metadata"]["name"])


def prepare(clock: VirtualClock, api: type[MemoryApi] = MemoryApi) -> Edited:
    stage = make_stage(clock, api=api)
    stage.create(CLUSTERRINGS, ring(ALONE, OTHERS), None)
    owners, bodies = {}, {}
    for shard in SHARDS:
        stage.start(shard)
        [owners[shard]] = names_on(shard, *SHARDS)
        bodies[shard] = stage.create(OWNERS, thing(owners[shard], shard=shard))
    apart, together, orphan = {}, {}, ""
    for shard, other in (SHARDS, SHARDS[::-1]):
        apart[shard], together[shard], orphan = names_on(shard, *SHARDS, resource=CHILDREN, count=3)
        stage.create(CHILDREN, thing(apart[shard], shard=shard, owner=bodies[other]))
        stage.create(CHILDREN, thing(together[shard], shard=shard, owner=bodies[shard]))
    stage.create(CHILDREN, thing(orphan, shard="two"))
    edited = Edited(stage, owners, apart, together, orphan)
    stage.server.listeners.append(edited.look)
    return edited


@asynccontextmanager
async def settled(clock: VirtualClock, api: type[MemoryApi] = MemoryApi) -> AsyncIterator[Edited]:
    """All is in its place."""
    edited = prepare(clock, api)
    async with leading(edited.stage):
        await edited.stage.until(lambda: edited.stage.condition("Settled") == "True")
        assert edited.placed_as == "main"
        yield edited
