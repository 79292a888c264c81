"""Every state that can be reached, breadth first: the first violation found takes as few steps as any."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tests.model.flaws import Flaw
from tests.model.rules import steps
from tests.model.states import START, WORKING, State, has_two_owners


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found: how many states until then, and the shortest way to two owners, if there is one."""

    states: int
    violation: tuple[str, ...]


def search(flaw: Flaw, *, edited: bool) -> Outcome:
    """Look at every state, until one has two owners."""
    before: dict[State, tuple[State, str] | None] = {START: None}
    waiting = deque([START])
    while waiting:
        state = waiting.popleft()
        if has_two_owners(state):
            return Outcome(len(before), _way(before, state))
        for text, then in steps(state, flaw, edited=edited):
            if then not in before:
                before[then] = (state, text)
                waiting.append(then)
    return Outcome(len(before), ())


def stuck_states(never: str = "") -> int:
    """In how many states of the protocol as designed no shard can ever work on the range again.

    Steps whose words begin with `never` do not happen.
    """
    comes_from: dict[State, list[State]] = {START: []}
    waiting = deque([START])
    while waiting:
        state = waiting.popleft()
        for text, then in steps(state, Flaw.NONE, edited=False):
            if never and text.startswith(never):
                continue
            if then not in comes_from:
                comes_from[then] = []
                waiting.append(then)
            comes_from[then].append(state)
    hopeful = {state for state in comes_from if any(each.phase == WORKING for each in state.shards)}
    waiting.extend(hopeful)
    while waiting:
        for state in comes_from[waiting.popleft()]:
            if state not in hopeful:
                hopeful.add(state)
                waiting.append(state)
    return len(comes_from) - len(hopeful)


def _way(before: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    way: list[str] = []
    while (step := before[state]) is not None:
        state, text = step
        way.append(text)
    return tuple(reversed(way))
