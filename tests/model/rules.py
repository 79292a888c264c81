"""What may happen next: every step of sharders, shards, time, and of people who edit the assignment by hand.

A watch may tell anything that was true once; a process may stop anywhere for as
long as it likes, and a sharder is never asked whether it still leads.  A lease
may run out at any time: whoever holds it has stopped by then (the fence), as
for labels.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.flaws import Flaw
from tests.model.states import (
    CONFIRMED,
    DOWN,
    FLAGGED,
    IDLE,
    NAMES,
    NOBODY,
    SHARDER,
    SHARDS,
    WORKING,
    Lease,
    Shard,
    Sharder,
    State,
    other,
)

#: What happens, in words, and what is then.
Step = tuple[str, State]


def steps(state: State, flaw: Flaw, *, edited: bool) -> Iterator[Step]:
    """Everything that may happen next."""
    if edited:
        yield from _edits(state)
    for number in (0, 1):
        yield from _sharder_steps(state, number, flaw)
    for shard in SHARDS:
        if state.shards[shard - 1].phase == DOWN:
            yield f"{NAMES[shard]} starts again", _with(state, shard, Shard(IDLE, NOBODY))
        else:
            yield from _process_steps(state, shard)
            yield from _shard_steps(state, shard, flaw)
        yield from _lease_steps(state, shard, flaw)


def _edits(state: State) -> Iterator[Step]:
    for name in (NOBODY, *SHARDS):
        if name != state.named:
            yield f"somebody writes {NAMES[name]} by hand", _write(state, name)


def _write(state: State, name: int, writer: int | None = None, then: Sharder | None = None) -> State:
    """The assignment names `name`: what sharders have read before, except for the `writer`, is old."""
    sharders = tuple(
        then if number == writer and then is not None else each._replace(fresh=False)
        for number, each in enumerate(state.sharders)
    )
    return State(name, state.leases, state.shards, (sharders[0], sharders[1]))


# -- a sharder ------------------------------------------------------------------


def _sharder_steps(state: State, number: int, flaw: Flaw) -> Iterator[Step]:
    me = f"sharder {number + 1}"
    yield f"{me} reads {NAMES[state.named]}", _with_sharder(state, number, Sharder(True, state.named, True))
    now = state.sharders[number]
    if not now.reading:
        return
    may_write = now.fresh or flaw is Flaw.WRITES_OVER
    if now.seen == NOBODY:
        yield from _grant(state, number, now, flaw, may_write=may_write)
    elif may_write:
        yield f"{me} takes the range from {NAMES[now.seen]}", _write(state, NOBODY, number, Sharder(True, NOBODY, True))
        if flaw is Flaw.GRANTS_AT_ONCE:
            target = other(now.seen)
            yield f"{me} names {NAMES[target]} at once", _write(state, target, number, Sharder())


def _grant(state: State, number: int, now: Sharder, flaw: Flaw, *, may_write: bool) -> Iterator[Step]:
    """Look at the Leases of the other shards, which is one here, then name one."""
    me = f"sharder {number + 1}"
    for target in SHARDS:
        if now.other_free:
            if now.target == target and may_write:
                yield f"{me} names {NAMES[target]}", _write(state, target, number, Sharder())
            continue
        holder, flagged = state.leases[other(target) - 1]
        if holder != other(target) or not flagged or flaw in (Flaw.GRANTS_UNSEEN, Flaw.NOBODY_LOOKS):
            seen = now._replace(target=target, other_free=True)
            yield f"{me} sees {NAMES[other(target)]} without the range", _with_sharder(state, number, seen)


# -- a shard ----------------------------------------------------------------------


def _process_steps(state: State, shard: int) -> Iterator[Step]:
    """Of any process at any time."""
    phase, _ = state.shards[shard - 1]
    yield f"{NAMES[shard]} is told {NAMES[state.named]}", _with(state, shard, Shard(phase, state.named))
    yield f"{NAMES[shard]} crashes", _with(state, shard, Shard(DOWN, NOBODY))


def _shard_steps(state: State, shard: int, flaw: Flaw) -> Iterator[Step]:
    """What it does about the range."""
    phase, told = state.shards[shard - 1]
    lease, me = state.leases[shard - 1], NAMES[shard]
    mine = lease.holder == shard
    without = Lease(shard, False)
    if phase == IDLE:
        yield from _idle(state, shard, flaw)
    elif phase == FLAGGED and mine:
        if (told if flaw is Flaw.TRUSTS_ITS_WATCH else state.named) == shard:
            looks = flaw not in (Flaw.LOOKS_AT_NOBODY, Flaw.NOBODY_LOOKS)
            yield f"{me} is still named", _with(state, shard, Shard(CONFIRMED if looks else WORKING, told))
        else:
            yield f"{me} is not named any more", _with(state, shard, Shard(IDLE, told), without)
    elif phase == CONFIRMED and mine:
        if state.leases[other(shard) - 1] == (other(shard), True):
            yield f"{me} meets {NAMES[other(shard)]}", _with(state, shard, Shard(IDLE, told), without)
        else:
            yield f"{me} begins", _with(state, shard, Shard(WORKING, told))
    elif phase == WORKING and told != shard:
        yield f"{me} ends and gives back", _with(state, shard, Shard(IDLE, told), without if mine else lease)
        if flaw is Flaw.GIVES_BACK_EARLY:
            yield f"{me} gives back and works on", _with(state, shard, Shard(WORKING, told), without)


def _idle(state: State, shard: int, flaw: Flaw) -> Iterator[Step]:
    (holder, flagged), told, me = state.leases[shard - 1], state.shards[shard - 1].told, NAMES[shard]
    if holder == NOBODY:
        yield f"{me} acquires its lease", _with(state, shard, Shard(IDLE, NOBODY), Lease(shard, False))
    if holder != shard:
        return
    if flagged:
        # Of the process before it, or of a range that it was told to leave.
        yield f"{me} gives back", _with(state, shard, Shard(IDLE, told), Lease(shard, False))
        return
    if told == shard:
        flag = Lease(shard, flaw is not Flaw.NO_FLAG)
        yield f"{me} says that it holds the range", _with(state, shard, Shard(FLAGGED, told), flag)
    yield f"{me} releases its lease", _with(state, shard, Shard(IDLE, told), Lease(NOBODY, False))


def _lease_steps(state: State, shard: int, flaw: Flaw) -> Iterator[Step]:
    """It runs out and the sharder takes it; it comes back."""
    holder = state.leases[shard - 1].holder
    if holder == shard:
        process = state.shards[shard - 1]
        stopped = process if flaw is Flaw.UNFENCED else Shard(DOWN if process.phase == DOWN else IDLE, NOBODY)
        text = f"{NAMES[shard]}'s lease runs out and a sharder takes it"
        yield text, _with(state, shard, stopped, Lease(SHARDER, False))
    elif holder == SHARDER:
        text = f"a sharder gives {NAMES[shard]}'s lease back"
        yield text, _with(state, shard, state.shards[shard - 1], Lease(NOBODY, False))


# -- one part of a state anew -----------------------------------------------------


def _with(state: State, shard: int, process: Shard, lease: Lease | None = None) -> State:
    first = shard == 1
    shards = (process, state.shards[1]) if first else (state.shards[0], process)
    leases = state.leases
    if lease is not None:
        leases = (lease, leases[1]) if first else (leases[0], lease)
    return State(state.named, leases, shards, state.sharders)


def _with_sharder(state: State, number: int, sharder: Sharder) -> State:
    sharders = (sharder, state.sharders[1]) if number == 0 else (state.sharders[0], sharder)
    return State(state.named, state.leases, state.shards, sharders)
