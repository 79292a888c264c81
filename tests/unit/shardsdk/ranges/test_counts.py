"""A shard tells how many objects its namespaces have: of what it has listed, seldom, and only what has changed."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.lease.claim import render_grace, render_hold, render_release
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    MAX_COUNTS,
    NAMESPACE_COUNTS_ANNOTATION,
    NOWHERE,
    HashRanges,
    point_of,
    read_counts,
    render_counts,
)
from shardsdk.ranges.counts import COUNT_SECONDS, NamespaceCounts
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.keeper_driver import CLAIM, EPOCH, Driver
from tests.ranges_rig import HIGH, LOW, Member, RangesWorld

HERE = HashRanges.of((point_of("here"), point_of("here") + 1))


def objects(**counts: int) -> list[str]:
    """The namespace of each object."""
    return [name for name, count in counts.items() for _ in range(count)]


def settled() -> NamespaceCounts:
    """Of a shard that has long worked everywhere."""
    counts = NamespaceCounts()
    counts.count([], EVERYWHERE)
    return counts


def test_what_was_gained_a_moment_ago_and_what_is_no_more_the_shards_is_not_told_of() -> None:
    counts, there = NamespaceCounts(), objects(here=64, there=64)
    assert counts.count(there, HERE) == ""
    assert counts.count(there, EVERYWHERE) == render_counts({"here": 64})
    assert counts.count(there, EVERYWHERE) == render_counts({"here": 64, "there": 64})
    assert counts.count(there, HERE.complement) == render_counts({"there": 64})
    assert counts.count(there, NOWHERE) == ""


def test_a_count_on_the_edge_of_a_step_is_told_once() -> None:
    counts = settled()
    assert render_counts({"here": 69}) != render_counts({"here": 71})
    told = {counts.count(objects(here=each), EVERYWHERE) for each in (69, 71, 69, 80, 60)}
    assert told == {render_counts({"here": 69})}
    assert counts.count(objects(here=90), EVERYWHERE) == render_counts({"here": 90})


def test_a_namespace_that_is_emptied_is_told_to_be() -> None:
    counts = settled()
    counts.count(objects(here=1000), EVERYWHERE)
    told = counts.count([], EVERYWHERE)
    assert read_counts({NAMESPACE_COUNTS_ANNOTATION: told}) == {point_of("here"): 1.0}


def test_what_has_shrunk_is_told_before_others_once_and_though_not_all_are_told() -> None:
    others = {f"n{number}": 20 for number in range(MAX_COUNTS + 40)}
    counts = settled()
    assert point_of("large") in read_counts(
        {NAMESPACE_COUNTS_ANNOTATION: counts.count(objects(large=9000, **others), EVERYWHERE)}
    )
    believed: dict[int, float] = {}
    for now, told_as in (({"large": 9000}, None), ({"large": 7}, 6.727), ({}, 1.0), ({}, None)):
        told = read_counts({NAMESPACE_COUNTS_ANNOTATION: counts.count(objects(**now, **others), EVERYWHERE)})
        assert len(told) == MAX_COUNTS
        believed |= told
        if now != {"large": 9000}:
            assert (told.get(point_of("large")) or 0) == pytest.approx(told_as or 0, rel=0.01)
    assert believed[point_of("large")] == 1.0


def test_more_that_have_shrunk_than_can_be_told_at_once_are_told_one_after_the_other() -> None:
    many = {f"n{number}": 64 for number in range(MAX_COUNTS)}
    others = {f"more{number}": 32 for number in range(MAX_COUNTS)}
    counts = settled()
    believed: dict[int, float] = {}
    for there in (many, others, others):
        for _ in range(2):
            believed |= read_counts({NAMESPACE_COUNTS_ANNOTATION: counts.count(objects(**there), EVERYWHERE)})
    assert all(believed[point_of(name)] == 1.0 for name in many)
    assert all(believed[point_of(name)] == 32.0 for name in others)


def test_objects_of_no_namespace_do_not_count_and_what_is_told_is_bounded() -> None:
    many = {f"n{number}": 1 + number % 7 for number in range(MAX_COUNTS * 3)}
    counts = settled()
    for _ in range(3):
        told = counts.count([*objects(**many), ""], EVERYWHERE)
        assert told == render_counts(many)
        assert told.count("=") == MAX_COUNTS
    for _ in range(3):
        assert counts.count([], EVERYWHERE).count("=") == MAX_COUNTS


def said(driver: Driver) -> str | None:
    """The annotation as the API server has it."""
    return (driver.lease.metadata.annotations or {}).get(NAMESPACE_COUNTS_ANNOTATION)


def test_counts_go_with_the_next_renewal_and_cost_no_write() -> None:
    driver = Driver().acquire()
    due = driver.next()
    driver.keeper.tell_counts("85944171f73967e8=40")
    assert driver.next() == due
    assert said(driver) is None
    driver.due().step()
    driver.due().step()
    assert said(driver) == "85944171f73967e8=40"


@pytest.mark.parametrize("how", ["acquired", "released", "left to the next"])
def test_who_acquires_or_leaves_a_lease_has_counted_nothing(how: str) -> None:
    driver = Driver().acquire()
    driver.keeper.tell_counts("85944171f73967e8=40")
    driver.due().step()
    driver.due().step()
    body = {
        "acquired": lambda: render_hold(CLAIM, driver.lease, EPOCH, ()),
        "released": lambda: render_release(CLAIM, driver.lease, EPOCH),
        "left to the next": lambda: render_grace(CLAIM, driver.lease, EPOCH, 30),
    }[how]()
    assert body["metadata"]["annotations"][NAMESPACE_COUNTS_ANNOTATION] is None


def told_by(world: RangesWorld, member: Member) -> dict[int, float]:
    lease = world.server.find(LEASES, member.name, "default")
    assert lease is not None
    return read_counts(lease["metadata"].get("annotations"))


@in_virtual_time
async def test_the_lease_of_a_shard_tells_what_it_has_cached_where_it_works(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    a = world.start("a")
    a.objects = objects(here=64, foobar=16)
    world.name({"a": EVERYWHERE})
    await world.until(lambda: a.holder.working == EVERYWHERE)
    assert told_by(world, a) == {}
    await world.until(lambda: told_by(world, a) != {}, 3 * COUNT_SECONDS)
    assert told_by(world, a) == {point_of("here"): 64.0, point_of("foobar"): 16.0}
    world.name({"a": LOW})
    await world.until(lambda: a.holder.working == LOW)
    await asyncio.sleep(2 * COUNT_SECONDS)
    low = {point_of(name): count for name, count in (("here", 64.0), ("foobar", 16.0)) if point_of(name) in LOW}
    assert told_by(world, a) == low
    assert point_of("foobar") in HIGH
