"""A resource that is taken away, and made again at once as another kind: no watch tells of that."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from sharder.core.hashring import HashRing
from shardsdk.kube import discovery
from tests.integration.harness import Stage
from tests.integration.world import Family, Ring

SHARDS: Final = HashRing({"one", "two"})


@pytest.mark.parametrize("webhook", [True, False])
async def test_objects_and_their_children_are_where_they_belong_soon_after_their_type_has_become_another(
    stage: Stage, webhook: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "FOUND_SECONDS", 0.0)  # the ring was looked up a moment ago
    was = replace(await stage.install_type("Thing"), controlled=("v1/configmaps",))
    ring = await stage.ring(was)
    for shard in ("one", "two"):
        await stage.shard(ring, shard)
    await stage.sharder(webhook=webhook)
    await ring.create(was.main, name="before")
    await ring.until("before", ring.shard_of, was.main)

    now = await stage.remake_type(was, "Another")
    for name in names_that_move(ring, was, now):
        ring.families = (now,)
        owner = await ring.create(now.main, name=name)
        child = await ring.create_child(owner, "v1/configmaps")
        there = SHARDS.owner(ring.key(owner))
        await ring.until_on(name, there, now.main)
        await ring.until_on(child["metadata"]["name"], there, "v1/configmaps")


def names_that_move(ring: Ring, was: Family, now: Family) -> list[str]:
    """Some that belong to one shard by what the type was, and to the other by what it is."""

    def differ(name: str) -> bool:
        obj = {"metadata": {"name": name, "namespace": ring.namespace}}
        return SHARDS.owner(ring.key(obj, was)) != SHARDS.owner(ring.key(obj, now))

    return [name for number in range(30) if differ(name := f"o{number}")][:3]
