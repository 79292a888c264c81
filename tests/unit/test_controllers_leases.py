"""The leases' side: what is done with the leases of shards that are gone, and at what cost."""

from __future__ import annotations

from typing import Final

from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.memory import Change
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.controllers.stage import LABELS, OWNERS, SlowApi, leading, make_stage, names_on, ring, thing

ALONE: Final = {"group": OWNERS.group, "resource": OWNERS.plural}


@in_virtual_time
async def test_a_move_on_its_way_is_waited_for_before_the_lease_is_given_back(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=SlowApi)
    taken_from_the_living: list[Change] = []

    def look(change: Change) -> None:
        if change.resource == OWNERS.group_resource and change.old is not None and change.new is not None:
            before = change.old["metadata"]["labels"].get(LABELS.shard)
            after = change.new["metadata"]["labels"].get(LABELS.shard)
            if before == "one" and after != before and stage.holder("one") == "one":
                taken_from_the_living.append(change)

    stage.server.listeners.append(look)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    stage.start("one")
    stage.start("two")
    [name] = names_on("one", "one", "two")
    stage.create(OWNERS, thing(name, shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Ready") == "True")
        assert isinstance(stage.api, SlowApi)
        stage.api.slow[OWNERS.plural] = 8.0
        stage.crash("one")
        await stage.until(lambda: stage.patches(OWNERS) > 0)
        stage.release("two")
        await stage.until(lambda: stage.holder("one") == "")
        stage.start("one")
        await stage.pass_time(10)
    assert not taken_from_the_living
