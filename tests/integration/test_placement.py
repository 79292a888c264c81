"""One object at a time: where it is placed, when it stays, and what brings it back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from localcluster import AdminError
from sharder.core.hashring import HashRing
from tests.integration.harness import Sharder, Stage
from tests.integration.world import LONE_SECRETS, LOOK_SECONDS, NOBODY, TIMEOUT_SECONDS, WEBHOOKS, Ring

#: Between two writes of one object, and twice what a write takes: faster than a group moves, on any machine not faster
#: than its owner is read and written.
STORM_SECONDS = 0.1


async def set_up(
    stage: Stage, *, shards: tuple[str, ...] = ("one", "two"), webhook: bool = True
) -> tuple[Ring, Sharder]:
    """A ring of secrets with configmaps, its shards, and a sharder in force."""
    ring = await stage.ring()
    for name in shards:
        await stage.shard(ring, name)
    sharder = await stage.sharder(webhook=webhook)
    await ring.condition("Ready")
    if webhook:
        await ring.in_force()
    return ring, sharder


@asynccontextmanager
async def by_the_watches(ring: Ring, sharder: Sharder) -> AsyncIterator[None]:
    """What falls into place meanwhile does so at once, as it is seen: no resync looks for it."""
    # By this sharder's own word: the condition may be one of a leader before it, which still has its passes to make.
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not sharder.metric("ring_condition", ringName=ring.name, type="Settled"):
            await asyncio.sleep(LOOK_SECONDS)
    passes = sharder.metric("resync_duration_seconds_count", ringName=ring.name)
    yield
    assert sharder.metric("resync_duration_seconds_count", ringName=ring.name) == passes


async def test_a_created_object_comes_back_labelled(stage: Stage) -> None:
    ring, sharder = await set_up(stage)
    made = await ring.create(name="mine", labels={"kept": "yes"})
    assert ring.shard_of(made) in {"one", "two"}
    assert made["metadata"]["labels"]["kept"] == "yes"
    places = await ring.create_families(10, {"one", "two"})
    assert await ring.shards_of() == places | {"mine": ring.shard_of(made)}
    await ring.in_place()
    assert sharder.metric(
        "assignments_total", ringKind="clusterring", ringNamespace="", ringName=ring.name, group="", resource="secrets"
    ) == 21  # fmt: skip


async def test_children_with_generate_name_come_back_labelled(stage: Stage) -> None:
    ring, _ = await set_up(stage)
    for _ in range(4):
        owner = await ring.create()
        child = await ring.create_child(owner, generateName="child-")
        assert ring.shard_of(child) == ring.shard_of(owner) is not None
    await ring.in_place()


async def test_a_main_object_with_generate_name_is_placed_by_its_full_name_as_soon_as_it_is_seen(stage: Stage) -> None:
    ring, sharder = await set_up(stage)
    async with by_the_watches(ring, sharder), ring.history() as history:
        made = [await ring.create(generateName="main-") for _ in range(6)]
        assert {ring.shard_of(obj) for obj in made} == {None}
        await ring.in_place()
    stops = [history.of(obj["metadata"]["name"]) for obj in made]
    assert all(len(each) <= 2 for each in stops)
    child = await ring.create_child(made[0], generateName="child-")
    assert ring.shard_of(child) == stops[0][-1]


async def test_cluster_scoped_objects_are_placed_and_their_children_with_them(stage: Stage) -> None:
    planets = await stage.install_type("Planet", namespaced=False)
    ring = await stage.ring(replace(planets, controlled=("v1/configmaps",)))
    await stage.shard(ring, "one")
    await stage.shard(ring, "two")
    early = await ring.create(planets.main)
    await stage.sharder()
    await ring.in_force(planets.main)
    for owner in (early, await ring.create(planets.main), await ring.create(planets.main)):
        await ring.create("v1/configmaps", generateName="child-", ownerReferences=ring.reference_to(owner))
    await ring.in_place()
    expected = HashRing({"one", "two"}).owner(f"{planets.group}/Planet//{early['metadata']['name']}")
    assert (await ring.shards_of(planets.main))[early["metadata"]["name"]] == expected


async def test_an_update_never_reassigns(stage: Stage) -> None:
    ring, _ = await set_up(stage, shards=("one",))
    one = stage.shards[0]
    places = await ring.create_families(3, {"one", "two"})
    one.acknowledging.clear()
    await stage.shard(ring, "two")
    for name, shard in places.items():
        if shard == "two":
            await ring.until(name, ring.drains)
    for name, shard in places.items():
        updated = await ring.patch(name, {"data": {"a": "YQ=="}})
        assert ring.where(updated) == ("one" if shard == "one" else "one*")
    one.acknowledging.set()
    await ring.in_place()
    assert await ring.shards_of() == places


async def test_a_label_removed_by_hand_is_put_back_unless_the_drain_was_acknowledged(stage: Stage) -> None:
    ring, _ = await set_up(stage)
    made = await ring.create(name="mine")
    shard, (label, drain) = ring.shard_of(made), ring.labels
    taken = await ring.patch("mine", {"metadata": {"labels": {label: None, "other": "change"}}})
    assert ring.shard_of(taken) == shard
    assert taken["metadata"]["labels"]["other"] == "change"
    for each in stage.shards:
        each.acknowledging.clear()
    await ring.patch("mine", {"metadata": {"labels": {drain: "true"}}})
    assert ring.where(await ring.patch("mine", {"metadata": {"labels": {label: None}}})) == f"{shard}*"
    acknowledged = await ring.patch("mine", {"metadata": {"labels": {label: None, drain: None}}})
    assert ring.where(acknowledged) == NOBODY
    await ring.until_on("mine", shard)


async def test_without_a_webhook_a_removed_label_comes_back_by_the_watch(stage: Stage) -> None:
    ring, sharder = await set_up(stage, shards=("one",), webhook=False)
    (name,) = await ring.create_families(1, {"one"})
    await ring.in_place()
    async with by_the_watches(ring, sharder), ring.history() as history:
        await ring.patch(name, {"metadata": {"labels": {ring.labels[0]: None}}})
        await ring.until_on(name, "one")
    first, *rest = history.of(name)
    assert rest == [NOBODY, first]


async def test_objects_made_while_the_webhook_is_down_are_placed_once_and_soon(stage: Stage) -> None:
    ring, sharder = await set_up(stage)
    await sharder.webhook_off()
    async with (
        by_the_watches(ring, sharder),
        ring.history() as mains,
        ring.history("v1/configmaps") as children,
    ):
        await ring.create_families(5, {"one", "two"})
        await ring.in_place()
    assert len(mains.stops) == 10
    for name, stops in (mains.stops | children.stops).items():
        if name != "kube-root-ca.crt":
            assert len(stops) <= 2
            assert stops[0] in {NOBODY, stops[-1]}
    await sharder.webhook_on()
    await ring.in_force()


async def test_without_a_webhook_the_watches_place_alone(stage: Stage) -> None:
    ring, sharder = await set_up(stage)
    name = f"clusterring-{ring.name}"
    assert await stage.admin.find(WEBHOOKS, name)
    await sharder.stop()
    sharder = await stage.sharder(webhook=False)
    await stage.admin.eventually(WEBHOOKS, lambda found: name not in {each["metadata"]["name"] for each in found})
    async with by_the_watches(ring, sharder):
        await ring.create_families(5, {"one", "two"})
        await ring.in_place()
    assert not sharder.outcomes


async def test_without_shards_objects_wait_and_the_first_one_gets_them_all(stage: Stage) -> None:
    ring = await stage.ring()
    sharder = await stage.sharder()
    condition = await ring.condition("ShardsAvailable", "False")
    assert "start a shard" in condition["message"]
    await stage.admin.eventually(WEBHOOKS, lambda found: f"clusterring-{ring.name}" in str(found))
    await ring.create_families(5, {"one", "two"})
    assert set((await ring.shards_of()).values()) == {None}
    await stage.shard(ring, "one")
    await ring.in_place({"one"})
    await ring.condition("ShardsAvailable")
    assert set((await ring.shards_of()).values()) == {"one"}
    assert sharder.settings.timings.retry_period == 1


@pytest.mark.parametrize("grouped", [True, False], ids=["owners", "lone objects"])
async def test_objects_that_are_written_all_the_time_change_hands_too(stage: Stage, grouped: bool) -> None:
    """409 storms: sharder and shards write conditionally, and someone else is always faster once more."""
    ring = await stage.ring() if grouped else await stage.ring(LONE_SECRETS)
    one = await stage.shard(ring, "one")
    await stage.sharder()
    await ring.in_force()
    places = await ring.create_families(3, {"one", "two"})
    stopped = asyncio.Event()

    async def write_on(name: str, resource: str) -> None:
        count = 0
        while not stopped.is_set():
            count += 1
            began = time.monotonic()
            await ring.patch(name, {"metadata": {"annotations": {"count": str(count)}}}, resource)
            await asyncio.sleep(STORM_SECONDS + 2 * (time.monotonic() - began))

    async with asyncio.TaskGroup() as writers:
        for resource in ring.resources:
            for obj in await ring.objects(resource):
                writers.create_task(write_on(obj["metadata"]["name"], resource))
        await stage.shard(ring, "two")
        await ring.in_place({"one", "two"})
        assert await ring.shards_of() == places
        await one.release()
        await ring.in_place({"two"})
        stopped.set()
    assert set((await ring.shards_of()).values()) == {"two"}


async def test_objects_being_deleted_change_hands_like_any_other(stage: Stage) -> None:
    ring, _ = await set_up(stage, shards=("one",))
    one = stage.shards[0]
    places = ring.pick_names(3, {"one", "two"})
    for name in places:
        owner = await ring.create(name=name, finalizers=["example.com/hold"])
        await ring.create_child(owner, finalizers=["example.com/hold"])
    for resource in ring.resources:
        for obj in await ring.objects(resource):
            await stage.admin.delete(resource, obj["metadata"]["name"], ring.namespace)
    await stage.shard(ring, "two")
    await ring.in_place({"one", "two"})
    assert await ring.shards_of() == places
    await one.crash()
    await ring.in_place({"two"})
    assert set((await ring.shards_of()).values()) == {"two"}
    assert all("deletionTimestamp" in obj["metadata"] for obj in await ring.objects())
    for resource in ring.resources:
        for obj in await ring.objects(resource):
            await ring.patch(obj["metadata"]["name"], {"metadata": {"finalizers": None}}, resource)
    await stage.admin.eventually("v1/secrets", lambda left: not left, ring.namespace)


async def test_a_dry_run_is_answered_like_the_real_thing(stage: Stage) -> None:
    ring, _ = await set_up(stage)
    tried = await ring.create(name="mine", dry_run=True)
    with pytest.raises(AdminError, match="404"):
        await ring.get("mine")
    assert ring.shard_of(await ring.create(name="mine")) == ring.shard_of(tried)
