"""The table of an object's state is whole, and keeps nothing of objects of which there is nothing to know."""

from __future__ import annotations

from itertools import product

import pytest

from shardsdk.kube.store import Key
from shardsdk.protocol.objects import GroupResource
from shardsdk.queueing.item import Priority
from shardsdk.reconcile.state import (
    TRANSITIONS,
    Arrival,
    Awaited,
    Child,
    ChildEvent,
    Children,
    Drain,
    DrainEvent,
    DrainState,
    ObjectStates,
    WriteEvent,
    Writes,
)

A = Key("default", "a")
PARTS = [(Writes, WriteEvent), (Children, ChildEvent), (Drain, DrainEvent)]


def test_every_state_has_a_step_for_every_event_of_its_own_and_no_other() -> None:
    wanted = {pair for states, events in PARTS for pair in product(states, events)}
    assert set(TRANSITIONS) == wanted


def test_a_step_stays_within_its_part_and_says_why() -> None:
    assert not [pair for pair, step in TRANSITIONS.items() if type(step.to) is not type(pair[0]) or not step.why]


@pytest.mark.parametrize(("states", "events"), PARTS, ids=["writes", "children", "drain"])
def test_every_state_is_reached_and_left(states: type[Writes], events: type[WriteEvent]) -> None:
    steps = [(before, step.to) for (before, _), step in TRANSITIONS.items() if isinstance(before, states)]
    assert {to for before, to in steps if to is not before} == set(states)
    assert {before for before, to in steps if to is not before} == set(states)


def test_who_is_gone_is_at_the_beginning_again() -> None:
    assert {TRANSITIONS[state, WriteEvent.LEFT].to for state in Writes} == {Writes.SHOWN}
    assert {TRANSITIONS[state, ChildEvent.LEFT].to for state in Children} == {Children.UNKNOWN}
    assert {TRANSITIONS[state, DrainEvent.GONE].to for state in Drain} == {Drain.NONE}


def test_only_what_waited_is_woken() -> None:
    """Else a reconcile that writes and then fails would come back without its backoff."""
    woken = {state for (state, event), step in TRANSITIONS.items() if step.wakes and event is not DrainEvent.SEEN}
    assert woken == {Writes.POSTPONED, Children.LISTING, Children.CATCHING_UP, Drain.BUSY}


def test_a_drain_is_acknowledged_only_from_a_state_in_which_nothing_runs_or_it_was_looked_at_again() -> None:
    """`BUSY` is left by the end of what runs; an acknowledgement is written by whoever has asked again."""
    assert TRANSITIONS[Drain.BUSY, DrainEvent.SEEN].to is Drain.BUSY
    assert TRANSITIONS[Drain.BUSY, DrainEvent.ENDED].wakes


def test_nothing_is_kept_of_an_object_that_is_as_it_was_at_first() -> None:
    states = ObjectStates()
    states.of(A).wrote(WriteEvent.WROTE)
    states.tidy(A)
    assert states.known() == 1
    states.of(A).wrote(WriteEvent.SHOWN)
    states.tidy(A)
    assert states.known() == 0
    states.note_error(A, "")
    assert states.known() == 0


def test_an_error_is_kept_until_a_reconcile_ends_well() -> None:
    states = ObjectStates()
    states.note_error(A, "boom")
    assert states.waiting() == [A]
    states.note_error(A, "")
    assert (states.waiting(), states.known()) == ([], 0)


def test_those_that_wait_are_told_besides_those_that_failed_and_no_others() -> None:
    states = ObjectStates()
    unshown, postponed, arrived, failed = (Key("default", name) for name in "abcd")
    for key in (unshown, postponed):
        states.of(key).wrote(WriteEvent.WROTE)
    states.of(postponed).wrote(WriteEvent.POSTPONED)
    states.of(arrived).arrival = Arrival(0.0, Priority.FRESH, wakes=True)
    states.note_error(failed, "boom")
    assert states.waiting() == [postponed, arrived, failed]


def test_children_once_known_are_kept_where_objects_are_handed_over_and_nowhere_else() -> None:
    for at_first, kept in ((Children.UNKNOWN, 1), (Children.KNOWN, 0)):
        states = ObjectStates(at_first)
        state = states.of(A)
        state.heard(ChildEvent.ARRIVED)
        state.arrival = Arrival(0.0, Priority.FRESH, wakes=True)
        states.tidy(A)
        assert states.known() == 1
        assert state.heard(ChildEvent.LISTED)
        state.arrival = None
        states.tidy(A)
        assert states.known() == kept


def test_a_drain_is_open_from_its_label_to_its_acknowledgement() -> None:
    state = DrainState()
    story = []
    for event in (DrainEvent.SEEN, DrainEvent.BUSY, DrainEvent.ENDED, DrainEvent.VOIDED, DrainEvent.ACCEPTED):
        state.heard(event)
        story.append((state.drain, state.open))
    assert story == [
        (Drain.ASKED, True),
        (Drain.BUSY, True),
        (Drain.ASKED, True),
        (Drain.VOID, True),
        (Drain.ACKNOWLEDGED, False),
    ]


def test_a_child_may_be_awaited_by_two() -> None:
    awaited, child = Awaited(), Child(GroupResource("", "configmaps"), A)
    awaited.add(child, Key("default", "b"))
    awaited.add(child, A)
    assert awaited.owners(child) == [A, Key("default", "b")]
    awaited.drop(child, A)
    awaited.drop(child, Key("default", "b"))
    assert awaited.owners(child) == []
