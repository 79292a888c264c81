"""Series of a ring that is gone, while what was begun for it still ends."""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase

from sharder.backlog.objects import RingResource
from sharder.core.decisions import Decision
from sharder.core.ringspec import ResolvedMain, Role, Subject
from sharder.replica import _Counters
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, OWNERS, RING, leading, make_stage, ring


@in_virtual_time
async def test_what_ends_after_its_ring_is_gone_brings_no_series_back(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one")
    async with leading(stage) as replica:
        counters, metrics = _Counters(replica._metrics, replica.cache), replica._metrics
        families: tuple[MetricWrapperBase, ...] = (
            metrics.movements, metrics.drains, metrics.placement_latency, metrics.lease_takeovers,
            metrics.resync_duration, metrics.ring_condition,
        )  # fmt: skip

        def shown() -> list[bool]:
            return [any(each.samples for each in family.collect()) for family in families]

        def count() -> None:
            owners = RingResource(Subject(Role.MAIN, OWNERS, ResolvedMain(OWNERS)))
            for decision in Decision:
                counters.labelled(RING, owners, decision, 1.0)
            counters.took_over(RING)
            counters.resynced(RING, 1, 1.0)
            counters.conditions(RING, {"Ready": True})

        await stage.until(lambda: stage.condition("Settled") == "True")
        count()
        assert all(shown())
        stage.server.delete(CLUSTERRINGS, RING, None)
        await stage.until(lambda: replica.cache.get(RING) is None)
        count()
        assert not any(shown())
