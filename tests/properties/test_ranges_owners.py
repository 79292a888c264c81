"""Whose parts of the space are is told of many shards at once as it is of each by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sharder.core.owners import Claims, Owners, overlaps
from sharder.core.rangestatus import in_transit
from shardsdk.protocol.ranges import HashBy, HashRanges, Named
from tests.properties.test_ranges import POINTS, spans

NOW = datetime(2030, 1, 1, tzinfo=UTC)
claims = st.dictionaries(st.sampled_from("abcd"), spans.map(lambda found: HashRanges.of(*found)))
owned = st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=len(POINTS), max_size=len(POINTS))


def named(owners: list[str]) -> Named:
    """Of each part of the space whose it is."""
    spans = list(zip(POINTS, [*POINTS[1:], 1 << 64], owners, strict=True))
    shards = {name: HashRanges.of(*((start, end) for start, end, of in spans if of == name)) for name in owners if name}
    return Named(HashBy.UID, shards)


@given(claims, st.sampled_from("abcde"), spans)
def test_what_others_have_is_left_out(have: dict[str, HashRanges], shard: str, some: list[tuple[int, int]]) -> None:
    ranges = HashRanges.of(*some)
    others = HashRanges.union(theirs for name, theirs in have.items() if name != shard)
    assert Claims(have).without_others(shard, ranges) == ranges - others


@given(claims, owned)
def test_what_several_have_is_told_with_all_of_them_and_first_whoever_is_not_named(
    have: dict[str, HashRanges], owners: list[str]
) -> None:
    found, aim = overlaps(have, named(owners).shards), named(owners)
    for point in POINTS:
        holders = {name for name, ranges in have.items() if point in ranges}
        told = [each.shards for each in found if each.start <= point < each.end]
        assert [set(each) for each in told] == ([holders] if len(holders) > 1 else [])
        for shards in told:
            assert aim.shard_at(point) not in shards[:-1]


@given(owned)
def test_each_point_is_whose_it_is(owners: list[str]) -> None:
    found = Owners(named(owners).shards)
    assert [found.at(point) for point in POINTS] == owners


@given(spans, owned, claims, spans, owned, claims)
def test_each_part_that_is_on_its_way_is_told_with_who_has_it_and_since_when(
    waits: list[tuple[int, int]], aim: list[str], held: dict[str, HashRanges],
    earlier: list[tuple[int, int]], aimed: list[str], had: dict[str, HashRanges],
) -> None:  # fmt: skip
    before = in_transit(HashRanges.of(*earlier), named(aimed), had, (), NOW)
    now = NOW + timedelta(seconds=9)
    moving = in_transit(HashRanges.of(*waits), named(aim), held, before, now)
    assert HashRanges.of(*((each.start, each.end) for each in moving)) == HashRanges.of(*waits)
    for each in moving:
        met = any(one.start < each.end and each.start < one.end for one in before)
        assert each.since == (NOW if met else now)
        for point in (point for point in POINTS if each.start <= point < each.end):
            assert each.target == named(aim).shard_at(point)
            others = [name for name, ranges in sorted(held.items()) if name != each.target and point in ranges]
            assert each.holder == (others[0] if others else None)
