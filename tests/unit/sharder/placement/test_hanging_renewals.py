"""A lease whose renewal hangs: the families of other shards that are gone move all the same."""

from __future__ import annotations

import asyncio
from typing import Any

from shardsdk.errors import ConnectionFailed
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family
from tests.unit.sharder.placement.stage import OWNERS, leading, make_stage, names_on, ring


class Hanging(MemoryApi):
    """Whoever renews the lease of shard one gets no answer, once it `hangs`."""

    hangs = False

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        renews = resource == LEASES and name == "one" and "acquireTime" not in body.get("spec", {"acquireTime": ""})
        if self.hangs and renews:
            await asyncio.sleep(5)
            raise ConnectionFailed("no answer within 5 s")
        return await super().patch(resource, name, namespace, body, **more)


@in_virtual_time
async def test_families_wait_for_the_renewal_of_their_own_shards_lease_alone(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Hanging)
    assert isinstance(stage.api, Hanging)
    stage.set_up(ring(), "one", "two", "three")
    owners = {shard: names_on(shard, "one", "two", "three", count=30) for shard in ("one", "two")}
    for shard, names in owners.items():
        for name in names:
            create_family(stage, name, shard=shard, children=(shard,))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.hangs = True
        stage.release("one")
        await stage.pass_time(2)
        stage.release("two")
        await stage.until(lambda: {stage.label(OWNERS, name) for name in owners["two"]} == {"three"}, seconds=3)
