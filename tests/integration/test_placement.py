"""One object at a time: where it is placed, when it stays, and what brings it back."""

from __future__ import annotations

from tests.integration.harness import Stage


async def test_a_created_object_comes_back_labelled(stage: Stage) -> None:
    ring = await stage.ring()
    await stage.shard(ring, "one")
    await stage.shard(ring, "two")
    await stage.sharder()
    await ring.in_force()
    made = await ring.create(name="mine", labels={"kept": "yes"})
    assert ring.shard_of(made) in {"one", "two"}
    assert made["metadata"]["labels"]["kept"] == "yes"
    await ring.create_families(20)
    assert set((await ring.shards_of()).values()) == {"one", "two"}
    await ring.in_place()
