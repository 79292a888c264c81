"""Caches of rings and leases that do not show what there is, though their watches are open and well."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shardsdk.kube.api import Selection, T, WatchEvent, WatchOptions
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, SHARDS, leading, lease, make_stage, ring

#: The lease of which no watch ever tells.
HIDDEN = "three"


class Hiding(MemoryApi):
    """As an API server whose etcd was put back below the position of a watch, for some objects."""

    async def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        listing = options.resource_version is None
        async for event in super().read_events(selection, options):
            listing = listing and not event.initial_end
            metadata = getattr(event.object, "metadata", None)
            if listing or metadata is None or metadata.name != HIDDEN:
                yield event


@in_virtual_time
async def test_a_lease_that_its_watch_keeps_to_itself_is_found_by_lists(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(clock, api=Hiding)
    stage.set_up(ring(ALONE), "one")
    async with leading(stage) as leader:
        await stage.until(lambda: stage.condition("Settled") == "True")
        caplog.clear()
        stage.create(LEASES, lease(clock, HIDDEN), SHARDS)
        await stage.until(lambda: HIDDEN in {each.metadata.name for each in leader.cache.lease_informer.store})
    (line,) = [each for each in caplog.records if each.msg.startswith("leases are not what their watch shows")]
    assert f"{SHARDS}/{HIDDEN}" in line.__dict__["why"]
    for shard in stage.shards.values():
        shard.cancel()
