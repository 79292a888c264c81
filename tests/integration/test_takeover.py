"""Whoever holds a shard's lease may take its objects away, and nobody else: what goes on around a takeover."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from sharder.core.takeover import Limits
from tests.integration.chronicle import Chronicle, Version
from tests.integration.harness import Stage
from tests.integration.scripted import Script
from tests.integration.test_leases import LIMITS, QUOTAS, chronicle, put_lease, states
from tests.integration.withheld import in_force_before
from tests.integration.world import LONE_SECRETS, Family, Ring
from tests.integration.world import SECRETS as FAMILIES

SECRETS: Final = "v1/secrets"
CONFIGMAPS: Final = "v1/configmaps"


def tenures(versions: Sequence[Version]) -> list[tuple[int, float]]:
    """When a lease was in the sharder's name: from its first version until it said something else."""
    found: list[tuple[int, float]] = []
    for version in versions:
        if version.ours and (not found or found[-1][1] != float("inf")):
            found.append((version.at, float("inf")))
        elif not version.ours and found and found[-1][1] == float("inf"):
            found[-1] = (found[-1][0], version.at)
    return found


def taken_under_hold(seen: Chronicle, shard: str) -> list[Version]:
    """What was taken away from `shard` other than by itself; all of it while its lease was the sharder's.

    A child on an available shard is not taken away: it follows an owner that its shard has let go.
    """
    leases = seen.lease(shard)
    held = tenures(leases)
    taken = [
        after
        for before, after in seen.steps()
        if before.shard == shard and after.shard not in (None, shard)
        if after.resource == SECRETS or [each.holder for each in leases if each.at < after.at][-1:] != [shard]
    ]
    for each in taken:
        assert any(begin < each.at < end for begin, end in held), f"{each.name} at {each.at}, held {held}"
    return taken


async def settled_on(stage: Stage, ring: Ring, *names: str, each: int = 4) -> None:
    """Shards called `names` with objects of their own."""
    for name in names:
        await stage.shard(ring, name)
    await ring.create_families(each, names)


@pytest.mark.parametrize("family", [LONE_SECRETS, FAMILIES], ids=["alone", "with children"])
async def test_a_released_lease_is_acquired_before_anything_moves_and_given_back_after(
    stage: Stage, family: Family
) -> None:
    ring = await stage.ring(family)
    await settled_on(stage, ring, "stays", "leaves")
    leaves = stage.shards[1]
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.in_place()
    async with chronicle(stage, ring) as seen:
        await leaves.release()
        await ring.in_place()
        await seen.until(lambda: seen.lease("leaves")[-1].deleted)
        assert len(taken_under_hold(seen, "leaves")) == 4 * len(ring.resources)
        first = next(each for each in seen.lease("leaves") if each.ours)
        assert first.body["spec"]["leaseDurationSeconds"] == LIMITS.min_hold_seconds, "a released lease says 1 s"
        given_back = next(each for each in seen.lease("leaves") if each.at > first.at and not each.ours)
        assert given_back.holder == ""
        assert given_back.body["spec"]["leaseDurationSeconds"] == 1


async def test_of_a_crashed_shard_an_owner_drains_first_then_the_lease_is_renewed_children_move_and_the_owner_last(
    stage: Stage,
) -> None:
    ring = await stage.ring()
    await settled_on(stage, ring, "stays", "gone")
    gone = stage.shards[1]
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.in_place()
    places = await ring.shards_of()
    async with chronicle(stage, ring) as seen:
        await gone.crash()
        await ring.in_place()
        await seen.until(lambda: seen.lease("gone")[-1].deleted)
        assert len(taken_under_hold(seen, "gone")) == 8
        ours = [each.at for each in seen.lease("gone") if each.ours]
        for name in (name for name, shard in places.items() if shard == "gone"):
            owner = [(before, after) for before, after in seen.steps([SECRETS]) if after.name == name]
            drained = next(after.at for before, after in owner if after.draining and after.shard == "gone")
            moved = next(after.at for before, after in owner if after.shard == "stays" and not after.draining)
            children = [
                after.at
                for before, after in seen.moves([CONFIGMAPS])
                if after.body["metadata"]["ownerReferences"][0]["name"] == name
            ]
            assert len(owner) == 2, "no other write"
            assert ours[0] < drained < max(at for at in ours if at < min(children)) < min(children), "renewed between"
            assert max(children) < moved


@pytest.mark.parametrize("leave", ["released", "crashed"])
async def test_a_shard_that_comes_back_while_its_objects_move_waits_and_gets_its_share_back_by_drain(
    stage: Stage, leave: str
) -> None:
    ring = await stage.ring()
    await settled_on(stage, ring, "stays", "back", each=25)
    back = stage.shards[1]
    # One at a time, so that the shard is there again long before all have moved; a slow machine's pace is no stall.
    await stage.sharder(webhook=False, takeover=replace(LIMITS, stall_seconds=60.0), concurrent_moves=1)
    await ring.in_place()
    async with chronicle(stage, ring) as seen:
        await (back.release() if leave == "released" else back.crash())
        await seen.until(lambda: any(each.ours for each in seen.lease("back")))
        await back.start()
        await ring.in_place()
        await seen.caught_up()
        taken_under_hold(seen, "back")
        ((_, end),) = tenures(seen.lease("back"))
        again = next(each for each in seen.lease("back") if each.at > end and each.holder == "back")
        assert _on(seen, "back", again.at) == set(), "it starts with nothing"
        returned = [after for before, after in seen.moves() if after.at > again.at]
        assert all(after.resource == CONFIGMAPS for after in returned), "owners go by acknowledgement"
    assert len(stage.shards[0].acknowledged) == 25


def _on(seen: Chronicle, shard: str, at: int) -> set[str]:
    """The objects that carried the label of `shard` at that moment."""
    last = {(each.resource, each.name): each for each in seen.versions if each.at <= at}
    return {name for (resource, name), each in last.items() if each.shard == shard and not each.deleted}


async def test_a_lease_under_which_nothing_moves_is_given_back_and_taken_again_later(stage: Stage) -> None:
    ring = await stage.ring(QUOTAS, grant=False)
    await in_force_before(stage, ring)
    await stage.grant(ring.name, ring.resources, verbs=["list", "watch"])
    await stage.shard(ring, "stays")
    spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
    await put_lease(stage, ring.name, "gone", spec)
    await ring.create(QUOTAS.main, name="stuck", labels={ring.labels[0]: "gone"})
    limits = Limits(
        min_hold_seconds=1.0, stall_seconds=1.0, retry_after_stall_seconds=1.0, return_after_seconds=0.2
    )  # fmt: skip
    async with chronicle(stage, ring) as seen:
        await stage.sharder(webhook=False, takeover=limits)
        await seen.until(lambda: any(each.ours for each in seen.lease("gone")))
        await seen.until(lambda: not seen.lease("gone")[-1].ours)
        assert seen.of(QUOTAS.main, "stuck")[-1].shard == "gone"
        await stage.grant(ring.name, ring.resources)
        await ring.until_on("stuck", "stays", QUOTAS.main)
        await seen.caught_up()
        assert len(tenures(seen.lease("gone"))) >= 2
        taken_under_hold(seen, "gone")


async def test_a_lease_is_given_back_when_no_other_shard_is_left_to_take_the_objects(stage: Stage) -> None:
    ring = await stage.ring(QUOTAS, grant=False)
    await in_force_before(stage, ring)
    # Without the right to patch the sharder holds the lease and gets nowhere.
    await stage.grant(ring.name, ring.resources, verbs=["list", "watch"])
    other = await stage.shard(ring, "other")
    await put_lease(stage, ring.name, "gone", {"holderIdentity": "", "leaseDurationSeconds": 1})
    await ring.create(QUOTAS.main, name="stuck", labels={ring.labels[0]: "gone"})
    long = Limits(min_hold_seconds=60.0, stall_seconds=60.0)
    async with chronicle(stage, ring) as seen:
        await stage.sharder(webhook=False, takeover=long)
        await seen.until(lambda: any(each.ours for each in seen.lease("gone")))
        await other.release()
        await seen.until(lambda: not seen.lease("gone")[-1].ours)
        assert seen.lease("gone")[-1].holder == ""
        gone = await stage.shard(ring, "gone")
        await seen.until(lambda: seen.lease("gone")[-1].state == "ready")
        await stage.grant(ring.name, ring.resources)
        await seen.caught_up()
        assert not seen.moves()
        await gone.crash()


async def test_two_shards_that_leave_one_after_the_other_leave_everything_to_the_third(stage: Stage) -> None:
    ring = await stage.ring()
    await settled_on(stage, ring, "a", "b", "stays")
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.in_place()
    async with chronicle(stage, ring) as seen:
        await asyncio.gather(stage.shards[0].release(), stage.shards[1].crash())
        await ring.in_place()
        await seen.until(lambda: seen.lease("a")[-1].deleted and seen.lease("b")[-1].deleted)
        taken_under_hold(seen, "a")
        taken_under_hold(seen, "b")
        assert states(seen.lease("stays")) == ["ready"]
    assert set((await ring.shards_of()).values()) == {"stays"}


async def test_a_shard_without_fence_that_hangs_and_wakes_up_after_its_lease_was_taken_finds_out(stage: Stage) -> None:
    ring = await stage.ring()
    sleeper = Script(lease_seconds=4, renew_seconds=0.2, go_like=True)
    await stage.shard(ring, "stays")
    hangs = await stage.shard(ring, "hangs", script=sleeper)
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.create_families(4, ["stays", "hangs"])
    await ring.in_place()
    async with chronicle(stage, ring) as seen:
        hangs.pause()
        await seen.until(lambda: any(each.ours for each in seen.lease("hangs")))
        await ring.in_place()
        hangs.resume()
        await asyncio.wait_for(hangs.lost.wait(), 40)
        await seen.caught_up()
        taken_under_hold(seen, "hangs")
        assert hangs.acknowledged == []
