"""Leases through every state, well-formed or not, and what the sharder does with each."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from sharder.core import observed
from sharder.core.takeover import Limits
from shardsdk.protocol import leases
from shardsdk.protocol.labels import LEASE_STATE_LABEL, parse_ring_name
from shardsdk.protocol.leases import parse_micro_time
from tests.integration.chronicle import LEASES, Chronicle, Version
from tests.integration.harness import Stage
from tests.integration.scripted import RING_LABEL, Object, Script
from tests.integration.withheld import in_force_before
from tests.integration.world import LONE_SECRETS, Family, Ring

SECRETS: Final = "v1/secrets"
CONFIGMAPS: Final = "v1/configmaps"
#: What no other test lets the sharder patch.
QUOTAS: Final = Family("v1/resourcequotas", "ResourceQuota")
#: Orphans are deleted after a second instead of a minute.
LIMITS: Final = Limits(
    min_hold_seconds=3.0,
    stall_seconds=5.0,
    retry_after_stall_seconds=1.0,
    return_after_seconds=0.5,
    orphaned_after_seconds=1.0,
)
ONE_SECOND: Final = Script(lease_seconds=1, renew_seconds=0.2)
#: Each state lasts so long that it shows on a busy machine, too.
SLOWER: Final = Script(lease_seconds=3, renew_seconds=0.2)
SLOWER_GO: Final = Script(lease_seconds=3, renew_seconds=0.2, go_like=True)


def chronicle(stage: Stage, ring: Ring, *resources: str) -> Chronicle:
    return Chronicle(stage.admin, parse_ring_name(ring.name), stage.namespace, *(resources or ring.resources))


def states(versions: list[Version]) -> list[str]:
    """The states that the lease's label went through, each once; `deleted` at the end if it was."""
    found: list[str] = []
    for version in versions:
        state = "deleted" if version.deleted else version.state
        if state is not None and found[-1:] != [state]:
            found.append(state)
    return found


def times(version: Version) -> tuple[datetime, datetime]:
    """When the lease was acquired and last renewed; every writer of these tests has this machine's clock."""
    spec = version.body["spec"]
    acquired, renewed = parse_micro_time(spec["acquireTime"]), parse_micro_time(spec["renewTime"])
    assert acquired is not None
    assert renewed is not None
    return acquired, renewed


async def put_lease(
    stage: Stage, ring: str | None, name: str, spec: Object, *, namespace: str | None = None, **annotations: str
) -> Object:
    """A lease that nobody stands behind."""
    labels = {RING_LABEL: ring} if ring is not None else {}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return await stage.admin.create(LEASES, {"metadata": metadata, "spec": spec}, namespace or stage.namespace)


def moment(**ago: float) -> str:
    return (datetime.now(UTC) - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# -- from ready to deleted -----------------------------------------------------


@pytest.mark.parametrize(
    ("script", "path", "durations"),
    [
        pytest.param(SLOWER_GO, ["ready", "expired", "dead", "deleted"], 2, id="without fence"),
        pytest.param(SLOWER, ["ready", "dead", "deleted"], 1, id="with fence"),
    ],
)
async def test_a_crashed_shards_lease_goes_through_every_state_and_is_deleted_at_the_end(
    stage: Stage, script: Script, path: list[str], durations: int
) -> None:
    ring = await stage.ring(LONE_SECRETS)
    await stage.shard(ring, "stays")
    gone = await stage.shard(ring, "gone", script=script)
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.create_families(3, ["stays", "gone"])
    await ring.in_place()
    async with chronicle(stage, ring) as seen:
        await gone.crash()
        await seen.until(lambda: seen.lease("gone")[-1].deleted)
        versions, seconds = seen.lease("gone"), script.lease_seconds
        passed = states(versions)  # a busy machine may have had it be late with a renewal before it crashed
        assert passed[len(passed) - 1 - passed[::-1].index("ready") :] == path
        last_renewed = max(times(each)[1] for each in versions if each.holder == "gone")
        taken = next(each for each in versions if each.ours)
        assert times(taken)[0] >= last_renewed + timedelta(seconds=durations * seconds), "nobody is taken early"
        assert taken.body["spec"]["leaseDurationSeconds"] == 2 * seconds
        assert taken.body["spec"]["leaseTransitions"] == 1
    await ring.in_place()
    assert set((await ring.shards_of()).values()) == {"stays"}


async def test_a_rings_only_shard_is_uncertain_for_as_long_as_nobody_else_could_take_its_objects(stage: Stage) -> None:
    ring = await stage.ring()
    only = await stage.shard(ring, "only", script=SLOWER_GO)
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.create_families(5, ["only"])
    await ring.in_place()
    versions = await ring.versions()
    async with chronicle(stage, ring) as seen:
        await only.crash()
        await seen.until(lambda: seen.lease("only")[-1].state == "uncertain")
        assert states(seen.lease("only")) == ["ready", "expired", "uncertain"]
        await only.start()
        await seen.until(lambda: seen.lease("only")[-1].state == "ready")
        assert not any(each.ours for each in seen.lease("only")), "it finds its lease its own"

        await only.crash()
        await seen.until(lambda: seen.lease("only")[-1].state == "uncertain")
        assert await ring.versions() == versions, "nothing was written while it was away"
        await stage.shard(ring, "other")
        await seen.until(lambda: any(each.ours for each in seen.lease("only")))
    await ring.in_place()


async def test_a_rings_only_shard_that_leaves_and_comes_back_finds_its_lease_free(stage: Stage) -> None:
    ring = await stage.ring()
    only = await stage.shard(ring, "only")
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.create_families(5, ["only"])
    await ring.in_place()
    versions = await ring.versions()
    async with chronicle(stage, ring) as seen:
        await only.release()
        await seen.until(lambda: seen.lease("only")[-1].state == "dead")
        await ring.create(SECRETS, name="made-meanwhile")
        await only.start()
        await seen.until(lambda: seen.lease("only")[-1].state == "ready")
        assert {each.holder for each in seen.lease("only")} == {"only", ""}
        assert states(seen.lease("only")) == ["ready", "dead", "ready"]
    await ring.in_place()
    assert versions.items() <= (await ring.versions()).items(), "its objects stayed as they were"


# -- malformed leases ------------------------------------------------------------


async def test_malformed_leases_are_judged_by_when_they_were_seen(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "DEFAULT_DURATION_SECONDS", 1)
    ring = await stage.ring(LONE_SECRETS)
    await stage.shard(ring, "sound")
    held: dict[str, Object] = {
        "no-times": {"holderIdentity": "no-times", "leaseDurationSeconds": 1},
        "from-the-future": {
            "holderIdentity": "from-the-future",
            "leaseDurationSeconds": 1,
            "acquireTime": moment(days=-3650),
            "renewTime": moment(days=-3650),
        },
        "from-the-past": {
            "holderIdentity": "from-the-past",
            "leaseDurationSeconds": 1,
            "renewTime": moment(days=3650),
            "leaseTransitions": 2_000_000_000,
        },
        "no-duration": {"holderIdentity": "no-duration", "renewTime": moment()},
    }
    async with chronicle(stage, ring) as seen:
        for name, spec in held.items():
            await put_lease(stage, ring.name, name, spec)
        began = datetime.now(UTC)
        await stage.sharder(webhook=False, takeover=LIMITS)
        for name in held:
            await seen.until(lambda name=name: seen.lease(name)[-1].deleted)  # type: ignore[misc]
            taken = next(each for each in seen.lease(name) if each.ours)
            assert times(taken)[0] >= began + timedelta(seconds=2), "each has its two durations, whatever it says"
            # On a busy machine a state may be over before its label is written; none is out of order.
            shown = states(seen.lease(name))
            assert shown == [each for each in ("ready", "expired", "dead", "deleted") if each in shown], name
            assert shown[-1] == "deleted", name
    assert await ring.available() == {"sound"}


async def test_a_strangers_hold_is_waited_for_and_its_objects_move_then(stage: Stage) -> None:
    ring = await stage.ring(LONE_SECRETS)
    await stage.shard(ring, "sound")
    spec = {"holderIdentity": "a-stranger", "leaseDurationSeconds": 2, "renewTime": moment(days=-1)}
    await put_lease(stage, ring.name, "usurped", spec)
    for number in range(3):
        await ring.create(SECRETS, name=f"secret-{number}", labels={ring.labels[0]: "usurped"})
    async with chronicle(stage, ring) as seen:
        began = datetime.now(UTC)
        await stage.sharder(webhook=False, takeover=LIMITS)
        await ring.in_place()
        await seen.caught_up()
        taken = next(each for each in seen.lease("usurped") if each.ours)
        assert times(taken)[0] >= began + timedelta(seconds=2)
        assert all(after.at > taken.at for _, after in seen.moves())
        assert states(seen.lease("usurped"))[0] == "dead"


async def test_a_lease_that_says_nothing_counts_as_held_by_someone_who_may_still_work(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed, "UNSEEN_SECONDS", 2.0)
    ring = await stage.ring(LONE_SECRETS)
    await stage.shard(ring, "sound")
    await put_lease(stage, ring.name, "silent", {})
    await ring.create(SECRETS, name="a-secret", labels={ring.labels[0]: "silent"})
    async with chronicle(stage, ring) as seen:
        began = datetime.now(UTC)
        await stage.sharder(webhook=False, takeover=LIMITS)
        await ring.until_on("a-secret", "sound")
        await seen.caught_up()
        taken = next(each for each in seen.lease("silent") if each.ours)
        assert times(taken)[0] >= began + timedelta(seconds=2)
        assert all(after.at > taken.at for _, after in seen.moves())


# -- whose lease -------------------------------------------------------------------


async def test_leases_of_another_ring_or_of_none_stay_untouched(stage: Stage) -> None:
    ring, other = await stage.ring(LONE_SECRETS), await stage.ring(LONE_SECRETS, shards_may=False)
    await stage.shard(ring, "stays")
    gone = await stage.shard(ring, "gone", script=ONE_SECOND)
    elsewhere = await stage.admin.create("v1/namespaces", {"metadata": {"generateName": "other-"}})
    namespace = elsewhere["metadata"]["name"]
    old = {"holderIdentity": "gone", "leaseDurationSeconds": 1, "renewTime": moment(days=1)}
    try:
        strangers = {
            "no-ring": await put_lease(stage, None, "no-ring", old | {"holderIdentity": "no-ring"}),
            "lost": await put_lease(stage, "no-such-ring", "lost", old | {"holderIdentity": "lost"}),
        }
        await put_lease(stage, other.name, "gone", old, namespace=namespace)
        await stage.sharder(webhook=False, takeover=LIMITS)
        async with chronicle(stage, ring) as seen:
            await gone.crash()
            await seen.until(lambda: seen.lease("gone")[-1].deleted)
        for name, before in strangers.items():
            assert await stage.admin.find(LEASES, name, stage.namespace) == before
        theirs = await stage.admin.eventually(LEASES, _first_uncertain, namespace)
        assert theirs["spec"] == {**old, "renewTime": theirs["spec"]["renewTime"]}
    finally:
        await stage.admin.delete("v1/namespaces", namespace)


def _first_uncertain(found: list[Object]) -> Object | None:
    return next((each for each in found if each["metadata"]["labels"].get(LEASE_STATE_LABEL) == "uncertain"), None)


async def test_a_lease_that_passes_between_two_processes_of_one_name_moves_nothing(stage: Stage) -> None:
    ring = await stage.ring()
    await stage.shard(ring, "other")
    script = Script(lease_seconds=30)  # nothing here waits for its end
    first = await stage.shard(ring, "twin", script=script)
    second = await stage.shard(ring, "twin", start=False, script=script)
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.create_families(4, ["other", "twin"])
    await ring.in_place()
    versions = await ring.versions()
    async with chronicle(stage, ring) as seen:
        starting = asyncio.create_task(second.start())
        await seen.until(lambda: len(seen.lease("twin")) > 4)
        assert not starting.done(), "the second waits while the first renews"
        await second.usurp()
        await asyncio.wait_for(first.lost.wait(), 40)
        await starting
        await seen.until(lambda: len(seen.lease("twin")) > 10)
        assert {each.holder for each in seen.lease("twin")} == {"twin"}
        assert states(seen.lease("twin")) == ["ready"]
    assert await ring.versions() == versions


# -- leases that vanish ------------------------------------------------------------


async def test_a_living_shard_whose_lease_is_deleted_keeps_its_objects_when_it_is_quick(stage: Stage) -> None:
    ring = await stage.ring()
    await stage.shard(ring, "other")
    quick = await stage.shard(ring, "quick", script=Script(lease_seconds=10, renew_seconds=0.2))
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.create_families(4, ["other", "quick"])
    await ring.in_place()
    versions = await ring.versions()
    async with chronicle(stage, ring) as seen:
        await stage.admin.delete(LEASES, "quick", stage.namespace)
        await quick.lost.wait()
        await quick.restart()
        await seen.until(lambda: seen.lease("quick")[-1].state == "ready")
        assert not any(each.ours for each in seen.lease("quick"))
    await ring.in_place()
    assert await ring.versions() == versions


async def test_a_held_lease_that_is_deleted_counts_as_held_until_it_would_have_run_out(stage: Stage) -> None:
    ring = await stage.ring()
    await stage.shard(ring, "stays")
    gone = await stage.shard(ring, "gone", script=SLOWER)
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.create_families(4, ["stays", "gone"])
    await ring.in_place()
    async with chronicle(stage, ring) as seen:
        await gone.crash()
        await stage.admin.delete(LEASES, "gone", stage.namespace)
        await seen.until(lambda: any(each.ours for each in seen.lease("gone")))
        await ring.in_place()
        await seen.until(lambda: seen.lease("gone")[-1].deleted)
        before, after = _around_deletion(seen.lease("gone"))
        made = after[0]
        assert made.ours, "created in the sharder's name"
        assert times(made)[0] >= times(before[-1])[1] + timedelta(seconds=SLOWER.lease_seconds)
        assert made.body["metadata"]["labels"][RING_LABEL] == ring.name
        assert seen.moves()
        assert all(moved.at > made.at for _, moved in seen.moves())


def _around_deletion(versions: list[Version]) -> tuple[list[Version], list[Version]]:
    """The versions up to the first deletion, and those after it."""
    at = next(number for number, each in enumerate(versions) if each.deleted)
    return versions[: at + 1], versions[at + 1 :]


async def test_a_lease_emptied_without_a_release_counts_as_held_until_it_would_have_run_out(stage: Stage) -> None:
    ring = await stage.ring()
    await stage.shard(ring, "stays")
    gone = await stage.shard(ring, "gone", script=SLOWER)
    await stage.sharder(webhook=False, takeover=LIMITS)
    await ring.create_families(4, ["stays", "gone"])
    await ring.in_place()
    async with chronicle(stage, ring) as seen:
        await gone.crash()
        await stage.admin.patch(LEASES, "gone", {"spec": {"holderIdentity": ""}}, stage.namespace)
        await ring.in_place()
        await seen.caught_up()
        taken = next(each for each in seen.lease("gone") if each.ours)
        renewed = max(times(each)[1] for each in seen.lease("gone") if each.holder == "gone")
        assert times(taken)[0] >= renewed + timedelta(seconds=SLOWER.lease_seconds)
        assert all(after.at > taken.at for _, after in seen.moves())


async def test_a_label_of_a_shard_that_never_had_a_lease_is_waited_out_and_then_moved(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed, "UNSEEN_SECONDS", 2.0)
    ring = await stage.ring()
    await stage.shard(ring, "sound")
    owner = await ring.create(SECRETS, name="owner", labels={ring.labels[0]: "phantom"})
    await ring.create_child(owner, name="child", labels={ring.labels[0]: "phantom"})
    async with chronicle(stage, ring) as seen:
        began = datetime.now(UTC)
        await stage.sharder(webhook=False, takeover=LIMITS)
        await ring.in_place()
        await seen.until(lambda: bool(seen.lease("phantom")) and seen.lease("phantom")[-1].deleted)
        made = seen.lease("phantom")[0]
        assert made.ours
        assert times(made)[0] >= began + timedelta(seconds=2)
        assert len(seen.moves()) == 2
        assert all(after.at > made.at for _, after in seen.moves())


async def test_an_orphans_lease_is_never_deleted_while_an_object_carries_its_label(stage: Stage) -> None:
    ring = await stage.ring(QUOTAS, grant=False)
    await in_force_before(stage, ring)
    await stage.grant(ring.name, ring.resources, verbs=["list", "watch"])
    await stage.shard(ring, "stays")
    released = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": moment()}
    await put_lease(stage, ring.name, "gone", released)
    await ring.create(QUOTAS.main, name="left-behind", labels={ring.labels[0]: "gone"})
    limits = Limits(
        min_hold_seconds=1.0,
        stall_seconds=0.5,
        retry_after_stall_seconds=4.0,
        return_after_seconds=0.1,
        orphaned_after_seconds=0.2,
    )
    async with chronicle(stage, ring) as seen:
        await stage.sharder(webhook=False, takeover=limits)
        # Taken, given back because nothing moves, and taken again: past any moment to delete it in between.
        await seen.until(lambda: _times_taken(seen.lease("gone")) == 2)
        assert states(seen.lease("gone")) == ["dead"]
        await stage.admin.delete(QUOTAS.main, "left-behind", stage.namespace)
        await seen.until(lambda: seen.lease("gone")[-1].deleted)


def _times_taken(versions: list[Version]) -> int:
    held = [each.ours for each in versions]
    return sum(1 for before, after in zip([False, *held], held, strict=False) if after and not before)
