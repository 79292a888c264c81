"""Whom rules excuse and whom not: while there is nobody who could label a child, and whose lease a user has emptied."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL, SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES, Resource
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.simulation.checkers import UNLABELLED_SECONDS
from tests.simulation.schedule import draw_plan
from tests.simulation.storage import Author, Version
from tests.simulation.vocabulary import FAMILY, PIECES, WORKS, Doing, namespace_of_shard
from tests.simulation.world import World

OWNER = Key("blue", "owner")
NOBODY_LABELS_SECONDS = 2 * UNLABELLED_SECONDS


def begin(world: World, owner: Version, *, fenced: bool) -> list[str]:
    """Have fam-0 begin with `owner`, whose child has no label; the rules that it breaks by that."""
    world.checkers.began(Doing("fam-0", "fam-0_2", WORKS, owner.uid, 1, fenced=fenced))
    return [violation.rule for violation in world.checkers.violations]


def store(world: World, resource: Resource, meta: dict[str, Any]) -> Version:
    doc = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": {"key": "a"}}
    return world.storage.create(resource, doc, Author("setup"))


def make_family(world: World) -> Version:
    """An owner on fam-0, and a child that was made without label."""
    meta = {"namespace": OWNER.namespace, "name": OWNER.name}
    owner = store(world, WORKS, {**meta, "labels": {FAMILY.shard: "fam-0"}})
    reference = {"apiVersion": WORKS.api_version, "kind": WORKS.kind, "name": OWNER.name, "uid": owner.uid}
    store(world, PIECES, {**meta, "ownerReferences": [{**reference, "controller": True}]})
    return owner


def assign(world: World, shard: str | None) -> None:
    before = world.storage.demand(WORKS, OWNER)
    labels = {} if shard is None else {FAMILY.shard: shard}
    doc = {**before.doc, "metadata": {**before.doc["metadata"], "labels": labels}}
    world.storage.replace(WORKS, before, doc, Author("sharder-0_1"))


@in_virtual_time
async def test_a_foreign_shard_goes_on_with_an_owner_whose_child_nobody_can_label(clock: VirtualClock) -> None:
    world = World(draw_plan(1), clock)
    owner = make_family(world)
    world.hindrances.hinder(None, NOBODY_LABELS_SECONDS)
    await clock.sleep(NOBODY_LABELS_SECONDS)
    assert begin(world, owner, fenced=False) == []


@in_virtual_time
async def test_a_child_has_to_be_labelled_once_a_leader_can(clock: VirtualClock) -> None:
    world = World(draw_plan(1), clock)
    owner = make_family(world)
    world.hindrances.hinder(None, NOBODY_LABELS_SECONDS)
    await clock.sleep(NOBODY_LABELS_SECONDS + UNLABELLED_SECONDS)
    assert begin(world, owner, fenced=False) == ["children with their owner"]


@pytest.mark.parametrize(("fenced", "shards"), [(True, ()), (False, ("fam-1", "fam-0"))])
@in_virtual_time
async def test_a_shard_with_the_barrier_and_an_owner_that_has_changed_hands_are_not_excused(
    clock: VirtualClock, fenced: bool, shards: tuple[str, ...]
) -> None:
    world = World(draw_plan(1), clock)
    owner = make_family(world)
    for shard in shards:
        assign(world, shard)
    world.hindrances.hinder(None, NOBODY_LABELS_SECONDS)
    await clock.sleep(NOBODY_LABELS_SECONDS)
    assert "children with their owner" in begin(world, owner, fenced=fenced)


@pytest.mark.parametrize(("process", "broken"), [("fam-0_2", []), ("fam-0_3", ["reads after the lease"])])
@in_virtual_time
async def test_who_renews_a_lease_that_a_user_has_emptied_has_had_it_all_along(
    clock: VirtualClock, process: str, broken: list[str]
) -> None:
    world = World(draw_plan(1), clock)
    owner = make_family(world)
    meta = {"namespace": namespace_of_shard("fam-0"), "name": "fam-0", "labels": {LEASE_RING_LABEL: FAMILY.ring}}
    kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta}
    lease = world.storage.create(LEASES, {**kind, "spec": {"holderIdentity": "fam-0"}}, Author("fam-0_2"))
    emptied = world.storage.replace(LEASES, lease, {**lease.doc, "spec": {"holderIdentity": ""}}, Author("user"))
    await clock.sleep(1.0)
    labels = {**owner.doc["metadata"], "labels": {}}
    world.storage.replace(WORKS, owner, {**owner.doc, "metadata": labels}, Author("user"))
    await clock.sleep(1.0)
    world.storage.replace(LEASES, emptied, {**emptied.doc, "spec": {"holderIdentity": "fam-0"}}, Author(process))
    world.checkers.began(Doing("fam-0", process, WORKS, owner.uid, 1, fenced=True))
    assert [each.rule for each in world.checkers.violations] == broken


@pytest.mark.parametrize(
    ("renews", "to", "broken"),
    [
        ("its own", "fam-1", []),
        ("elsewhere", "fam-1", ["renews after the drain"]),
        ("none", "fam-1", ["renews after the drain"]),
        ("none", None, []),
    ],
)
@in_virtual_time
async def test_an_owner_is_moved_under_a_hold_on_its_shards_lease_that_was_renewed_since_it_was_drained(
    clock: VirtualClock, renews: str, to: str | None, broken: list[str]
) -> None:
    world, sharder = World(draw_plan(1), clock), Author("sharder-0_1")
    meta = {"namespace": OWNER.namespace, "name": OWNER.name}
    owner = store(world, WORKS, {**meta, "labels": {FAMILY.shard: "fam-0"}})
    where = {"namespace": namespace_of_shard("fam-0"), "name": "fam-0", "labels": {LEASE_RING_LABEL: FAMILY.ring}}
    kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": where}
    spec = {"holderIdentity": SHARDER_HOLDER, "leaseDurationSeconds": 15}
    lease = world.storage.create(LEASES, {**kind, "spec": spec}, sharder)
    await clock.sleep(1.0)
    labels = {FAMILY.shard: "fam-0", FAMILY.drain: "true"}
    doc = {**owner.doc, "metadata": {**owner.doc["metadata"], "labels": labels}}
    world.storage.replace(WORKS, owner, doc, sharder)
    await clock.sleep(1.0)
    if renews == "its own":
        world.storage.replace(LEASES, lease, {**lease.doc, "spec": {**spec, "renewTime": "later"}}, sharder)
    elif renews == "elsewhere":
        world.storage.create(LEASES, {**kind, "metadata": {**where, "namespace": "elsewhere"}, "spec": spec}, sharder)
    assign(world, to)
    assert [each.rule for each in world.checkers.violations] == broken


@pytest.mark.parametrize(
    ("torn", "waits", "broken"),
    [
        ("deleted", 1.0, []),
        ("deleted", 20.0, ["two owners"]),
        ("emptied", 1.0, ["two owners"]),
        ("", 1.0, ["two owners"]),
    ],
    ids=["at once", "after its lease", "where that could be waited for", "of its own accord"],
)
@in_virtual_time
async def test_whose_lease_a_user_has_deleted_may_meet_a_namesake_for_as_long_as_its_lease_lasts(
    clock: VirtualClock, torn: str, waits: float, broken: list[str]
) -> None:
    world = World(draw_plan(1), clock)
    owner = store(world, WORKS, {"namespace": OWNER.namespace, "name": OWNER.name, "labels": {FAMILY.shard: "fam-0"}})
    first, second = (Doing("fam-0", f"fam-0_{each}", WORKS, owner.uid, each, fenced=True) for each in (1, 2))
    meta = {"namespace": namespace_of_shard("fam-0"), "name": "fam-0", "labels": {LEASE_RING_LABEL: FAMILY.ring}}
    kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta}
    spec = {"holderIdentity": "fam-0", "leaseDurationSeconds": 15}
    lease = world.storage.create(LEASES, {**kind, "spec": spec}, Author(first.process))
    world.checkers.began(first)
    if torn == "emptied":
        lease = world.storage.replace(
            LEASES, lease, {**lease.doc, "spec": {**spec, "holderIdentity": ""}}, Author("user")
        )
    doc = {**lease.doc, "spec": {**spec, "renewTime": "later"}}
    if torn == "deleted":
        world.storage.delete(LEASES, lease.key, Author("user"), {})
        world.storage.create(LEASES, doc, Author(second.process))
    else:
        world.storage.replace(LEASES, lease, doc, Author(second.process))
    world.checkers.began(second)
    await clock.sleep(waits)
    written = {**owner.doc, "spec": {"key": "b"}}
    world.storage.replace(WORKS, owner, written, Author(first.process, first))
    assert [each.rule for each in world.checkers.violations if each.rule == "two owners"] == broken


@pytest.mark.parametrize(
    ("had", "first", "shards", "waits", "follows"),
    [
        ({FAMILY.shard: "fam-0"}, 0.0, ["fam-1"], 1.0, True),
        ({FAMILY.shard: "fam-0"}, 0.0, ["fam-1"], 3.0, False),
        ({FAMILY.shard: "fam-0"}, 0.0, ["fam-1", "fam-2"], 1.0, False),
        ({}, 0.5, ["fam-1"], 60.0, True),
        ({}, 3.0, ["fam-1"], 1.0, False),
        ({}, 0.5, ["fam-1", "fam-2"], 1.0, False),
    ],
    ids=[
        "amid a handover", "and never followed", "before another one", "amid its first assignment",
        "long before its first assignment", "before its second one",
    ],
)  # fmt: skip
@in_virtual_time
async def test_a_child_that_came_back_while_its_owner_was_moved_may_follow_a_moment_later(
    clock: VirtualClock, had: dict[str, str], first: float, shards: list[str], waits: float, follows: bool
) -> None:
    world = World(draw_plan(1), clock)
    meta = {"namespace": OWNER.namespace, "name": OWNER.name}
    owner = store(world, WORKS, {**meta, "labels": had})
    reference = {"apiVersion": WORKS.api_version, "kind": WORKS.kind, "name": OWNER.name, "uid": owner.uid}
    world.checkers.strays.come(OWNER.name, owner.uid)
    labels = {FAMILY.shard: "fam-9"}
    store(world, PIECES, {**meta, "labels": labels, "ownerReferences": [{**reference, "controller": True}]})
    await clock.sleep(first)
    for shard in shards:
        assign(world, shard)
    await clock.sleep(waits)
    world.checkers.began(Doing(shards[-1], f"{shards[-1]}_1", WORKS, owner.uid, 1, fenced=False))
    broken = [each.rule for each in world.checkers.violations]
    assert ("children with their owner" not in broken) == follows


@in_virtual_time
async def test_nobody_relies_on_a_lease_that_was_not_renewed_since_a_restore_once_each_hold_has_run_out(
    clock: VirtualClock,
) -> None:
    world = World(draw_plan(1), clock)
    doing = Doing("fam-0", "fam-0_1", WORKS, "uid-1", 1, fenced=True)
    meta = {"namespace": namespace_of_shard("fam-0"), "name": "fam-0", "labels": {LEASE_RING_LABEL: FAMILY.ring}}
    kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta}
    spec = {"holderIdentity": "fam-0", "leaseDurationSeconds": 15}
    lease = world.storage.create(LEASES, {**kind, "spec": spec}, Author(doing.process))
    await clock.sleep(60.0)
    assert world.checkers.relies(doing)  # nobody has taken it
    world.checkers.unsure_until(world.now + 15.0)
    assert world.checkers.relies(doing)
    await clock.sleep(16.0)
    assert not world.checkers.relies(doing)
    world.storage.replace(LEASES, lease, {**lease.doc, "spec": {**spec, "renewTime": "later"}}, Author(doing.process))
    assert world.checkers.relies(doing)
