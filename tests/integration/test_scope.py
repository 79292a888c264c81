"""Which objects take part: namespaces and resources that begin and cease to belong to a ring."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest_asyncio

from localcluster import AdminClient
from tests.integration.harness import Stage
from tests.integration.world import LONE_SECRETS, NOBODY, RINGS, SECRETS, Ring

CHILDREN = "v1/configmaps"
SELECTED = {"matchLabels": {"team": "ours"}}


async def select(stage: Stage, selected: bool) -> None:
    """Have the test's namespace selected by rings with SELECTED, or not."""
    await stage.admin.patch(
        "v1/namespaces", stage.namespace, {"metadata": {"labels": {"team": "ours" if selected else None}}}
    )


async def nobody_has_any(ring: Ring, resource: str) -> None:
    """Wait until no object carries any of the ring's labels."""
    await ring.admin.eventually(
        resource, lambda objects: all(ring.where(obj) == NOBODY for obj in objects) and objects, ring.namespace
    )


async def test_a_namespace_that_starts_and_stops_to_match(stage: Stage) -> None:
    ring = await stage.ring(namespaceSelector=SELECTED)
    await stage.shard(ring, "one")
    await stage.shard(ring, "two")
    await stage.sharder()
    await ring.condition("Settled")
    places = await ring.create_families(3, {"one", "two"})
    assert set((await ring.shards_of()).values()) == {None}
    await select(stage, True)
    await ring.in_place()
    await ring.in_force()
    async with ring.history() as history:
        await select(stage, False)
        await nobody_has_any(ring, "v1/secrets")
        await nobody_has_any(ring, CHILDREN)
    assert {name: history.of(name) for name in places} == {
        name: [shard, f"{shard}*", NOBODY] for name, shard in places.items()
    }
    await ring.condition("Settled")
    await select(stage, True)
    await ring.in_place()
    assert await ring.shards_of() == places


async def test_a_namespace_that_left_while_no_sharder_ran_is_cleaned_up(stage: Stage) -> None:
    ring = await stage.ring(namespaceSelector=SELECTED)
    await stage.shard(ring, "one")
    sharder = await stage.sharder(webhook=False)
    await select(stage, True)
    await ring.create_families(2, {"one"})
    await ring.in_place()
    await sharder.stop()
    await select(stage, False)
    await stage.sharder()
    await nobody_has_any(ring, "v1/secrets")
    await nobody_has_any(ring, CHILDREN)
    assert ring.shard_of(await ring.create()) is None


async def test_objects_of_a_shard_that_is_gone_leave_the_scope_too(stage: Stage) -> None:
    ring = await stage.ring(namespaceSelector=SELECTED)
    await select(stage, True)
    one = await stage.shard(ring, "one")
    await stage.sharder()
    await ring.in_force()
    await ring.create_families(3, {"one"})
    await one.crash()
    await select(stage, False)
    await stage.shard(ring, "two")
    await nobody_has_any(ring, "v1/secrets")
    await nobody_has_any(ring, CHILDREN)


@pytest_asyncio.fixture
async def in_kube_system(stage: Stage, admin: AdminClient) -> AsyncIterator[str]:
    name = f"in-the-middle-of-everything-{stage.namespace}"
    await admin.create("v1/limitranges", {"metadata": {"name": name}}, "kube-system")
    yield name
    await admin.delete("v1/limitranges", name, "kube-system")


async def test_without_a_selector_every_namespace_but_the_systems_takes_part(stage: Stage, in_kube_system: str) -> None:
    ring = await stage.ring(replace(LONE_SECRETS, main="v1/limitranges", kind="LimitRange"), namespaceSelector=None)
    await stage.shard(ring, "one")
    await ring.create("v1/limitranges", name="early")
    await stage.sharder()
    await ring.in_force("v1/limitranges")
    assert ring.shard_of(await ring.create("v1/limitranges")) == "one"
    await ring.in_place()
    await ring.condition("Settled")
    left_out = await stage.admin.get("v1/limitranges", in_kube_system, "kube-system")
    assert not left_out["metadata"].get("labels")
    await stage.admin.patch("v1/limitranges", in_kube_system, {"metadata": {"labels": {"a": "b"}}}, "kube-system")
    assert ring.shard_of(await stage.admin.get("v1/limitranges", in_kube_system, "kube-system")) is None


async def test_a_resource_taken_off_the_list_is_drained_and_left_to_nobody(stage: Stage) -> None:
    ring = await stage.ring(SECRETS, replace(LONE_SECRETS, main="v1/limitranges", kind="LimitRange"))
    await stage.shard(ring, "one")
    await stage.shard(ring, "two")
    await stage.sharder()
    await ring.in_force()
    places = await ring.create_families(3, {"one", "two"})
    await ring.create("v1/limitranges", name="mine")
    await ring.in_place()
    limits, secrets = ring.families[1], ring.families[0]
    async with ring.history() as history:
        await ring.update({"resources": [limits.render()]})
        await nobody_has_any(ring, "v1/secrets")
        await nobody_has_any(ring, CHILDREN)
    assert {name: history.of(name) for name in places} == {
        name: [shard, f"{shard}*", NOBODY] for name, shard in places.items()
    }
    await ring.condition("Settled")
    assert ring.shard_of(await ring.get("mine", "v1/limitranges")) in {"one", "two"}
    await stage.admin.eventually(RINGS, lambda found: "secrets" not in str(placed_resources(found, ring)))
    await ring.update({"resources": [secrets.render(), limits.render()]})
    await ring.in_place()
    assert (await ring.shards_of()).items() >= places.items()


async def test_controlled_resources_come_and_go_while_their_owners_stay(stage: Stage) -> None:
    ring = await stage.ring()
    await stage.shard(ring, "one")
    await stage.sharder()
    await ring.in_force()
    await ring.create_families(3, {"one"})
    async with ring.history() as history:
        await ring.update({"resources": [LONE_SECRETS.render()]})
        await nobody_has_any(ring, CHILDREN)
        await ring.update({"resources": [SECRETS.render()]})
        await ring.in_place()
        await ring.condition("Settled")
    assert all(stops == ["one"] for stops in history.stops.values())


async def test_what_left_the_ring_is_cleaned_up_by_the_next_leader_too(stage: Stage) -> None:
    ring = await stage.ring()
    await stage.shard(ring, "one")
    sharder = await stage.sharder()
    await ring.in_force()
    await ring.create_families(3, {"one"})
    await ring.in_place()
    await sharder.stop()
    limits = replace(LONE_SECRETS, main="v1/limitranges", kind="LimitRange")
    await stage.grant(f"{ring.name}-more", [limits.main])
    await ring.update({"resources": [limits.render()]})
    await stage.sharder()
    await nobody_has_any(ring, "v1/secrets")
    await nobody_has_any(ring, CHILDREN)


def placed_resources(rings: list[dict[str, object]], ring: Ring) -> object:
    status = next((each.get("status") for each in rings if each["metadata"]["name"] == ring.name), None)  # type: ignore[index]
    return status.get("placedResources") if isinstance(status, dict) else None
