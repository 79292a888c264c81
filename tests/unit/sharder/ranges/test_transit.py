"""A sharder that comes while ranges change hands: it waits for whoever is ending work there, and sends them on.

A shard that is named for nothing any more, and whose Lease somebody has deleted, may be at work; nothing but the
RingAssignment tells of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from sharder.core.cutting import Cut
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import EVERYWHERE, RING_ASSIGNMENTS, SPACE, HashRanges, Named
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import RING, SHARDS
from tests.unit.sharder.ranges.rig import sharder
from tests.unit.sharder.ranges.test_homes import ELSEWHERE, Twins, twins

LOW, HIGH = HashRanges.of((0, SPACE // 2)), HashRanges.of((SPACE // 2, SPACE))


def fixed(**want: HashRanges) -> Cut:
    def cut(named: Named, shards: Collection[str], points: Mapping[int, float], /, *, keep: Collection[str]) -> Named:
        return Named(named.by, dict(want))

    return cut


def said(world: Twins) -> list[tuple[str, ...]]:
    found = world.ring.stage.server.find(RING_ASSIGNMENTS, RING)
    assert found is not None
    parts = ("start", "shard", "namespace", "from", "to")
    return [tuple(each.get(part, "") for part in parts) for each in found["spec"]["ranges"]]


@in_virtual_time
async def test_what_changes_hands_says_whose_it_was_and_whose_it_is_to_be(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with twins(clock, monkeypatch) as world:
        start, middle = "0x0000000000000000", "0x8000000000000000"
        async with sharder(world.ring.stage, fixed(a=LOW, b=HIGH)):
            a, b, c = (world.start(name) for name in "abc")
            await world.until_held(a, b)
        a.ends_in = b.ends_in = 20
        async with sharder(world.ring.stage, fixed(b=LOW, c=HIGH)):
            await world.ring.stage.pass_time(2)
            assert said(world) == [(start, "", SHARDS, "a", "b"), (middle, "", SHARDS, "b", "c")]
            b.ends_in = 0
            await world.until_held(b, c)
            assert said(world) == [(start, "b", SHARDS, "", ""), (middle, "c", SHARDS, "", "")]


@pytest.mark.parametrize("second", [False, True], ids=["", "there is another of its name"])
@in_virtual_time
async def test_whoever_ends_work_is_waited_for_though_it_is_not_named_and_its_lease_is_gone(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, second: bool
) -> None:
    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage, fixed(a=EVERYWHERE)):
            a, b = world.start("a"), world.start("b")
            await world.until_held(a)
        if second:
            world.start("a", ELSEWHERE)
        a.ends_in = 60  # its fence is what ends its work
        a.keeper_slowness = 1e6  # it cannot put back what is taken away
        async with sharder(world.ring.stage, fixed(b=EVERYWHERE)):
            await world.ring.stage.until(lambda: bool(a.holder.ending))
        world.ring.stage.server.delete(LEASES, "a", SHARDS)
        async with sharder(world.ring.stage, fixed(b=EVERYWHERE)):
            await world.until_held(b)
        assert not [each for each in caplog.records if each.name.startswith("sharder.") and each.exc_info]


@in_virtual_time
async def test_a_leader_that_comes_in_the_middle_sends_ranges_where_the_last_one_has_begun_to(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_the_first(
        named: Named, shards: Collection[str], points: Mapping[int, float], /, *, keep: Collection[str]
    ) -> Named:
        return Named(named.by, named.shards | {min(shards): named.of(min(shards)) | named.nobodys})

    async with twins(clock, monkeypatch) as world:
        async with sharder(world.ring.stage, fixed(a=EVERYWHERE)):
            a, b = world.start("a"), world.start("b")
            await world.until_held(a)
        a.ends_in = 8
        async with sharder(world.ring.stage, fixed(a=LOW, b=HIGH)):
            await world.ring.stage.until(lambda: bool(a.holder.ending))
        async with sharder(world.ring.stage, to_the_first):
            await world.until_held(a, b)
            assert world.ring.named().shards == {"a": LOW, "b": HIGH}
