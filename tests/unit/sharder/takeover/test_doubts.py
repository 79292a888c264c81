"""A leadership that is shut for a moment, because this process may have missed time, and then goes on."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk.errors import FenceClosed, ServerError
from shardsdk.kube.api import Operation
from shardsdk.kube.doubts import FenceDoubted
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, OWNERS, Stage, leading, make_stage, names_on, ring, thing
from tests.unit.sharder.takeover.test_controller import FakeWork, controlling


class Shut(MemoryApi):
    """What the sharder writes to `resource` meets `shut` while there is one."""

    shut: Exception | None = None
    resource = LEASES

    async def send(self, operation: Operation[Any]) -> Any:
        if operation.writes and operation.resource == self.resource and operation.fences and self.shut is not None:
            raise self.shut
        return await super().send(operation)


def two_shards(clock: VirtualClock) -> tuple[Stage, Shut, FakeWork]:
    """A ring with two shards, and what is known of their objects: the first one's are not empty."""
    stage = make_stage(clock, api=Shut)
    assert isinstance(stage.api, Shut)
    stage.set_up(ring(), "one", "two")
    return stage, stage.api, FakeWork(left={"one"})


@pytest.mark.parametrize("error", [FenceDoubted("yet to be confirmed"), FenceClosed("shut for a moment")])
@in_virtual_time
async def test_a_dead_shards_lease_is_looked_at_again_whatever_its_takeover_met(
    clock: VirtualClock, error: Exception
) -> None:
    """No event brings it back."""
    stage, api, work = two_shards(clock)
    async with controlling(stage, work):
        await stage.pass_time(20)
        api.shut = error
        stage.crash("one")
        await stage.pass_time(60)
        assert work.acquired == []
        api.shut = None
        await stage.until(lambda: work.acquired == ["one"], seconds=20)


@in_virtual_time
async def test_an_object_that_was_to_be_asked_back_meanwhile_is_asked_back_soon(clock: VirtualClock) -> None:
    """No informer shows what is on a shard that is there."""
    stage = make_stage(clock, api=Shut)
    api = stage.api
    assert isinstance(api, Shut)
    api.resource = OWNERS
    stage.set_up(ring(ALONE), "one")
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.shut = FenceDoubted("yet to be confirmed")
        stage.start("two")
        await stage.pass_time(60)
        assert not stage.draining(OWNERS, name)
        api.shut = None
        await stage.until(lambda: stage.draining(OWNERS, name), seconds=11)


@in_virtual_time
async def test_a_lease_that_its_shard_has_taken_back_is_not_given_back(clock: VirtualClock) -> None:
    """The hold has lapsed, because it could not be renewed, and nobody knows what became of the last renewal."""
    stage, api, work = two_shards(clock)
    async with controlling(stage, work) as controlled:
        stage.crash("one")
        await stage.until(lambda: work.acquired == ["one"], seconds=40)
        api.shut = ServerError("etcd is away", status=500)
        await stage.until(lambda: controlled.controller.fence_for("one") is None, seconds=60)
        stage.start("one")
        await stage.until(lambda: "one" in controlled.controller.membership.available)
        api.shut = None
        await stage.pass_time(1)
        await controlled.controller.give_all_back()
        assert stage.holder("one") == "one"
