"""What goes wrong in a test kit: the same for whoever is elected and for shards."""

from __future__ import annotations

import pytest

from shardsdk.errors import ServerError
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.rig import Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap, site, websites


@pytest.mark.parametrize("sharded", [False, True])
def test_an_outage_is_one_for_leaders_and_shards_alike_and_leases_are_renewed_all_the_same(sharded: bool) -> None:
    operator = websites(sharded=sharded)

    async def story(rig: Rig) -> None:
        rig.api.fault = Fault.REFUSED
        rig.create(site("made-meanwhile"))
        await rig.clock.sleep(60)
        assert rig.find(ConfigMap, "made-meanwhile") is None
        rig.api.fault, rig.api.error = Fault.NONE, ServerError("not now", status=500)
        await rig.clock.sleep(60)
        assert rig.find(ConfigMap, "made-meanwhile") is None
        rig.api.error = None
        await rig.clock.sleep(120)
        assert rig.find(ConfigMap, "made-meanwhile") is not None
        began, rig.api.delay = rig.clock.monotonic(), lambda: 5.0
        rig.create(site("slow"))
        while rig.find(ConfigMap, "slow") is None:
            await rig.clock.sleep(1)
        assert rig.clock.monotonic() - began >= 5
        rig.api.delay = lambda: 0.001

    drive(operator, [], story, raises=False)
