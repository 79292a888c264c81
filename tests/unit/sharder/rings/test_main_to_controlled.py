"""A resource that a ring listed as main and lists as controlled: what shards have of it is asked back, never taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from sharder.backlog.scope import Wanted
from sharder.core.ringspec import parse_ring, resolve
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.memory import Change
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
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
from tests.unit.sharder.ranges.rig import ranged, sharder

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


def prepare(clock: VirtualClock) -> Edited:
    stage = make_stage(clock)
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
async def settled(clock: VirtualClock) -> AsyncIterator[Edited]:
    """All is in its place."""
    edited = prepare(clock)
    async with leading(edited.stage):
        await edited.stage.until(lambda: edited.stage.condition("Settled") == "True")
        assert edited.placed_as == "main"
        yield edited


@in_virtual_time
async def test_what_is_apart_from_its_owner_is_asked_back_and_nothing_else_moves(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        await stage.pass_time(120)
        assert edited.asked_back == {*edited.apart.values(), edited.orphan}
        assert edited.placed_as == "main"
        assert stage.condition("Settled") == "False"
        assert stage.message("Settled").endswith(
            "the ring lists as controlled now, and shards have as main objects where their owners are not: 3 configmaps"
        )
        for name in sorted(edited.asked_back):
            edited.let_go(name)
        await stage.until(lambda: edited.placed_as == "controlled")
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert {shard: stage.label(CHILDREN, name) for shard, name in edited.apart.items()} == {
            "one": "two", "two": "one",
        }  # fmt: skip
        assert {shard: stage.label(CHILDREN, name) for shard, name in edited.together.items()} == {
            "one": "one", "two": "two",
        }  # fmt: skip
        assert stage.label(CHILDREN, edited.orphan) is None
        assert not edited.taken


@in_virtual_time
async def test_the_next_leader_goes_on_and_knows_it_from_the_status(clock: VirtualClock) -> None:
    edited = prepare(clock)
    stage = edited.stage
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
    for shard in SHARDS:
        stage.start(shard)
    edited.edit(FAMILY)  # nobody leads
    async with leading(stage):
        await edited.until_asked_back()
    for shard in SHARDS:
        stage.start(shard)
    async with leading(stage):
        await stage.pass_time(60)
        assert edited.placed_as == "main"
        for name in sorted(edited.asked_back):
            edited.let_go(name)
        await stage.until(lambda: edited.placed_as == "controlled")
    assert not edited.taken


@in_virtual_time
async def test_who_leads_knows_it_also_when_somebody_empties_the_status(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        edited.stage.server.patch(CLUSTERRINGS, RING, None, {"status": {"placedResources": None}}, subresource="status")
        edited.edit(FAMILY)
        await edited.until_asked_back()
        assert edited.placed_as == "main"
        assert not edited.taken


@in_virtual_time
async def test_owners_stay_meanwhile_and_move_with_their_children_afterwards(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        first = set(names_on("one", *SHARDS, count=90))
        owner = next(name for name in names_on("three", *SHARDS, "three", count=50) if name in first)
        body = stage.create(OWNERS, thing(owner, shard="one"))
        stage.create(CHILDREN, thing("with-it", shard="one", owner=body))
        stage.start("three")
        stage.create(CHILDREN, thing("where-it-will-be", shard="three", owner=body))
        await stage.until(lambda: stage.draining(CHILDREN, "where-it-will-be"))
        for name in sorted(edited.asked_back):
            edited.let_go(name)
        await stage.pass_time(120)
        assert not stage.draining(OWNERS, owner)
        assert edited.placed_as == "main"
        edited.let_go("where-it-will-be")
        await stage.until(lambda: edited.placed_as == "controlled")
        assert stage.label(CHILDREN, "where-it-will-be") == "one"
        assert not edited.taken
        await stage.until(lambda: stage.draining(OWNERS, owner))
        stage.acknowledge(owner)
        await stage.until(lambda: stage.label(OWNERS, owner) == "three")
        assert edited.taken == ["where-it-will-be", "with-it"]


@in_virtual_time
async def test_what_a_shard_has_that_is_gone_goes_to_its_owner(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        stage.crash("two")
        await stage.until(lambda: stage.label(OWNERS, edited.owners["two"]) == "one")
        for name in (edited.apart["two"], edited.together["two"], edited.apart["one"]):
            await stage.until(lambda name=name: stage.label(CHILDREN, name) == "one")  # type: ignore[misc]
        await stage.until(lambda: edited.placed_as == "controlled")
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.label(CHILDREN, edited.orphan) is None
        assert not edited.taken


@in_virtual_time
async def test_an_owner_whose_shard_is_gone_does_not_wait_for_what_is_asked_back(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE, OTHERS), None)
    shards = (*SHARDS, "three")
    for shard in shards:
        stage.start(shard)
    then_on_one = names_on("one", "one", "three", count=50)
    name = next(each for each in names_on("two", *shards, count=50) if each in then_on_one)
    owner = stage.create(OWNERS, thing(name, shard="two"))
    [elsewhere, with_it] = [names_on(shard, *shards, resource=CHILDREN)[0] for shard in ("three", "two")]
    stage.create(CHILDREN, thing(elsewhere, shard="three", owner=owner))
    stage.create(CHILDREN, thing(with_it, shard="two", owner=owner))
    edited = Edited(stage, {}, {"three": elsewhere}, {"two": with_it}, elsewhere)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        edited.edit(FAMILY)
        await stage.until(lambda: stage.draining(CHILDREN, elsewhere))
        stage.crash("two")
        await stage.until(lambda: stage.label(OWNERS, name) == "one")
        assert stage.label(CHILDREN, with_it) == "one"
        assert stage.label(CHILDREN, elsewhere) == "three"
        edited.let_go(elsewhere)
        await stage.until(lambda: edited.placed_as == "controlled")
        assert stage.label(CHILDREN, elsewhere) == "one"


@in_virtual_time
async def test_what_was_main_by_mistake_is_controlled_again_though_nobody_lets_go(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(FAMILY), None)
    for shard in SHARDS:
        stage.start(shard)
    edited = Edited(stage, {}, {}, {}, "")
    owner = stage.create(OWNERS, thing(names_on("one", *SHARDS)[0]))
    [child] = names_on("two", *SHARDS, resource=CHILDREN)
    stage.create(CHILDREN, thing(child, owner=owner))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        edited.edit(ALONE, OTHERS)
        await stage.until(lambda: stage.draining(CHILDREN, child))
        assert edited.placed_as == "main"
        edited.edit(FAMILY)
        await stage.until(lambda: edited.placed_as == "controlled")
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.label(CHILDREN, child) == "one"


@in_virtual_time
async def test_it_is_main_again_when_the_ring_says_so_again(clock: VirtualClock) -> None:
    async with settled(clock) as edited:
        stage = edited.stage
        edited.edit(FAMILY)
        await edited.until_asked_back()
        edited.edit(ALONE, OTHERS)
        await stage.pass_time(5)
        for name in sorted(edited.asked_back):
            edited.let_go(name)
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert {shard: stage.label(CHILDREN, name) for shard, name in edited.apart.items()} == {
            "one": "one", "two": "two",
        }  # fmt: skip
        assert stage.label(CHILDREN, edited.orphan) == "two"
        assert edited.placed_as == "main"
        assert not edited.taken


@in_virtual_time
async def test_by_ranges_an_edit_of_the_parts_moves_nothing(clock: VirtualClock) -> None:
    served = {OWNERS.group_resource: OWNERS, CHILDREN.group_resource: CHILDREN}
    async with ranged(clock, *SHARDS) as made, sharder(made.stage) as assignment:
        await made.until_spread(*SHARDS)
        await clock.sleep(60)
        writes = made.writes()
        for resources in ((ALONE, OTHERS), (FAMILY,), (ALONE, OTHERS)):
            spec = parse_ring(ring(*resources, assignment="Ranges", hashBy="Namespace"))
            assignment.place(Wanted(resolve(spec, served)[0], ()))
            await clock.sleep(60)
        assert made.writes() == writes
