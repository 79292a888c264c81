"""A manager whose ring assigns ranges of hashes: the same controllers, and nothing is written on any object."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from shardsdk.cache.objects import Request
from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES
from shardsdk.protocol.ranges import EVERYWHERE, SPACE, HashBy, HashRanges, point_of, read_counts
from shardsdk.ranges.counts import COUNT_SECONDS
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import lease_in
from tests.ranges_stage import Stage
from tests.shard_rig import CONFIGMAPS, RING, SECRETS

LOW, HIGH = HashRanges.of((0, SPACE // 2)), HashRanges.of((SPACE // 2, SPACE))
#: Namespaces on both sides of the middle.
NAMESPACES = ("red", "green", "blue", "a", "b", "c", "other", "default")


async def all_held(stage: Stage, *names: str) -> None:
    await stage.until(lambda: all(stage.server.find(LEASES, name, "shards") is not None for name in names))


@pytest.mark.parametrize("by", HashBy)
@pytest.mark.parametrize("filters", [True, False], ids=["filtering", "ignoring"])
@in_virtual_time
async def test_each_object_is_reconciled_by_the_shard_that_is_named_at_its_point(
    clock: VirtualClock, by: HashBy, filters: bool
) -> None:
    stage = Stage(clock, by)
    stage.server.filters_shards = filters
    for namespace in NAMESPACES:
        stage.secret(namespace, "before")
    stage.start("a")
    stage.start("b")
    await stage.share("a", "b")
    await stage.until(stage.settled)
    for namespace in NAMESPACES:
        stage.secret(namespace, "after")
    await stage.until(stage.settled)
    by_shard = {(namespace, name): shard for shard, namespace, name in stage.reconciled}
    assert len(by_shard) == 2 * len(NAMESPACES)
    assert set(by_shard.values()) == {"a", "b"}
    for (namespace, name), shard in by_shard.items():
        assert stage.point(namespace, name) in (LOW if shard == "a" else HIGH)
    assert not stage.wrong
    read = stage.managers["a"].metrics.registry.get_sample_value
    assert read("shardsdk_watches_filtered_by_server") == filters
    assert all("labels" not in each["metadata"] for each in stage.server.select(SECRETS))
    assert all("labels" not in each["metadata"] for each in stage.server.select(CONFIGMAPS))
    assert len(stage.server.select(CONFIGMAPS)) == (2 * len(NAMESPACES) if by is HashBy.NAMESPACE else 0)


@in_virtual_time
async def test_a_range_changes_hands_when_its_reconciles_have_ended_and_children_are_made_once(
    clock: VirtualClock,
) -> None:
    stage = Stage(clock)
    stage.takes = 7.0
    stage.start("a")
    stage.start("b")
    await stage.assign({"a": EVERYWHERE})
    for namespace in NAMESPACES:
        stage.secret(namespace, "one")
    await stage.until(lambda: len(stage.running) == len(NAMESPACES))
    began = clock.monotonic()
    await stage.share("b", "a")
    assert 5 < clock.monotonic() - began < 9
    stage.takes = 0.0
    for namespace in NAMESPACES:
        stage.touch(namespace, "one")
    await stage.until(stage.settled)
    assert not stage.wrong
    assert [len(stage.children(namespace, "one")) for namespace in NAMESPACES] == [1] * len(NAMESPACES)
    latest = {namespace: shard for shard, namespace, _ in stage.reconciled}
    assert latest == {each: "b" if stage.point(each) in LOW else "a" for each in NAMESPACES}


@in_virtual_time
async def test_a_shard_that_stops_in_order_gives_all_its_ranges_away_at_once(clock: VirtualClock) -> None:
    stage = Stage(clock)
    stage.start("a")
    stage.start("b")
    stage.secret("default", "one")
    await stage.assign({"a": EVERYWHERE})
    await stage.until(stage.settled)
    assert await stage.stop("a") is ExitCode.OK
    began = clock.monotonic()
    await stage.assign({"b": EVERYWHERE})
    stage.seen.clear()
    await stage.until(stage.settled)
    assert clock.monotonic() - began < 1
    assert stage.reconciled[-1][0] == "b"


@in_virtual_time
async def test_what_an_object_waits_for_says_where_it_lies_and_whose_that_is(clock: VirtualClock) -> None:
    stage = Stage(clock)
    manager = stage.start("a")
    stage.secret("default", "one")
    await stage.assign({"a": EVERYWHERE})
    await stage.until(stage.settled)
    [mine] = manager.explain(Request("default", "one"))
    place = f"its hash is 0x{stage.point('default'):016x}, named for a; a: its objects are this shard's"
    assert place in mine.text
    stage.write({"b": EVERYWHERE})
    await asyncio.sleep(1)
    [theirs] = manager.explain(Request("default", "one"))
    assert "named for b; a: it is no business of this shard's" in theirs.text
    stage.write({"b": HashRanges.of((0, 1))})
    await asyncio.sleep(1)
    [nobodys] = manager.explain(Request("default", "one"))
    assert "nobody is named there: it is changing hands" in nobodys.text


@in_virtual_time
async def test_namespaces_that_the_ring_does_not_cover_are_nobodys(clock: VirtualClock) -> None:
    stage = Stage(clock)
    stage.start("a")
    stage.secret("kube-system", "one")
    stage.secret("default", "one")
    await stage.assign({"a": EVERYWHERE})
    await asyncio.sleep(5)
    assert {each[1:] for each in stage.reconciled} == {("default", "one")}
    term = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}
    stage.server.patch(CLUSTERRINGS, RING.ring, None, {"spec": {"namespaceSelector": {"matchExpressions": [term]}}})
    assert await stage.processes["a"] is ExitCode.CONFIGURATION, "it is started anew, and covers others then"
    left = lease_in(stage.server, "a", "shards")
    assert left is not None
    assert (left.holder, left.ended_in_failure) == ("", False), "an edit of its ring is no crash"
    stage.reconciled.clear()
    stage.start("a")
    await stage.until(lambda: ("a", "kube-system", "one") in stage.reconciled)
    assert {each[1] for each in stage.reconciled} == {"kube-system"}


@pytest.mark.parametrize("by", HashBy)
@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_no_event_is_lost_and_nobody_has_two_owners_while_ranges_move_and_objects_change(
    clock: VirtualClock, seed: int, by: HashBy
) -> None:
    stage, rng = Stage(clock, by), Random(seed)
    stage.server.filters_shards = seed % 2 == 0
    names = ["a", "b", "c"]
    for name in names:
        stage.start(name, lag=rng.choice([0.001, 0.05, 0.3]), rng=Random(seed))
    stage.takes = rng.choice([0.0, 0.05, 0.5])
    there: set[tuple[str, str]] = set()
    await all_held(stage, *names)
    for _ in range(25):
        moving = asyncio.create_task(stage.share(*rng.sample(names, rng.randint(1, 3))))
        for _ in range(rng.randint(1, 25)):
            key = (rng.choice(NAMESPACES), f"s{rng.randrange(6)}")
            match rng.choice(["make", "touch", "touch", "delete"]):
                case "make" if key not in there:
                    stage.secret(*key)
                    there.add(key)
                case "touch" if key in there:
                    stage.touch(*key)
                case "delete" if key in there:
                    stage.server.delete(SECRETS, key[1], key[0])
                    there.discard(key)
                case _:
                    pass
            await asyncio.sleep(rng.choice([0.0, 0.001, 0.02, 0.1]))
        if rng.random() < 0.2:
            stage.server.compacted = stage.server.version
        await moving
    await stage.until(stage.settled)
    assert not stage.wrong
    if by is HashBy.NAMESPACE:
        assert {key: len(stage.children(*key)) for key in there} == dict.fromkeys(there, 1)
    await stage.until(lambda: cached(stage) == there)


def cached(stage: Stage) -> set[tuple[str, str]]:
    """What any shard's cache has."""
    workloads = [each._workload for each in stage.managers.values() if each._workload is not None]
    caches = [cache for workload in workloads for cache in workload._caches if cache.resource == SECRETS]
    return {(request.namespace, request.name) for cache in caches for request in cache.requests()}


@in_virtual_time
async def test_a_shard_whose_fence_is_shut_writes_nothing_and_whoever_follows_waits_for_its_lease(
    clock: VirtualClock,
) -> None:
    stage = Stage(clock)
    stage.start("a")
    stage.start("b")
    await stage.assign({"a": EVERYWHERE})
    await stage.until(lambda: stage._held().get("a") == EVERYWHERE)
    stage.write({"b": EVERYWHERE})
    stage.processes["a"].cancel()
    await asyncio.sleep(30)
    assert stage._held().get("b") == EVERYWHERE


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"assignment": "Ranges", "hashBy": "UID"}, "owns configmaps"),
        ({"assignment": "Ranges", "hashBy": "Name"}, "does not know"),
    ],
)
@in_virtual_time
async def test_what_such_a_ring_cannot_share_is_refused_with_what_to_do(
    clock: VirtualClock, spec: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(clock)
    stage.server.patch(CLUSTERRINGS, RING.ring, None, {"spec": spec})
    stage.start("a")
    assert await stage.processes["a"] is ExitCode.CONFIGURATION
    assert any(said in each.getMessage() for each in caplog.records)
    assert stage.server.find(LEASES, "a", "shards") is None


@pytest.mark.parametrize("by", HashBy)
@in_virtual_time
async def test_a_shard_tells_how_many_main_objects_its_namespaces_have_where_those_are_hashed(
    clock: VirtualClock, by: HashBy
) -> None:
    stage = Stage(clock, by)
    stage.start("a")
    for number in range(4):
        stage.secret("red", f"n{number}")
    stage.secret("blue", "one")
    await stage.assign({"a": EVERYWHERE})
    await stage.until(stage.settled)
    await asyncio.sleep(3 * COUNT_SECONDS)
    lease = stage.server.find(LEASES, "a", "shards")
    assert lease is not None
    told = {point_of("red"): 4.0, point_of("blue"): 1.0} if by is HashBy.NAMESPACE else {}
    assert read_counts(lease["metadata"]["annotations"]) == told
