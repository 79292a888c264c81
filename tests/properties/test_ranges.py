"""Sets of ranges behave as the sets of their points; what is written is read again as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardsdk.protocol.ranges import (
    EVERYWHERE,
    NOWHERE,
    SPACE,
    HashBy,
    HashRanges,
    Named,
    parse_assignment,
    render_assignment,
)

#: Few bounds, the ends of the space among them, so that spans often touch, meet and repeat each other.
BOUNDS = [0, 1, 2, 255, 1 << 32, (1 << 63) - 1, 1 << 63, SPACE - 2, SPACE - 1, SPACE]
#: A point of each part of the space that those bounds tell apart.
POINTS = [bound for bound in BOUNDS if bound < SPACE]

bounds = st.sampled_from(BOUNDS)
spans = st.lists(st.tuples(bounds, bounds), max_size=6)


def points(ranges: HashRanges) -> set[int]:
    return {point for point in POINTS if point in ranges}


@given(spans, spans)
def test_operations_are_those_of_sets(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    left, right = HashRanges.of(*some), HashRanges.of(*others)
    assert points(left) == {point for point in POINTS if any(a <= point < b for a, b in some)}
    assert points(left | right) == points(left) | points(right)
    assert points(left & right) == points(left) & points(right)
    assert points(left - right) == points(left) - points(right)
    assert points(left.complement) == set(POINTS) - points(left)
    assert left.width + left.complement.width == SPACE
    assert bool(left & right) == bool(points(left) & points(right))


@given(spans)
def test_one_set_has_one_form(some: list[tuple[int, int]]) -> None:
    ranges = HashRanges.of(*some)
    assert all(start < end for start, end in ranges)
    assert all(before[1] < after[0] for before, after in zip(ranges.spans, ranges.spans[1:], strict=False))
    assert HashRanges.of(*reversed(ranges.spans)) == ranges
    assert HashRanges.parse(str(ranges)) == ranges
    assert ranges.complement.complement == ranges


@given(spans, st.permutations(["a", "b", "c"]), st.sampled_from(HashBy))
def test_an_assignment_is_read_as_it_was_written(some: list[tuple[int, int]], names: list[str], by: HashBy) -> None:
    left, shards = EVERYWHERE, {}
    for name, span in zip(names, some, strict=False):
        shards[name] = HashRanges.of(span) & left
        left = left - shards[name]
    named = Named(by, {name: ranges for name, ranges in shards.items() if ranges})
    assert parse_assignment(render_assignment(named)) == named
    assert named.nobodys == left
    for point in POINTS:
        assert named.shard_at(point) == next((name for name in shards if point in shards[name]), None)
    assert named.of("nobody") == NOWHERE
