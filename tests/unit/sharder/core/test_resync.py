"""When a ring's objects are gone through: every row of the table, and what holds in all stories."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sharder.core.membership import Membership
from sharder.core.resync import (
    CONCLUSIONS,
    MAX_SUPERSEDED,
    NOTHING,
    RETRY_SECONDS,
    SILENCE_SECONDS,
    TABLE,
    Asked,
    Event,
    ResyncState,
    Round,
    begin,
    compare,
    conclude,
    due,
    is_settled,
    is_superseded,
    on,
)

NOW, SETTLE, NEVER = 1000.0, 5.0, float("inf")
#: Nothing is due, and the last deep pass found something.
IDLE = ResyncState(SETTLE, changed_at=900.0, pause=4.0, not_before=NOW + 1)
CLEAN = replace(IDLE, clean=True)
NS = Asked(namespaces=frozenset({"a"}))
#: When it is gone through once more that has changed now.
LATER = frozenset({(NOW + SETTLE, "a")})
LEFT_OUT = replace(CLEAN, left_out=True, left_out_of=frozenset({"b"}))
#: Objects were left out, and others found in a namespace.
FOUND = replace(LEFT_OUT, again=frozenset({"c"}))
#: One has changed, and was not gone through since.
UNSURE = replace(FOUND, unsure=frozenset({"d"}))


def changed(state: ResyncState, **fields: Any) -> ResyncState:
    return replace(state, **fields)


#: What was owed is due, after the shortest pause.
MOVED = changed(IDLE, owed=True, deep_at=NOW + RETRY_SECONDS[0], pause=RETRY_SECONDS[0])


@pytest.mark.parametrize(
    ("before", "event", "named", "after"),
    [
        (
            changed(CLEAN, deep_at=NOW + 1), Event.SHARDS_CHANGED, Asked(shallow=True),
            changed(IDLE, changed_at=NOW, generation=1, deep_at=NOW + SETTLE, asked=Asked(shallow=True),
                    not_before=-NEVER, pause=RETRY_SECONDS[0]),
        ),
        (
            CLEAN, Event.READINESS_CHANGED, NOTHING,
            changed(IDLE, changed_at=NOW, deep_at=NOW + SETTLE, not_before=-NEVER, pause=RETRY_SECONDS[0]),
        ),
        (
            CLEAN, Event.SILENCE_ENDED, NOTHING,
            changed(
                IDLE, changed_at=NOW, deep_at=NOW + SETTLE, not_before=-NEVER, pause=RETRY_SECONDS[0],
                silence_at=NOW + SETTLE + SILENCE_SECONDS,
            ),
        ),
        (
            changed(CLEAN, silence_at=NOW + 9), Event.SILENCE_ENDED, Asked(shallow=True),
            changed(CLEAN, silence_at=NOW + 9 + SILENCE_SECONDS, deep_at=NOW + 9),
        ),
        (
            changed(CLEAN, silence_at=NOW + 2 * SILENCE_SECONDS), Event.SILENCE_ENDED, NOTHING,
            changed(CLEAN, silence_at=NOW + 2 * SILENCE_SECONDS, deep_at=NOW + SILENCE_SECONDS),
        ),
        (
            changed(IDLE, silence_at=NOW + 9, deep_at=NOW + 1), Event.SILENCE_ENDED, NOTHING,
            changed(IDLE, silence_at=NOW + 9, deep_at=NOW + 1),
        ),
        (
            changed(CLEAN, silence_at=NOW + 9), Event.SILENCE_ENDED_AGAIN, NOTHING,
            changed(CLEAN, silence_at=NOW + 9 + SILENCE_SECONDS, deep_at=NOW + 9),
        ),
        (CLEAN, Event.NAMESPACE_CHANGED, NS, changed(CLEAN, asked=NS, unsure=NS.namespaces, later=LATER)),
        (
            changed(CLEAN, unsure=frozenset({"b"}), later=frozenset({(NOW + 1, "a"), (NOW + 1, "b")})),
            Event.NAMESPACE_CHANGED, NS,
            changed(CLEAN, asked=NS, unsure=frozenset({"a", "b"}), later=LATER | {(NOW + 1, "b")}),
        ),
        (CLEAN, Event.MOVING, NOTHING, changed(IDLE, owed=True)),
        (changed(IDLE, owed=True), Event.QUIET, NOTHING, MOVED),
        (changed(IDLE, owed=True, deep_at=NOW + 9), Event.QUIET, NOTHING, MOVED),
        (CLEAN, Event.QUIET, NOTHING, CLEAN),
        (CLEAN, Event.LEFT_OUT, NS, changed(CLEAN, left_out=True, left_out_of=frozenset({"a"}))),
        (LEFT_OUT, Event.LEFT_OUT, NS, changed(LEFT_OUT, left_out_of=frozenset({"a", "b"}))),
        (LEFT_OUT, Event.ROOM, NOTHING, changed(IDLE, asked=Asked(True, frozenset({"b"})), deep_at=NOW + 4)),
        (CLEAN, Event.ROOM, NOTHING, CLEAN),
        (changed(CLEAN, deep_at=NOW + 9), Event.PERIOD_OVER, NOTHING, changed(CLEAN, deep_at=NOW)),
        (changed(CLEAN, deep_at=NOW, asked=NS, later=LATER), Event.NO_SHARD, NOTHING, CLEAN),
        (changed(CLEAN, deep_at=NOW + 9, asked=NS), Event.SHALLOW_BEGINS, NOTHING, changed(CLEAN, deep_at=NOW + 9)),
        (changed(FOUND, deep_at=NOW, owed=True, asked=NS), Event.DEEP_BEGINS, NOTHING, CLEAN),
        (
            changed(FOUND, deep_at=NOW, owed=True, asked=NS), Event.DEEP_BEGINS_AMID, NOTHING,
            changed(CLEAN, owed=True),
        ),
        (IDLE, Event.SUPERSEDED, NS, changed(IDLE, asked=NS, superseded=1)),
        (IDLE, Event.FAILED, NS, changed(IDLE, asked=NS, not_before=NOW + 4, deep_at=NOW + 4, pause=8.0)),
        (
            changed(IDLE, deep_at=NOW + 2, pause=40.0), Event.FAILED, NOTHING,
            changed(IDLE, not_before=NOW + 40, deep_at=NOW + 2, pause=RETRY_SECONDS[1]),
        ),
        (changed(IDLE, superseded=2), Event.ENDED, NOTHING, IDLE),
        (
            changed(CLEAN, unsure=NS.namespaces), Event.FOUND_IN_NAMESPACES, NS,
            changed(IDLE, again=NS.namespaces, deep_at=NOW + 4),
        ),
        (
            changed(CLEAN, unsure=frozenset({"a", "b"})), Event.NAMESPACES_CLEAN, NS,
            changed(CLEAN, unsure=frozenset({"b"})),
        ),
        (  # it has changed again meanwhile
            changed(CLEAN, unsure=NS.namespaces, asked=NS), Event.NAMESPACES_CLEAN, NS,
            changed(CLEAN, unsure=NS.namespaces, asked=NS),
        ),
        (CLEAN, Event.FOUND_SOME, NOTHING, changed(CLEAN, deep_at=NOW + 4, pause=8.0)),
        (IDLE, Event.TOO_EARLY, NOTHING, changed(IDLE, deep_at=900.0 + SETTLE)),
        (IDLE, Event.OBJECTS_WAIT, NOTHING, changed(IDLE, owed=True)),
        (IDLE, Event.MORE_ASKED, NOTHING, IDLE),
        (IDLE, Event.FOUND_NOTHING, NOTHING, changed(CLEAN, pause=RETRY_SECONDS[0])),
    ],
    ids=lambda value: value.name if isinstance(value, Event) else "",
)  # fmt: skip
def test_what_an_event_changes(before: ResyncState, event: Event, named: Asked, after: ResyncState) -> None:
    assert on(before, event, NOW, named) == after


def test_the_table_has_a_row_for_every_event() -> None:
    assert list(TABLE) == list(Event)


@pytest.mark.parametrize(
    ("state", "found", "began", "quiet", "event"),
    [
        (IDLE, 3, NOW, True, Event.FOUND_SOME),
        (LEFT_OUT, 0, NOW, True, Event.FOUND_SOME),
        (IDLE, 0, 900.0, True, Event.TOO_EARLY),
        (IDLE, 0, NOW, False, Event.OBJECTS_WAIT),
        (replace(IDLE, owed=True), 0, NOW, False, Event.OBJECTS_WAIT),
        (replace(IDLE, owed=True), 0, NOW, True, Event.QUIET),
        (replace(IDLE, asked=Asked(shallow=True)), 0, NOW, True, Event.MORE_ASKED),
        (replace(IDLE, asked=NS, unsure=NS.namespaces), 0, NOW, True, Event.FOUND_NOTHING),
        (replace(IDLE, deep_at=NOW + 5), 0, NOW, True, Event.MORE_ASKED),
        (IDLE, 0, NOW, True, Event.FOUND_NOTHING),
    ],
)
def test_how_a_deep_pass_ends(state: ResyncState, found: int, began: float, quiet: bool, event: Event) -> None:
    passed = Round(deep=True, asked=NOTHING, generation=0, began=began, amid=True)
    assert conclude(state, passed, found, NOW + 1, quiet=quiet) == on(state, event, NOW + 1)
    assert {each.event for each in CONCLUSIONS} <= set(Event)


def test_what_changes_hands_again_and_again_has_everything_gone_through_for_a_tenth_of_the_time() -> None:
    now, seconds, passes = NOW, 4.0, 0
    state = on(on(IDLE, Event.MOVING, now), Event.QUIET, now)
    while now < NOW + 1000:
        now = max(now, due(state, NOW + 5000))
        state, passed = begin(state, now, moving=False)
        state = on(state, Event.MOVING, now := now + seconds)
        state = conclude(state, passed, 0, now, quiet=True)
        passes += 1
    assert 1000 / (10 * seconds) - 1 <= passes <= 1000 / (10 * seconds) + 1


def test_a_pass_rests_a_minute_at_most() -> None:
    """What was made while objects moved may be on the wrong shard."""
    state = conclude(IDLE, Round(deep=True, asked=NOTHING, generation=0, began=NOW), 0, NOW + 50, quiet=True)
    assert on(on(state, Event.MOVING, NOW + 51), Event.QUIET, NOW + 51).deep_at == NOW + 50 + 60


@pytest.mark.parametrize("event", [Event.SHARDS_CHANGED, Event.READINESS_CHANGED, Event.SILENCE_ENDED])
def test_no_pass_rests_once_the_shards_have_changed(event: Event) -> None:
    rested = replace(IDLE, rests_until=NOW + 100)
    assert on(on(rested, Event.MOVING, NOW), Event.QUIET, NOW).deep_at == NOW + 100
    changed = on(on(on(rested, event, NOW), Event.MOVING, NOW), Event.QUIET, NOW)
    assert changed.deep_at == NOW + changed.pause


@pytest.mark.parametrize(("found", "amid", "quiet"), [(1, False, True), (0, True, True), (0, False, False)])
def test_a_pass_that_says_nothing_of_what_rests_lets_the_next_begin_at_once(
    found: int, amid: bool, quiet: bool
) -> None:
    state = replace(IDLE, owed=True)
    passed = Round(deep=True, asked=NOTHING, generation=0, began=NOW, amid=amid)
    assert conclude(state, passed, found, NOW + 5, quiet=quiet).rests_until < NOW


@pytest.mark.parametrize("quiet", [True, False])
def test_once_one_has_rested_since_the_shards_changed_one_amid_moves_rests_as_well(quiet: bool) -> None:
    """An object whose shard takes long to let go changes hands nearly all the time."""
    state = replace(IDLE, owed=True, rests_until=NOW)
    passed = Round(deep=True, asked=NOTHING, generation=0, began=NOW, amid=True)
    assert conclude(state, passed, 0, NOW + 5, quiet=quiet).rests_until == NOW + 50


@pytest.mark.parametrize("passed", [Round(False, NS, 0, NOW), Round(True, NS, 7, NOW)], ids=["shallow", "overtaken"])
def test_no_other_pass_concludes_anything(passed: Round) -> None:
    assert conclude(replace(IDLE, superseded=1), passed, 0, NOW, quiet=True) == IDLE


# -- when ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "moment"),
    [
        (IDLE, NOW + 60),
        (replace(IDLE, deep_at=NOW + 5), NOW + 5),
        (replace(IDLE, deep_at=NOW + 90), NOW + 60),
        (replace(IDLE, asked=NS), NOW + 1),
        (replace(IDLE, later=LATER), NOW + SETTLE),
        (replace(IDLE, later=LATER, deep_at=NOW + 1), NOW + 1),
        (replace(IDLE, asked=Asked(shallow=True), not_before=-NEVER), -NEVER),
        (replace(IDLE, asked=NS, not_before=NOW + 9, deep_at=NOW + 5), NOW + 5),
    ],
)
def test_when_the_next_pass_begins(state: ResyncState, moment: float) -> None:
    assert due(state, NOW + 60) == moment


def test_a_pass_takes_what_is_asked_for_and_a_deep_one_what_was_left_out() -> None:
    waiting = replace(UNSURE, asked=NS, deep_at=NOW, generation=3)
    assert begin(waiting, NOW - 1, moving=False) == (replace(waiting, asked=NOTHING), Round(False, NS, 3, NOW - 1))
    every = Asked(namespaces=frozenset({"a", "b", "c", "d"}))
    begun = replace(CLEAN, generation=3, unsure=frozenset({"d"}))
    assert begin(waiting, NOW, moving=False) == (begun, Round(True, every, 3, NOW))


def test_a_namespace_that_has_changed_is_gone_through_once_more_when_every_replica_knows_of_it() -> None:
    state, passed = begin(on(CLEAN, Event.NAMESPACE_CHANGED, NOW, NS), NOW + 1, moving=False)
    state = conclude(state, passed, 0, NOW + 1, quiet=True)
    assert is_settled(state, quiet=True)
    now = due(state, NOW + 300)
    assert now == NOW + SETTLE
    state, passed = begin(state, now, moving=False)
    assert (passed.deep, passed.asked) == (False, NS)
    assert due(conclude(state, passed, 0, now, quiet=True), NOW + 300) == NOW + 300


def test_a_namespace_in_which_something_was_found_is_gone_through_until_nothing_is() -> None:
    state, passed = begin(on(CLEAN, Event.NAMESPACE_CHANGED, NOW, NS), NOW + 1, moving=False)
    assert (passed.deep, passed.asked) == (False, NS)
    now = NOW + 1
    for _ in range(2):
        state = conclude(state, passed, 1, now, quiet=True)
        assert not state.clean
        now = due(state, NOW + 300)
        state, passed = begin(state, now, moving=False)
        assert (passed.deep, passed.asked) == (True, NS)
    assert conclude(state, passed, 0, now, quiet=True).clean


def test_a_pass_is_overtaken_but_not_for_ever() -> None:
    assert is_superseded(replace(IDLE, generation=1), 0)
    assert not is_superseded(IDLE, 0)
    assert not is_superseded(replace(IDLE, generation=1, superseded=MAX_SUPERSEDED), 0)


def test_a_ring_is_settled_when_it_is_clean_and_nothing_waits() -> None:
    assert is_settled(CLEAN, quiet=True)
    assert not is_settled(CLEAN, quiet=False)
    assert not is_settled(IDLE, quiet=True)
    assert not is_settled(replace(CLEAN, unsure=NS.namespaces), quiet=True)


ONE = Membership(available=frozenset({"one"}), ready=frozenset({"one"}))
TWO = Membership(available=frozenset({"one", "two"}), ready=frozenset({"one", "two"}))
TWO_LEAVES = dataclasses.replace(TWO, leaving=frozenset({"two"}))


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (ONE, ONE, None),
        (ONE, TWO, (Event.SHARDS_CHANGED, Asked(shallow=True))),
        (TWO, ONE, (Event.SHARDS_CHANGED, NOTHING)),
        (TWO, dataclasses.replace(TWO, ready=ONE.ready), (Event.READINESS_CHANGED, NOTHING)),
        (dataclasses.replace(TWO, ready=ONE.ready), TWO, (Event.READINESS_CHANGED, Asked(shallow=True))),
        (TWO, dataclasses.replace(TWO, silent=frozenset({"two"})), None),
        (dataclasses.replace(TWO, silent=frozenset({"two"})), TWO, (Event.SILENCE_ENDED, Asked(shallow=True))),
        (
            dataclasses.replace(TWO, silent=frozenset({"two"}), unsteady=frozenset({"two"})), TWO,
            (Event.READINESS_CHANGED, Asked(shallow=True)),
        ),
        (TWO, TWO_LEAVES, (Event.SHARDS_CHANGED, Asked(shallow=True))),
        (TWO_LEAVES, TWO, (Event.SHARDS_CHANGED, Asked(shallow=True))),
        # The ring is the same by then.
        (TWO_LEAVES, ONE, (Event.READINESS_CHANGED, NOTHING)),
        (TWO, dataclasses.replace(TWO, leaving=TWO.available), None),
        (dataclasses.replace(TWO, unsteady=frozenset({"two"})), TWO, (Event.READINESS_CHANGED, Asked(shallow=True))),
        (
            dataclasses.replace(TWO, silent=frozenset({"two"}), unrenewed=frozenset({"two"})), TWO,
            (Event.READINESS_CHANGED, Asked(shallow=True)),
        ),
    ],
)  # fmt: skip
def test_what_a_change_of_the_membership_is(old: Membership, new: Membership, found: object) -> None:
    assert compare(old, new) == found


# -- for all stories -------------------------------------------------------------------

happenings = st.sampled_from(
    [
        (Event.SHARDS_CHANGED, NOTHING), (Event.SHARDS_CHANGED, Asked(shallow=True)),
        (Event.READINESS_CHANGED, NOTHING), (Event.NAMESPACE_CHANGED, NS), (Event.MOVING, NOTHING),
        (Event.QUIET, NOTHING), (Event.ROOM, NOTHING), (Event.SILENCE_ENDED, Asked(shallow=True)),
    ]
)  # fmt: skip
meanwhile = st.lists(st.one_of(happenings, st.just((Event.LEFT_OUT, NS))), max_size=3)
turns = st.lists(
    st.tuples(
        st.lists(st.tuples(st.floats(0.0, 20.0), happenings), max_size=4),
        meanwhile, st.sampled_from(["ends", "ends", "fails"]), st.sampled_from([0, 0, 2]), st.booleans(),
    ),
    max_size=10,
)  # fmt: skip


@given(turns)
def test_a_ring_is_clean_by_a_late_pass_only_and_else_another_one_comes(story: list[Any]) -> None:
    now, period = NOW, 300.0
    state = on(ResyncState(SETTLE, changed_at=NOW), Event.SHARDS_CHANGED, NOW)
    for before, during, end, found, quiet in story:
        for seconds, (event, named) in before:
            now += seconds
            state = on(state, event, now, named)
        now = max(now, due(state, now + period))
        state, passed = begin(state, now, moving=not quiet)
        was_clean = state.clean
        for event, named in during:
            now += 0.5
            state = on(state, event, now, named)
        if is_superseded(state, passed.generation):
            state = on(state, Event.SUPERSEDED, now, passed.asked)
        elif end == "fails":
            state = on(state, Event.FAILED, now, passed.asked)
        else:
            state = conclude(state, passed, found, now, quiet=quiet)
            if state.clean and not was_clean:
                assert passed.deep
                assert not found
                assert quiet
                assert passed.began >= state.settles_at
        assert state.clean or state.deep_at is not None or state.owed, "nothing brings the ring back"
        unasked = state.unsure - state.asked.namespaces
        assert not unasked or state.deep_at is not None or state.owed, "nothing goes through what has changed"
        assert RETRY_SECONDS[0] <= state.pause <= RETRY_SECONDS[1]
