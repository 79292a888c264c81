"""What a mass move has used is given back, once, when the ring is settled."""

from __future__ import annotations

import platform
from random import Random

from prometheus_client import CollectorRegistry

from sharder.replica import Replica
from sharder.telemetry.metrics import Metrics
from shardsdk.process.memory import give_back_memory
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import OWNERS, RING, SETTINGS, make_stage, ring, running, thing


def test_the_gnu_library_takes_it_back_and_others_are_not_asked() -> None:
    assert give_back_memory() == (platform.libc_ver()[0] == "glibc")


@in_virtual_time
async def test_it_is_asked_each_time_that_a_ring_has_settled(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    settled: list[str] = []
    stage.set_up(ring(), "one")
    replica = Replica(
        stage.api, SETTINGS, metrics=Metrics.create(CollectorRegistry()), recorder=stage.events, webhook=None,
        clock=clock, rng=Random(7), on_settled=settled.append,
    )  # fmt: skip
    async with running(stage, replica.run()):
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(30)
        assert settled == [RING]
        stage.start("two")
        await stage.until(lambda: stage.condition("Settled") != "True")
        stage.create(OWNERS, thing("it"))
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(5)
    assert settled == [RING, RING]
