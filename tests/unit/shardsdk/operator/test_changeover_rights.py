"""An operator that goes from elected to sharded while the rights of a shard come or go."""

from __future__ import annotations

import pytest

from shardsdk.errors import Forbidden
from shardsdk.protocol.objects import LEASES
from shardsdk.rbac import Right
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.shardsdk.operator.test_changeover import BLINDED, Stage, awaited
from tests.unsharded_rig import Replica


class Late(Replica):
    """One to which all that it wants of Leases is granted late."""

    granted = False

    def refuse(self, right: Right) -> None:
        if not self.granted and right.resource == LEASES.group_resource:
            raise Forbidden("leases is forbidden", status=403)


@in_virtual_time
async def test_a_shard_looks_once_its_rights_are_granted(clock: VirtualClock) -> None:
    stage = Stage(clock)
    leader = stage.start(sharded=False)
    await clock.sleep(5)
    late = Late(clock, stage.server, 9)
    shard = stage.start(sharded=True, replica=late)
    await clock.sleep(20)
    late.granted = True
    await clock.sleep(30)
    assert (leader.works(), shard.works(), stage.holder("one")) == (True, False, "")
    await leader.stop()
    await clock.sleep(10)
    assert shard.works()
    await shard.stop()


class Blinded(Replica):
    """One that may look at the leader's Lease once."""

    looks = 0

    def refuse(self, right: Right) -> None:
        if right.resource == LEASES.group_resource and right.name == "pages":
            self.looks += 1
            if self.looks > 1:
                raise Forbidden("leases is forbidden", status=403)


@in_virtual_time
async def test_a_shard_that_can_see_no_more_gives_its_lease_up_and_waits_without(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(clock)
    shard = stage.start(sharded=True, replica=Blinded(clock, stage.server, 9))
    await clock.sleep(60)
    assert (shard.works(), stage.holder("one"), awaited(shard)) == (False, "", 1.0)
    leader = stage.start(sharded=False)
    await clock.sleep(10)
    assert leader.works()
    assert [each.getMessage().startswith(BLINDED) for each in caplog.records].count(True) == 1
    await leader.stop()
    await shard.stop()
