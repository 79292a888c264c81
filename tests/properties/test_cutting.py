"""Whatever shards come and go: all is somebody's, evenly, in few ranges, and little moves."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sharder.core.cutting import MOST_RANGES, UNEVEN, cut, most_ranges
from shardsdk.protocol.ranges import EVERYWHERE, MAX_RANGES, NOWHERE, SPACE, HashBy, HashRanges, Named, point_of

NOBODY = Named(HashBy.NAMESPACE, {})
#: Of the mean: the fullest shard may have so much, and so much of what has to move may move.
MOST_LOAD = 1.10
MOST_MOVED = 1.25

Points = Mapping[int, float]

points = st.dictionaries(st.integers(0, SPACE - 1), st.sampled_from([1.0, 1.0, 2.0, 7.5]), max_size=60)
OPS = frozenset(f"op-{number}" for number in range(9))
names = st.sets(st.sampled_from(sorted(OPS)), min_size=1)


def owners(named: Named, where: Points) -> dict[int, str]:
    """Whose each point is; found range by range, since thousands of points are asked for hundreds of times."""
    found: dict[int, str] = {}
    spans = iter(sorted((start, end, shard) for shard, ranges in named.shards.items() for start, end in ranges))
    start, end, shard = next(spans)
    for point in sorted(where):
        while point >= end:
            start, end, shard = next(spans)
        assert point >= start, "it is nobody's"
        found[point] = shard
    return found


def loads(named: Named, where: Points) -> dict[str, float]:
    """What each shard has, as a share of everything."""
    if not where:
        return {shard: ranges.width / SPACE for shard, ranges in named.shards.items()}
    total = sum(where.values())
    found: dict[str, float] = {}
    for point, shard in owners(named, where).items():
        found[shard] = found.get(shard, 0.0) + where[point] / total
    return found


def moved(before: Named, after: Named, where: Points) -> float:
    """What has another shard than before, as a share of everything."""
    if not where:
        return 1 - sum((ranges & before.of(shard)).width for shard, ranges in after.shards.items()) / SPACE
    had, has = owners(before, where), owners(after, where)
    return sum(weight for point, weight in where.items() if had[point] != has[point]) / sum(where.values())


def check(named: Named, shards: Collection[str], where: Points) -> None:
    """What always holds."""
    assert not named.nobodys
    assert set(named.shards) <= set(shards)
    assert sum(ranges.width for ranges in named.shards.values()) == SPACE, "no point is two shards'"
    assert all(len(ranges) <= MOST_RANGES for ranges in named.shards.values())
    assert cut(named, shards, where) == named, "what was cut stays as it was cut"


# Whoever finds no taker at first may find one when others have given.
@example(dict(enumerate([1, 2, 2, 1, 1, 1, 2, 7.5, 2, 2, 7.5])), [set("abcd")])
@given(points, st.lists(names, min_size=1, max_size=6))
@settings(max_examples=150)
def test_whatever_shards_there_are_all_is_theirs_in_few_ranges(where: Points, memberships: list[set[str]]) -> None:
    named = NOBODY
    for shards in memberships:
        named = cut(named, shards, where)
        check(named, shards, where)


@example(
    # Empty slices beside the cuts of others: what lies behind them is given at once, not when it is asked again.
    {39: 7.5, 59: 1.0},
    [(64, "op-0"), (27, None), (50, "op-0"), (51, "op-0"), (45, None), (22, "op-0")],
    {"op-0", "op-1", "op-2"},
)
@given(points, st.lists(st.tuples(st.integers(0, SPACE - 1), st.none() | st.sampled_from(sorted(OPS)))), names)
@settings(max_examples=300)
def test_what_was_cut_anyhow_is_cut_once(
    where: Points, by_hand: list[tuple[int, str | None]], shards: set[str]
) -> None:
    starts = dict(sorted({0: None, **dict(by_hand)}.items()))
    spans: dict[str, list[tuple[int, int]]] = {}
    for (start, shard), end in zip(starts.items(), [*list(starts)[1:], SPACE], strict=True):
        if shard is not None:
            spans.setdefault(shard, []).append((start, end))
    named = Named(HashBy.NAMESPACE, {shard: HashRanges.of(*theirs) for shard, theirs in spans.items()})
    after = cut(named, shards, where)
    assert not after.nobodys
    assert cut(after, shards, where) == after, "what was cut stays as it was cut"


@given(points, names, names)
@settings(max_examples=100)
def test_nobody_has_more_than_its_part_and_one_namespace(where: Points, first: set[str], second: set[str]) -> None:
    heaviest = max(where.values()) / sum(where.values()) if where else 0.0
    named = NOBODY
    for shards in (first, second):
        named = cut(named, shards, where)
        assert max(loads(named, where).values()) <= UNEVEN / len(shards) + heaviest + 1e-9


@example(dict.fromkeys(map(point_of, (f"team-{number}" for number in range(12))), 1.0), [1, 1, 1, 1, 1])
@given(points, st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=1, max_size=9))
def test_nobody_who_comes_is_left_with_nothing_where_others_have_two(where: Points, come: list[int]) -> None:
    """They come one by one, or several at once; what is too heavy for all of them to have some is said below."""
    named, shards = NOBODY, list[str]()
    equal = dict.fromkeys(where, 1.0)
    for more in come:
        shards += [f"op-{len(shards) + number}" for number in range(more)]
        before, named = named, cut(named, shards, equal)
        check(named, shards, equal)
        has = loads(named, equal)
        if len(where) >= len(shards):
            assert set(has) == set(shards)
        if before is not NOBODY and len(where) > len(shards):
            assert moved(before, named, equal) <= 1.5 * max(more / len(shards), 1 / len(where))


@given(points, names, st.randoms(use_true_random=False))
def test_the_order_of_shards_and_points_does_not_matter(where: Points, shards: set[str], rng: random.Random) -> None:
    names, items = sorted(shards), list(where.items())
    rng.shuffle(names)
    rng.shuffle(items)
    assert cut(NOBODY, names, dict(items)) == cut(NOBODY, shards, where)


def world(kind: str, seed: int) -> Points:
    """Where things lie."""
    rng = random.Random(seed)
    match kind:
        case "uid":
            return {}
        case "numbered":
            return {point_of(f"team-{number:04}"): 1.0 for number in range(3000)}
        case _:
            return {rng.getrandbits(64): rng.choice([1.0, 1.0, 2.0, 4.0]) for _ in range(3000)}


@pytest.mark.parametrize("kind", ["uid", "numbered", "weighed"])
@pytest.mark.parametrize(("seed", "most"), [(1, 5), (2, 50)])
def test_a_hundred_changes_of_membership_leave_it_even_in_few_ranges_and_move_little(
    kind: str, seed: int, most: int
) -> None:
    rng, where = random.Random(seed), world(kind, seed)
    shards = [f"op-{number}" for number in range(most // 2)]
    named = cut(NOBODY, shards, where)
    for change in range(100):
        before, load = named, loads(named, where)
        if len(shards) <= 2 or (rng.random() < 0.5 and len(shards) < most):
            shards.append(f"new-{change}")
            has_to_move = 1 / len(shards)
        else:
            gone = rng.choice(shards)
            shards.remove(gone)
            has_to_move = load.get(gone, 0.0)
        named = cut(before, shards, where)
        check(named, shards, where)
        assert max(loads(named, where).values()) <= MOST_LOAD / len(shards), change
        assert moved(before, named, where) <= MOST_MOVED * has_to_move, change


@given(points, names, names, st.data())
@settings(max_examples=150)
def test_nothing_moves_because_some_are_away_and_keep_what_they_have(
    where: Points, first: set[str], then: set[str], data: st.DataObject
) -> None:
    named = cut(cut(NOBODY, first, where), then, where)
    everybody = set(named.shards)  # whoever has nothing, for want of namespaces, is given some where there is room
    back = data.draw(st.sets(st.sampled_from(sorted(everybody)), min_size=1))
    assert cut(named, back, where, keep=everybody - back) == named
    later = {point: data.draw(st.sampled_from([1.0, 30.0])) for point in where}
    if back < everybody:
        assert cut(named, back, later, keep=everybody - back) == named, "that it is uneven has time"


@given(points, names, names, st.data())
@settings(max_examples=150)
def test_who_is_away_gives_nothing_and_is_given_nothing_while_others_share_what_is_free(
    where: Points, first: set[str], then: set[str], data: st.DataObject
) -> None:
    named = cut(NOBODY, first, where)
    away = data.draw(st.sets(st.sampled_from(sorted(first))))
    shards = then - away
    if not shards:
        return
    after = cut(named, shards, where, keep=away)
    assert {name: after.of(name) for name in away} == {name: named.of(name) for name in away}
    assert not after.nobodys
    assert set(after.shards) <= shards | away
    assert cut(after, shards, where, keep=away) == after, "what was cut stays as it was cut"


@pytest.mark.parametrize("kind", ["uid", "weighed"])
@pytest.mark.parametrize(("most", "away", "seed"), [(6, 4, 1), (8, 4, 2), (8, 5, 3), (10, 5, 4), (20, 12, 5)])
def test_few_that_are_left_take_all_that_is_free_between_the_ranges_of_those_who_are_away(
    kind: str, most: int, away: int, seed: int
) -> None:
    rng, where = random.Random(seed), world(kind, seed)
    shards = [f"op-{number}" for number in range(most)]
    named = cut(NOBODY, shards, where)
    for change in range(20):  # so that each has many ranges
        shards.append(f"new-{change}")
        named = cut(named, shards, where)
        shards.remove(rng.choice(shards[:-1]))
        named = cut(named, shards, where)
    keep, left = shards[:away], shards[-1:]
    named = Named(named.by, {shard: named.of(shard) for shard in (*keep, *left)})
    after = cut(named, left, where, keep=keep)
    assert not after.nobodys
    assert {shard: after.of(shard) for shard in keep} == {shard: named.of(shard) for shard in keep}
    assert cut(after, left, where, keep=keep) == after, "what was cut stays as it was cut"


@given(points, names, st.data())
@settings(max_examples=100)
def test_who_is_short_of_its_part_is_given_it_like_one_that_has_come(
    where: Points, shards: set[str], data: st.DataObject
) -> None:
    named = cut(NOBODY, shards, where)
    short = data.draw(st.sampled_from(sorted(named.shards)))
    assert cut(named, shards, where, short=shards) == named, "who has its part is not"
    few = HashRanges.of(named.of(short).spans[0])
    others = shards - {short}
    if not others:
        return
    named = Named(named.by, {each: ranges if each in others else few for each, ranges in named.shards.items()})
    named = cut(named, others, where, keep={short})
    after = cut(named, shards, where, short={short})
    check(after, shards, where)
    has, had = loads(after, where), loads(named, where)
    assert has.get(short, 0.0) >= had.get(short, 0.0)


def test_who_is_short_of_its_part_takes_from_many_of_whom_nobody_has_far_too_much() -> None:
    where, shards = world("weighed", 1), [f"op-{number}" for number in range(9)]
    named = cut(NOBODY, shards[1:], where)
    start, _ = named.of("op-1").spans[0]
    first = sorted(point for point in where if point in named.of("op-1"))[20]
    theirs = named.shards | {
        "op-0": HashRanges.of((start, first)),
        "op-1": HashRanges.of(*named.of("op-1").spans) - HashRanges.of((start, first)),
    }
    named = Named(named.by, theirs)
    assert cut(named, shards, where) == named
    after = cut(named, shards, where, short={"op-0"})
    check(after, shards, where)
    assert loads(after, where)["op-0"] >= 0.8 / 9


@pytest.mark.parametrize("prefix", ["ns-", "team-", "preview-pr-"])
def test_namespaces_that_are_numbered_are_shared_although_their_hashes_are_close_together(prefix: str) -> None:
    where = {point_of(f"{prefix}{number:03}"): 1.0 for number in range(100)}
    named = cut(NOBODY, ["a", "b", "c", "d"], where)
    assert max(loads(named, where).values()) <= 0.27
    assert all(len(ranges) == 1 for ranges in named.shards.values()), "nothing has moved yet: one range each"


def test_a_shard_that_comes_takes_what_is_light_where_nobody_has_a_whole_namespace_too_many() -> None:
    where = dict(zip((SPACE // 8, SPACE // 4, SPACE // 2), (1.0, 1000.0, 1000.0), strict=True))
    middle = SPACE * 3 // 8
    two = Named(HashBy.NAMESPACE, {"a": HashRanges.of((0, middle)), "b": HashRanges.of((middle, SPACE))})
    three = cut(two, ["a", "b", "new"], where)
    check(three, ["a", "b", "new"], where)
    assert owners(three, where) == dict(zip(where, ("new", "a", "b"), strict=True))


def test_a_shard_that_comes_takes_from_all_where_they_meet() -> None:
    before = cut(NOBODY, ["a", "b"], {})
    after = cut(before, ["a", "b", "c"], {})
    assert len(after.of("c")) == 1
    for shard in ("a", "b"):
        assert after.of(shard) - before.of(shard) == NOWHERE, "who has given takes nothing"
    assert loads(after, {}) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, abs=0.01)


def test_what_a_shard_leaves_is_its_neighbours() -> None:
    before = cut(NOBODY, ["a", "b", "c"], {})
    gone = sorted(before.shards, key=lambda shard: before.of(shard).spans)[1]
    after = cut(before, {"a", "b", "c"} - {gone}, {})
    assert moved(before, after, {}) == pytest.approx(loads(before, {})[gone])
    assert all(len(ranges) == 1 for ranges in after.shards.values())


def test_namespaces_that_come_and_go_move_nothing_until_a_shard_has_far_too_many() -> None:
    rng = random.Random(3)
    where = {rng.getrandbits(64): 1.0 for _ in range(400)}
    named = cut(NOBODY, ["a", "b", "c", "d"], where)
    low = named.of(named.shard_at(0) or "")
    more = dict(where)
    while True:
        point = rng.getrandbits(64)
        if point not in low:
            continue
        more[point] = 1.0
        fullest = max(loads(named, more).values()) * 4
        after = cut(named, ["a", "b", "c", "d"], more)
        if fullest > UNEVEN:
            break
        assert after == named
    assert max(loads(after, more).values()) * 4 <= MOST_LOAD
    assert moved(named, after, more) < 0.1


def test_a_namespace_that_is_heavier_than_a_part_has_a_shard_to_itself() -> None:
    where = {point_of(f"team-{number}"): 1.0 for number in range(30)} | {point_of("monster"): 60.0}
    named = cut(NOBODY, ["a", "b", "c"], where)
    monster = named.shard_at(point_of("monster"))
    assert monster is not None
    assert loads(named, where)[monster] == pytest.approx(60 / 90)
    assert max(load for shard, load in loads(named, where).items() if shard != monster) <= 1 / 3


def test_one_that_cannot_be_split_has_no_others_evened_out() -> None:
    shards, heavy = list("abcde"), point_of("heavy")
    where = {point_of(f"team-{number}"): 1.0 for number in range(200)} | {heavy: 90.0}
    named = cut(NOBODY, shards, where)
    growing = min(set(shards) - {named.shard_at(heavy)}, key=str)
    evened = []
    for point in [point for point in where if named.shard_at(point) == growing]:
        where[point] = 1.9
        load = loads(named, where)[growing] * len(shards)
        assert load > UNEVEN or cut(named, shards, where) == named, load
        evened.append(cut(named, shards, where) != named)
    assert evened[-1], "it does give away what is too much"


def test_a_rolling_update_gives_the_newcomer_what_has_become_free() -> None:
    rng = random.Random(4)
    where = {rng.getrandbits(64): 1.0 for _ in range(1000)}
    before = cut(NOBODY, ["a", "b", "c", "d"], where)
    after = cut(before, ["a", "b", "c", "e"], where)
    assert max(loads(after, where).values()) <= MOST_LOAD / 4
    assert moved(before, after, where) <= MOST_MOVED / 4


def test_cuts_between_namespaces_are_half_way() -> None:
    named = cut(NOBODY, ["a", "b"], {100: 1.0, 200: 1.0})
    assert {str(ranges) for ranges in named.shards.values()} == {
        str(HashRanges.of((0, 150))),
        str(HashRanges.of((150, SPACE))),
    }


def test_without_shards_all_stays_as_it_is() -> None:
    named = Named(HashBy.UID, {"gone": EVERYWHERE})
    assert cut(named, [], {}) == named


def test_one_shard_has_everything_whatever_was_named_before() -> None:
    named = Named(HashBy.UID, {"gone": HashRanges.of((0, 5)), "a": HashRanges.of((7, 9))})
    assert cut(named, ["a"], {3: 1.0}) == Named(HashBy.UID, {"a": EVERYWHERE})


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_is_above_nothing_and_can_be_added_up(weight: float) -> None:
    with pytest.raises(ValueError, match="not above 0"):
        cut(NOBODY, ["a"], {1: weight})


def test_a_ring_of_any_size_goes_into_one_assignment_also_while_it_changes() -> None:
    """Of a large ring each shard has fewer ranges: eight of each would be refused, and nobody have what is nobody's."""
    rng = random.Random(1)
    where = {point_of(f"team-{number}-{rng.random()}"): rng.choice([1.0, 1.0, 2.0, 5.0]) for number in range(6000)}
    shards, named = [f"op-{number}" for number in range(600)], NOBODY
    named = cut(named, shards, where)
    for step in range(2):
        before, shards = named, [*shards, *(f"op-{step}-{number}" for number in range(150))]
        named = cut(named, shards, where)
        most = most_ranges(len(shards))
        assert len(shards) * 2 * most <= MAX_RANGES
        assert all(len(named.of(each)) <= max(most, len(before.of(each))) for each in shards)
        assert {each for each in shards if not named.of(each)} == set()
        bounds = {
            bound for each in (before, named) for ranges in each.shards.values() for span in ranges for bound in span
        }
        assert len(bounds) <= MAX_RANGES
        gone, shards = shards[:150], shards[150:]
        named = cut(Named(named.by, {each: named.of(each) for each in named.shards if each not in gone}), shards, where)
        assert most_ranges(len(shards)) > 1
        assert max(loads(named, where).values()) * len(shards) <= UNEVEN
