"""What a ring lacks: rights of the sharder, or a type that the API server does not serve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sharder.cache import rings as registry
from sharder.rbac import RING_VERBS
from sharder.rings import permissions
from shardsdk.kube import discovery
from tests.integration.harness import Stage
from tests.integration.world import Family, Ring

CHILDREN = "v1/configmaps"


@pytest.fixture(autouse=True)
def _asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing rights are asked for again every few seconds; tests need not wait that long."""
    monkeypatch.setattr(permissions, "DENIED_SECONDS", 0.5)


async def set_up(stage: Stage, verbs: Sequence[str] | None, **settings: Any) -> tuple[Ring, Family]:
    """A ring over a type that the sharder may do no more with than `verbs`."""
    ships = await stage.install_type("Ship")
    ring = await stage.ring(ships, grant=False)
    if verbs is not None:
        await stage.grant(ring.name, [ships.main], verbs=verbs)
    await stage.shard(ring, "one")
    await stage.sharder(**settings)
    return ring, ships


async def test_missing_rights_are_named_with_their_remedy_and_forgotten_once_granted(stage: Stage) -> None:
    ring, ships = await set_up(stage, None)
    condition = await ring.condition("PermissionsGranted", "False")
    for verb in ("list", "watch", "patch"):
        assert f"{verb} ships.{ships.group}" in condition["message"]
    assert "sharder rbac" in condition["message"]
    assert (await ring.condition("Ready", "False"))["message"] == condition["message"]
    event = await ring.events("Forbidden")
    assert (event["type"], event["message"]) == ("Warning", condition["message"])
    made = await ring.create(ships.main, generateName="ship-")
    assert ring.shard_of(made) is None
    await stage.grant(ring.name, [ships.main])
    await ring.condition("PermissionsGranted")
    await ring.condition("Ready")
    await ring.events("Granted")
    await ring.in_place({"one"})
    await ring.condition("Settled")


@pytest.mark.parametrize("verb", ["list", "patch"])
async def test_a_single_missing_right_is_named_alone(stage: Stage, verb: str) -> None:
    ring, ships = await set_up(stage, [each for each in RING_VERBS if each != verb])
    condition = await ring.condition("PermissionsGranted", "False")
    assert f"the sharder may not {verb} ships.{ships.group};" in condition["message"]
    await ring.condition("Ready", "False")
    await ring.create(ships.main, generateName="ship-")
    await stage.grant(ring.name, [ships.main])
    await ring.condition("Ready")
    await ring.in_place({"one"})


async def test_without_watch_alone_the_sync_period_serves_and_the_condition_says_so(stage: Stage) -> None:
    ring, ships = await set_up(stage, ["list", "patch"], sync_period_seconds=1.0)
    condition = await ring.condition("PermissionsGranted", "False")
    assert f"the sharder may not watch ships.{ships.group};" in condition["message"]
    await ring.condition("Ready")
    await ring.in_force(ships.main)
    made = [await ring.create(ships.main, generateName="ship-") for _ in range(3)]
    assert {ring.shard_of(each) for each in made} == {None}
    await ring.in_place({"one"})
    for name in ring.pick_names(2, {"one", "two"}):
        await ring.create(ships.main, name=name)
    await stage.shard(ring, "two")
    await ring.in_place({"one", "two"})
    await stage.shards[0].release()
    await ring.in_place({"two"})
    await stage.grant(ring.name, [ships.main])
    await ring.condition("PermissionsGranted")


async def test_rights_taken_away_show_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "GRANTED_SECONDS", 1.0)
    ring, ships = await set_up(stage, RING_VERBS)
    await ring.condition("Ready")
    await stage.grant(ring.name, [ships.main], verbs=["list", "watch"])
    condition = await ring.condition("PermissionsGranted", "False")
    assert f"the sharder may not patch ships.{ships.group};" in condition["message"]
    await ring.condition("Ready", "False")
    await stage.grant(ring.name, [ships.main])
    await ring.condition("Ready")


async def test_a_type_that_is_not_served_is_named_and_placed_once_it_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RESOLVE_AGAIN_SECONDS", 0.5)
    comets = Family(f"{stage.namespace}.example.com/v1/comets", "Comet", (CHILDREN,))
    ring = await stage.ring(comets, Family("v1/secrets", "Secret"))
    await stage.shard(ring, "one", mains=["v1/secrets"])
    await stage.sharder()
    condition = await ring.condition("ResourcesServed", "False")
    assert f"comets.{comets.group}" in condition["message"]
    assert "install" in condition["message"]
    assert condition["message"] in (await ring.condition("Ready", "False"))["message"]
    await ring.events("NotServed")
    # The rest of the ring is served meanwhile.
    await ring.in_force()
    assert ring.shard_of(await ring.create()) == "one"
    await stage.install_type("Comet")
    await ring.condition("ResourcesServed")
    await ring.condition("Ready")
    await ring.events("Served")
    await ring.in_force(comets.main)
    owner = await ring.create(comets.main)
    assert ring.shard_of(owner) == "one"
    assert ring.shard_of(await ring.create_child(owner)) == "one"
    await ring.in_place({"one"})


async def test_what_cannot_be_listed_is_refused_and_leaves_nothing_behind(stage: Stage) -> None:
    """Whoever may do everything may also list it in a ring."""
    reviews = "subjectaccessreviews.authorization.k8s.io"
    ring = await stage.ring(Family("v1/secrets", "Secret"), Family("authorization.k8s.io/v1/subjectaccessreviews", ""))
    await stage.shard(ring, "one", mains=["v1/secrets"])
    await stage.sharder()
    condition = await ring.condition("ResourcesServed", "False")
    assert f"does not serve {reviews}, or not for list, watch and patch" in condition["message"]
    await ring.in_force()
    assert ring.shard_of(await ring.create()) == "one"
    await ring.update({"resources": [{"resource": "secrets"}]})
    await ring.condition("Ready")
    await ring.condition("Settled")


async def test_a_type_that_is_not_served_any_more_shows(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "FOUND_SECONDS", 1.0)
    ring, ships = await set_up(stage, RING_VERBS)
    await ring.condition("Ready")
    await ring.create(ships.main)
    await ring.in_place({"one"})
    name = f"ships.{ships.group}"
    await stage.admin.delete("apiextensions.k8s.io/v1/customresourcedefinitions", name)
    condition = await ring.condition("ResourcesServed", "False")
    assert name in condition["message"]
