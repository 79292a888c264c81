"""While a type is not served owners change hands without what they control of it, which waits for them with others."""

from __future__ import annotations

import pytest

from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.reconcile.childlists import LEARNT_SECONDS, UNLABELLED_SECONDS
from shardsdk.testing import Rig, drive
from shardsdk.testing.rig import SHARD
from tests.shard_rig import CONFIGMAPS, SECRETS
from tests.unit.shardsdk.process.test_ringcheck import LISTED, OWNING

#: Each watch is begun anew within that time.
LONG = 900.0


def come(rig: Rig, owner: str, child: str) -> None:
    """An owner comes, of which another shard has a child."""
    rig.create(SECRETS, {"metadata": {"name": owner}})
    others = {rig.labels_of_ring.shard: "another"}
    rig.create_child(SECRETS, owner, CONFIGMAPS, {"metadata": {"name": child, "labels": others}})


async def leave_and_return(rig: Rig) -> None:
    """The type of the children is not served for a while."""
    rig.server.serves = lambda resource: resource != CONFIGMAPS
    await rig.clock.sleep(LONG)
    rig.server.serves = lambda resource: True
    await rig.clock.sleep(60)


@pytest.mark.parametrize("comes", ["meanwhile", "afterwards"])
def test_an_owner_waits_for_the_child_that_another_shard_has_since_its_type_was_not_served(comes: str) -> None:
    async def story(rig: Rig) -> None:
        rig.server.serves = lambda resource: resource != CONFIGMAPS
        await rig.clock.sleep(LONG)
        if comes == "afterwards":
            rig.server.serves = lambda resource: True
        come(rig, "owner", "child")
        await rig.clock.sleep(60)
        rig.server.serves = lambda resource: True
        await rig.clock.sleep(60)
        assert "owner" not in {name for name, _ in rig.outcomes}
        rig.patch(CONFIGMAPS, "child", {"metadata": {"labels": {rig.labels_of_ring.shard: SHARD}}})
        await rig.settle()
        assert "owner" in {name for name, _ in rig.outcomes}
        await rig.clock.sleep(LEARNT_SECONDS)
        # From now on nobody looks for such children any more.
        rig.create(SECRETS, {"metadata": {"name": "c"}})
        await rig.settle()
        before = len(rig.api.lists)
        rig.create(SECRETS, {"metadata": {"name": "d"}})
        await rig.settle()
        assert len(rig.api.lists) == before + 1

    rig = drive(OWNING, [(CLUSTERRINGS, LISTED)], story)
    assert [each["metadata"]["name"] for each in rig.children(SECRETS, "owner", CONFIGMAPS)] == ["child"]


def test_it_waits_as_well_if_no_watch_has_ended_meanwhile() -> None:
    """Those of an aggregated API go on when its APIService is taken away; lists are told."""

    async def story(rig: Rig) -> None:
        rig.server.serves = lambda resource: resource != CONFIGMAPS
        come(rig, "owner", "child")
        await rig.clock.sleep(30)
        rig.server.serves = lambda resource: True
        await rig.clock.sleep(60)
        assert "owner" not in {name for name, _ in rig.outcomes}
        rig.patch(CONFIGMAPS, "child", {"metadata": {"labels": {rig.labels_of_ring.shard: SHARD}}})

    rig = drive(OWNING, [(CLUSTERRINGS, LISTED)], story)
    assert [each["metadata"]["name"] for each in rig.children(SECRETS, "owner", CONFIGMAPS)] == ["child"]


def test_it_waits_as_well_if_it_came_before_the_sharder_knew_that_the_type_is_served_again() -> None:
    async def story(rig: Rig) -> None:
        await leave_and_return(rig)
        rig.create(SECRETS, {"metadata": {"name": "of-no-other"}})
        await rig.settle()
        come(rig, "owner", "child")
        await rig.clock.sleep(20)
        assert {name for name, _ in rig.outcomes} == {"of-no-other"}
        rig.patch(CONFIGMAPS, "child", {"metadata": {"labels": {rig.labels_of_ring.shard: SHARD}}})

    rig = drive(OWNING, [(CLUSTERRINGS, LISTED)], story)
    assert [each["metadata"]["name"] for each in rig.children(SECRETS, "owner", CONFIGMAPS)] == ["child"]


def test_children_that_nobody_labels_hold_owners_up_for_a_limited_time_after_their_type_is_served_again() -> None:
    """Of owners without a namespace, in one that is not the ring's, say: they come with each of them."""

    async def story(rig: Rig) -> None:
        shard = rig.labels_of_ring.shard
        await leave_and_return(rig)
        began = rig.clock.monotonic()
        for number, owner in enumerate("abc"):
            await rig.clock.sleep(began + number * 0.45 * UNLABELLED_SECONDS - rig.clock.monotonic())
            come(rig, owner, f"{owner}-child")
            rig.patch(CONFIGMAPS, f"{owner}-child", {"metadata": {"labels": None}})
        assert not rig.outcomes
        await rig.clock.sleep(began + UNLABELLED_SECONDS + 60 - rig.clock.monotonic())
        assert {name for name, _ in rig.outcomes} == {"a", "b", "c"}
        rig.patch(SECRETS, "a", {"metadata": {"labels": {shard: "another"}}})
        await leave_and_return(rig)
        before = len(rig.outcomes)
        rig.patch(SECRETS, "a", {"metadata": {"labels": {shard: SHARD}}})
        await rig.clock.sleep(30)
        assert {name for name, _ in rig.outcomes[before:]} == {"a"}, "as it is, its child is awaited no more"

    drive(OWNING, [(CLUSTERRINGS, LISTED)], story)
