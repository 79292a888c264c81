"""What is said of ranges that change hands: whoever may be ending work there, and whose each is to be.

Cells of a small space are drawn, as in test_ranges_steps.py.
"""

from __future__ import annotations

from hypothesis import given

from sharder.core.ranges import next_named
from sharder.core.transit import Transit, next_transit, read_transit, render_transit
from shardsdk.protocol.ranges import (
    MAX_RANGES,
    SPACE,
    HashBy,
    HashRanges,
    Named,
    homes_of,
    parse_assignment,
    render_assignment,
)
from tests.properties.test_ranges_steps import CELLS, SHARDS, WIDTH, holders, named, owners, ranges

HOMES = {name: f"home-of-{name}" for name in SHARDS}


def transit(taken: list[str | None], meant: list[str | None], free: HashRanges) -> Transit:
    was, to = (
        {name: part & free for name, part in named(each).shards.items() if part & free} for each in (taken, meant)
    )
    return Transit(was, to, {name: HOMES[name] for name in was})


@given(owners, owners, owners)
def test_it_is_read_as_it_was_written_and_names_nobody(
    now: list[str | None], taken: list[str | None], meant: list[str | None]
) -> None:
    before = named(now)
    said = transit(taken, meant, before.nobodys)
    spec = render_transit(before, HOMES, said)
    assert parse_assignment(spec) == before
    assert homes_of(spec) == homes_of(render_assignment(before, HOMES))
    assert read_transit(spec) == said


@given(owners, owners, holders, owners)
def test_whoever_may_be_ending_work_is_said_until_its_lease_shows_that_it_has_let_go(
    now: list[str | None], then: list[str | None], held: dict[str, set[int]], before: list[str | None]
) -> None:
    current, aim = named(now), named(then)
    said = transit(before, before, current.nobodys)
    holding = {name: ranges(theirs) for name, theirs in held.items()}
    following = next_named(current, aim, holding)
    after = next_transit(current, following, aim, holding, said, HOMES)
    for cell in range(CELLS):
        at = cell * WIDTH
        taken = [name for name, part in after.taken.items() if at in part]
        meant = [name for name, part in after.meant.items() if at in part]
        if following.shard_at(at) is not None:
            assert (taken, meant) == ([], [])
            continue
        assert meant == [each for each in (then[cell],) if each is not None]
        was = now[cell] or (before[cell] if cell in held.get(before[cell] or "", ()) else None)
        assert taken == [each for each in (was,) if each is not None]
    assert after.homes == {name: HOMES[name] for name in after.taken}


@given(owners, owners)
def test_what_is_nobodys_is_planned_as_if_it_had_arrived(now: list[str | None], meant: list[str | None]) -> None:
    current = named(now)
    arrived = transit(meant, meant, current.nobodys).arrived(current)
    assert [arrived.shard_at(cell * WIDTH) for cell in range(CELLS)] == [
        here or to for here, to in zip(now, meant, strict=True)
    ]


def test_what_somebody_has_named_by_hand_is_not_on_its_way() -> None:
    low, high = HashRanges.of((0, 16)), HashRanges.of((16, SPACE))
    spec = render_transit(Named(HashBy.UID, {"c": high}), {}, Transit({"a": low}, {"b": low}, {"a": "there"}))
    spec.ranges[0] = type(spec.ranges[0])(spec.ranges[0].start, "d", "", "a", "b")
    assert read_transit(spec) == Transit()


def test_of_more_ranges_than_there_may_be_less_is_said() -> None:
    """First not where they go, then nothing; who is named is always written."""

    def one_each(count: int) -> dict[str, HashRanges]:
        return {f"shard-{each}": HashRanges.of((each * 16, each * 16 + 16)) for each in range(count)}

    nobody, everybody = Named(HashBy.UID, {}), one_each(MAX_RANGES)
    some = one_each(MAX_RANGES // 4)
    few = {"a": HashRanges.of((0, 1)), "b": HashRanges.of((1, 2))}
    for taken, meant, found in (
        (few, some, Transit(few, some, dict.fromkeys(few, ""))),
        (few, everybody, Transit(few, {}, dict.fromkeys(few, ""))),
        (everybody, few, Transit()),
    ):
        spec = render_transit(nobody, {}, Transit(taken, meant))
        assert len(spec.ranges) <= MAX_RANGES
        assert parse_assignment(spec) == nobody
        assert read_transit(spec) == found
