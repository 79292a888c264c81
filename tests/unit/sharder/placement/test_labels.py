"""A ring's placement, as edits of the ring begin and end it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from shardsdk.kube.api import Selection, WatchOptions
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, CHILDREN, OWNERS, RING, SlowApi, leading, make_stage, ring, thing


class Watched(SlowApi):
    """Counts the watches that go on, by plural."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.watches: Counter[str] = Counter()

    async def read_events(self, selection: Selection[Any], options: WatchOptions) -> AsyncIterator[Any]:
        self.watches[selection.resource.plural] += 1
        try:
            async for event in super().read_events(selection, options):
                yield event
        finally:
            self.watches[selection.resource.plural] -= 1


@in_virtual_time
async def test_of_a_ring_that_is_spoilt_while_an_edit_waits_for_writes_nothing_is_left(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Watched)
    assert isinstance(stage.api, Watched)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    stage.start("one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.api.watches[OWNERS.plural]
        stage.api.slow = {OWNERS.plural: 5.0}
        stage.create(OWNERS, thing("slow"))
        await stage.until(lambda: stage.patches(OWNERS) > 0)
        edited = {"resources": [ALONE | {"controlledResources": [{"resource": CHILDREN.plural}]}]}
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": edited})
        await stage.pass_time(1)
        spoilt = {"resources": [{"group": "No Group", "resource": "owners"}]}
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": spoilt})
        await stage.until(lambda: stage.condition("Ready") == "False")
        await stage.pass_time(10)
        assert not stage.api.watches[OWNERS.plural]
        assert not stage.api.watches[CHILDREN.plural]
