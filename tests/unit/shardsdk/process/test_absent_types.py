"""While a type is not served owners change hands without what they control of it, which waits for them with others."""

from __future__ import annotations

import pytest

from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing import Rig, drive
from shardsdk.testing.rig import SHARD
from tests.shard_rig import CONFIGMAPS, SECRETS
from tests.unit.shardsdk.process.test_ringcheck import LISTED, OWNING

#: Each watch is begun anew within that time.
LONG = 900.0


@pytest.mark.parametrize("comes", ["meanwhile", "afterwards"])
def test_an_owner_waits_for_the_child_that_another_shard_has_since_its_type_was_not_served(comes: str) -> None:
    async def story(rig: Rig) -> None:
        rig.server.serves = lambda resource: resource != CONFIGMAPS
        await rig.clock.sleep(LONG)
        if comes == "afterwards":
            rig.server.serves = lambda resource: True
        rig.create(SECRETS, {"metadata": {"name": "owner"}})
        others = {rig.labels_of_ring.shard: "another"}
        rig.create_child(SECRETS, "owner", CONFIGMAPS, {"metadata": {"name": "child", "labels": others}})
        await rig.clock.sleep(60)
        rig.server.serves = lambda resource: True
        await rig.clock.sleep(60)
        assert "owner" not in {name for name, _ in rig.outcomes}
        rig.patch(CONFIGMAPS, "child", {"metadata": {"labels": {rig.labels_of_ring.shard: SHARD}}})
        await rig.settle()
        assert "owner" in {name for name, _ in rig.outcomes}
        # From now on nobody looks for such children any more.
        rig.create(SECRETS, {"metadata": {"name": "c"}})
        await rig.settle()
        before = len(rig.api.lists)
        rig.create(SECRETS, {"metadata": {"name": "d"}})
        await rig.settle()
        assert len(rig.api.lists) == before + 1

    rig = drive(OWNING, [(CLUSTERRINGS, LISTED)], story)
    assert [each["metadata"]["name"] for each in rig.children(SECRETS, "owner", CONFIGMAPS)] == ["child"]
