"""Ranges as a shard takes and gives them: each point goes its own way, and what follows is told once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import ObjectMeta
from shardsdk.protocol.ranges import EVERYWHERE, HELD_RANGES_ANNOTATION, NOWHERE, SPACE, HashBy, HashRanges, Named
from shardsdk.ranges.parts import HELD, PAUSE_SECONDS, TRANSITIONS, Changes, Heard, Part, Parts, free_for

CELLS = 6
WIDTH = SPACE // CELLS
LOW, HIGH = HashRanges.of((0, SPACE // 2)), HashRanges.of((SPACE // 2, SPACE))
QUARTER = HashRanges.of((0, SPACE // 4))


def working(named: HashRanges = LOW) -> Parts:
    """A shard that works on what it is named for."""
    parts = Parts()
    parts.assigned(named)
    parts.written(parts.number)
    parts.look()
    parts.looked(named)
    return parts


def look_due(parts: Parts) -> bool:
    """For type checkers, who take it for a constant."""
    return parts.look_due


def test_a_range_is_flagged_looked_at_and_worked_on() -> None:
    parts = Parts()
    assert parts.assigned(LOW) == Changes()
    assert (parts.held, parts.working, look_due(parts)) == (LOW, NOWHERE, False)
    assert parts.written(parts.number) == Changes()
    assert look_due(parts)
    assert parts.look() == LOW
    assert not look_due(parts)
    assert parts.looked(LOW) == Changes(gained=LOW)
    assert parts.working == parts.held == LOW


def test_a_write_of_what_was_to_be_held_before_is_no_flag() -> None:
    parts = Parts()
    parts.assigned(LOW)
    before = parts.number
    parts.assigned(EVERYWHERE)
    parts.written(before)
    assert not look_due(parts)
    parts.written(parts.number)
    assert parts.look() == EVERYWHERE


def test_a_revoked_range_stays_on_the_lease_until_its_work_has_ended() -> None:
    parts = working()
    assert parts.assigned(QUARTER) == Changes(revoked=LOW - QUARTER)
    assert (parts.working, parts.held) == (QUARTER, LOW)
    assert parts.ended(LOW - QUARTER) == Changes(dropped=LOW - QUARTER)
    assert parts.held == QUARTER


def test_one_that_is_given_back_meanwhile_is_given_up_and_taken_anew() -> None:
    parts = working()
    parts.assigned(NOWHERE)
    assert parts.assigned(LOW) == Changes()
    parts.ended(LOW)
    assert parts.held == NOWHERE
    parts.written(parts.number)
    assert parts.held == LOW
    parts.written(parts.number)
    assert parts.look() == LOW


def test_an_assignment_that_cannot_be_read_takes_nothing_and_gives_nothing() -> None:
    parts = working(QUARTER)
    parts.assigned(LOW)
    assert parts.assigned(None) == Changes()
    assert parts.held == parts.working == QUARTER


def test_a_look_proves_nothing_of_what_came_after_its_begin() -> None:
    parts = Parts()
    parts.assigned(QUARTER)
    parts.written(parts.number)
    parts.look()
    parts.assigned(LOW)
    parts.written(parts.number)
    assert not look_due(parts), "one at a time"
    assert parts.looked(LOW) == Changes(gained=QUARTER)
    assert look_due(parts)


def test_who_meets_somebody_lets_go_and_tries_again_after_a_pause() -> None:
    parts = Parts()
    parts.assigned(LOW)
    parts.written(parts.number)
    parts.look()
    assert parts.looked(QUARTER) == Changes(gained=QUARTER)
    assert (parts.held, parts.waiting) == (QUARTER, LOW - QUARTER)
    parts.retry()
    assert (parts.held, parts.waiting) == (LOW, NOWHERE)


def test_pauses_grow_to_a_limit_and_begin_anew_after_a_look_that_found_all_free() -> None:
    parts = Parts()
    parts.assigned(LOW)
    pauses = []
    for _ in range(10):
        parts.written(parts.number)
        parts.look()
        parts.looked(NOWHERE)
        pauses.append((parts.pause(0.0), parts.pause(1.0)))
        parts.retry()
    assert pauses[0] == (PAUSE_SECONDS[0] / 2, PAUSE_SECONDS[0])
    assert pauses == sorted(pauses)
    assert pauses[-1] == (PAUSE_SECONDS[1] / 2, PAUSE_SECONDS[1])
    parts.written(parts.number)
    parts.look()
    parts.looked(LOW)
    assert parts.pause(1.0) == PAUSE_SECONDS[0]


def test_a_lost_lease_ends_all() -> None:
    parts = working()
    assert parts.lost() == Changes(dropped=LOW)
    assert parts.held == parts.working == NOWHERE


cells = st.sets(st.integers(0, CELLS - 1))
events = st.one_of(
    st.tuples(st.just("assigned"), cells | st.none()),
    st.tuples(st.just("written"), st.booleans()),
    st.tuples(st.just("look"), st.none()),
    st.tuples(st.just("looked"), cells),
    st.tuples(st.just("ended"), cells),
    st.tuples(st.just("retry"), st.none()),
    st.tuples(st.just("lost"), st.none()),
)


def ranges(chosen: set[int]) -> HashRanges:
    return HashRanges.of(*((cell * WIDTH, (cell + 1) * WIDTH) for cell in chosen))


@given(st.lists(events, max_size=40))
def test_each_point_goes_its_own_way_as_the_table_says(history: list[tuple[str, object]]) -> None:
    parts, looking = Parts(), False
    points = dict.fromkeys(range(CELLS), Part.OTHERS)
    named: set[int] | None = None
    for what, given_ in history:
        chosen = given_ if isinstance(given_, set) else set()
        held, number, before = parts.held, parts.number, dict(points)
        heard: dict[int, Heard] = {}
        match what:
            case "assigned":
                named = given_ if isinstance(given_, set) else None
                changes = parts.assigned(None if named is None else ranges(named))
            case "written":
                changes = parts.written(parts.number if given_ else parts.number - 1)
                if given_:
                    heard = {c: Heard.WRITTEN if c * WIDTH in held else Heard.CLEARED for c in points}
            case "look":
                if looking:
                    continue
                looking, changes = True, Changes()
                parts.look()
                heard = dict.fromkeys(points, Heard.LOOKED)
            case "looked":
                if not looking:
                    continue
                looking, changes = False, parts.looked(ranges(chosen))
                heard = {c: Heard.CONFIRMED if c in chosen else Heard.REFUSED for c in points}
                heard = {c: event for c, event in heard.items() if c in chosen or points[c] is Part.LOOKING}
            case "ended":
                changes, heard = parts.ended(ranges(chosen)), dict.fromkeys(chosen, Heard.ENDED)
            case "retry":
                changes, heard = parts.retry(), dict.fromkeys(points, Heard.RETRIED)
            case _:
                named, changes = None, parts.lost()
                heard = dict.fromkeys(points, Heard.LOST)
        if what != "written" or given_:
            for cell in points:
                if cell in heard:
                    points[cell] = TRANSITIONS[points[cell], heard[cell]].to
                said = Heard.UNKNOWN if named is None else Heard.NAMED if cell in named else Heard.UNNAMED
                points[cell] = TRANSITIONS[points[cell], said].to
        assert {c: next(part for part in Part if c * WIDTH in parts.of(part)) for c in points} == points
        assert parts.held == ranges({c for c in points if points[c] in HELD})
        assert (parts.number != number) == (parts.held != held)
        if what != "look":
            told_by(before, points, changes)


def told_by(before: dict[int, Part], after: dict[int, Part], changes: Changes) -> None:
    """Everything that begins or ends is told, once."""
    busy = {Part.WORKING, Part.ENDING}
    assert changes.gained == ranges({c for c in after if after[c] is Part.WORKING and before[c] not in busy})
    assert changes.revoked == ranges({c for c in after if after[c] is Part.ENDING and before[c] is Part.WORKING})
    assert changes.dropped == ranges({c for c in after if before[c] in busy and after[c] not in busy})


def lease(name: str, held: str, holder: str | None = None) -> Lease:
    annotations = {HELD_RANGES_ANNOTATION: held}
    return Lease(ObjectMeta(name=name, annotations=annotations), LeaseSpec(name if holder is None else holder))


def test_free_is_what_names_this_shard_and_no_other_holds() -> None:
    named = Named(HashBy.NAMESPACE, {"me": LOW, "a": HIGH})
    assert free_for("me", named, [lease("me", str(LOW)), lease("a", str(HIGH))]) == LOW
    assert free_for("me", named, [lease("a", str(QUARTER))]) == LOW - QUARTER
    assert free_for("me", named, [lease("a", "nonsense")]) == NOWHERE, "what makes no sense holds everything"
    assert free_for("me", named, [lease("a", str(LOW), "shardlease-controller"), lease("b", str(LOW), "")]) == LOW
    assert free_for("me", None, []) == free_for("other", named, []) == NOWHERE
