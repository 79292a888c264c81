"""Every state of two shards and one point: whatever anybody writes into the assignment, no two shards work on it.

The table of `shardsdk.ranges.parts` speaks of one point, so one point is enough: a state
is who the assignment names, both leases, and of each process how far it is, what it has seen,
what its keeper writes and what its look has read so far.  Everything may happen between any two
steps: crashes, restarts, leases that run out or are released, watches that are late.

Two nets hold each by itself: the sharder names nobody who could meet somebody, and the
shards look at each other.  `HANDS` writes anything into the assignment at any time, so that only the
second is left; `SHARDER` follows its own rule, so that faults of the shards are caught by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from shardsdk.ranges.parts import HELD, TRANSITIONS, Heard, Part

NOBODY, A, B, UNREADABLE = 0, 1, 2, 3
SHARDER = 3
SWAPPED = {A: B, B: A}


class Process(NamedTuple):
    """One shard: its lease, and the process that holds it."""

    holder: int
    held: bool = False
    up: bool = True
    part: Part = Part.OTHERS
    view: Heard = Heard.UNKNOWN
    #: What the keeper is to write as far as it knows, and whether that is the newest.
    told: bool = False
    current: bool = True
    #: What a write held that was executed and whose answer is on its way, while that is the newest.
    answer: bool | None = None
    #: What the look has read so far: the assignment, then the other's lease; each true if it speaks for us.
    look: tuple[bool, ...] | None = None
    #: Whether reconciles run.
    busy: bool = False
    #: Whether a write may be executed that a process of this name sent which has crashed.
    late: bool = False
    #: Whether the lease says so because that process held it.
    owed: bool = False


class World(NamedTuple):
    """Who is named, and both shards; who does not hold it, as the sharder has read since it saw nobody named.

    A process is its number among `Processes`: there are some hundred of them, and a hundred thousand worlds to be told
    from one another.
    """

    owner: int
    shards: tuple[int, int]
    leader: frozenset[int] | None = None


@dataclass(frozen=True)
class Fault:
    """What is done otherwise than in the product: other steps, other parts on the lease, and what follows."""

    steps: Mapping[tuple[Part, Heard], Part] = field(default_factory=dict)
    held: frozenset[Part] = HELD
    #: What the look reads, in this order.
    reads: tuple[str, ...] = ("assignment", "leases")
    #: The look begins before the flag is known to be written.
    looks_early: bool = False
    #: Who goes on with a lease says nothing of what the process before it held.
    owes_nothing: bool = False
    #: And gives the lease back without waiting for what that has sent.
    hurries: bool = False
    #: Whoever is named otherwise has nobody at work meanwhile.
    rests: bool = False


SOUND = Fault()
FAULTS = {
    "no flag": Fault({(Part.OTHERS, Heard.NAMED): Part.FLAGGED}, frozenset({Part.WORKING, Part.ENDING})),
    "working without a flag": Fault(held=HELD - {Part.WORKING}),
    "acknowledging while working": Fault({(Part.WORKING, Heard.UNNAMED): Part.LEAVING}),
    "no look": Fault({(Part.FLAGGING, Heard.WRITTEN): Part.WORKING}),
    "no look at the leases": Fault(reads=("assignment",)),
    "a look before the flag": Fault(looks_early=True),
    "a flag taken for written": Fault({(Part.OTHERS, Heard.NAMED): Part.FLAGGED}),
    "a look that was refused": Fault({(Part.LOOKING, Heard.REFUSED): Part.WORKING}),
    "going on with nothing": Fault(owes_nothing=True),
    "released while a dead one may write": Fault(hurries=True),
}


def heard(process: Process, fault: Fault, *events: Heard) -> Process:
    """Take the steps of these events and of what the assignment said last, as `Parts` does."""
    part = process.part
    for event in (*events, process.view):
        if event is Heard.UNNAMED and part is Part.WORKING and process.owed and not fault.rests:
            continue  # it could not be given away, and nobody else may have it
        part = fault.steps.get((part, event), TRANSITIONS[part, event].to)
    changed = (part in fault.held) != (process.part in fault.held)
    answer = process.answer
    if changed:
        answer = None  # it says nothing any more
    return process._replace(
        part=part,
        current=process.current and not changed,
        answer=answer,
        busy=process.busy or part is Part.WORKING,
    )


class Processes:
    """Every process that there may be, by its number; what it may do next is worked out once."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._numbers: dict[Process, int] = {}
        self._all: list[Process] = []
        self._mirrored: dict[int, int] = {}
        self._moves: dict[tuple[int, int, int, bool], list[tuple[str, int]]] = {}

    def __getitem__(self, each: int) -> Process:
        return self._all[each]

    def of(self, world: World) -> tuple[Process, Process]:
        """Both shards'."""
        return self._all[world.shards[0]], self._all[world.shards[1]]

    def number(self, process: Process) -> int:
        if process not in self._numbers:
            self._numbers[process] = len(self._all)
            self._all.append(process)
        return self._numbers[process]

    def mirrored(self, each: int) -> int:
        """The same process of the other shard."""
        if each not in self._mirrored:
            me = self._all[each]
            self._mirrored[each] = self.number(me._replace(holder=SWAPPED.get(me.holder, me.holder)))
        return self._mirrored[each]

    def moves(self, each: int, number: int, owner: int, *, free: bool) -> list[tuple[str, int]]:
        """Of the shard `number`, while `owner` is named; `free`: the other one's lease does not hold it."""
        key = each, number, owner, free
        if key not in self._moves:
            me, name = self._all[each], "AB"[number - 1]
            found = list(lives(me, number, self._fault))
            if me.up and me.holder == number:
                found += works(me, number, owner, self._fault, free=free)
            self._moves[key] = [(f"{name} {what}", self.number(after)) for what, after in found]
        return self._moves[key]


def moves(world: World, processes: Processes, *, hands: bool) -> Iterator[tuple[str, World]]:
    yield from (written_by_hand(world) if hands else written_by_sharder(world, processes))
    owner, (a, b), leader = world
    for what, after in processes.moves(a, A, owner, free=is_free(processes[b], B)):
        yield what, World(owner, (after, b), leader)
    for what, after in processes.moves(b, B, owner, free=is_free(processes[a], A)):
        yield what, World(owner, (a, after), leader)


def is_free(process: Process, number: int) -> bool:
    """Whether that shard's lease does not hold it."""
    return process.holder != number or not process.held


def lives(me: Process, number: int, fault: Fault) -> Iterator[tuple[str, Process]]:
    """Processes come and go, and leases with them."""
    if me.up:
        yield "crashes", Process(me.holder, me.held, up=False, late=me.busy or me.late)
    if me.late:
        yield "has sent nothing that can still be executed", me._replace(late=False)
    if not me.up and me.holder == number and not fault.owes_nothing:
        yield "goes on with its lease", Process(number, me.held, told=me.held, late=me.late, owed=me.held)
    elif not me.up and me.holder in (number, NOBODY):
        yield "acquires its lease, which empties it", Process(number, late=me.late)
    if me.up and me.holder == number and me.owed and not me.late:
        changed = me.part not in fault.held
        answer = None if changed else me.answer
        paid = me._replace(owed=False, current=me.current and not changed, answer=answer)
        yield "is past what was owed", heard(paid, fault)
    if me.holder == number:
        yield "has lost its lease to its deadline, and the sharder has taken it", Process(SHARDER, up=False)
    if me.up and me.holder == number and not me.busy and (fault.hurries or not me.late):
        yield "releases its lease", Process(NOBODY, up=False, late=me.late)
    if me.holder == SHARDER:
        yield "is given its lease back", me._replace(holder=NOBODY)


def works(me: Process, number: int, owner: int, fault: Fault, *, free: bool) -> Iterator[tuple[str, Process]]:
    view = Heard.UNKNOWN if owner == UNREADABLE else Heard.NAMED if owner == number else Heard.UNNAMED
    if view is not me.view:
        yield f"sees that it is {view.name}", heard(me._replace(view=view), fault)
    wanted = me.owed or me.part in fault.held
    if not me.current:
        yield "tells its keeper", me._replace(told=wanted, current=True)
    if me.answer is None and (me.told != me.held or not me.current or me.part in (Part.FLAGGING, Part.LEAVING)):
        yield f"writes {me.told}", me._replace(held=me.told, answer=me.told if me.current else None)
    if me.answer is not None:
        yield "gets no answer", me._replace(answer=None)
        yield "gets an answer", heard(me._replace(answer=None), fault, Heard.WRITTEN if me.answer else Heard.CLEARED)
    yield from looks(me, number, owner, fault, free=free)
    if me.busy and me.part is not Part.WORKING:
        yield "ends its work", heard(me._replace(busy=False), fault, Heard.ENDED)
    if me.part is Part.WAITING:
        yield "tries again", heard(me, fault, Heard.RETRIED)


def looks(me: Process, number: int, owner: int, fault: Fault, *, free: bool) -> Iterator[tuple[str, Process]]:
    found = {"assignment": owner == number, "leases": free}
    if me.look is None:
        if me.part is Part.FLAGGED:
            yield "begins to look", heard(me._replace(look=()), fault, Heard.LOOKED)
        elif fault.looks_early and me.part is Part.FLAGGING:
            yield "begins to look too early", me._replace(look=())
    elif len(me.look) == len(fault.reads) or False in me.look:
        event = Heard.CONFIRMED if all(me.look) else Heard.REFUSED
        if fault.looks_early and me.part is Part.FLAGGED:
            me = heard(me, fault, Heard.LOOKED)
        yield f"has {event.name}", heard(me._replace(look=None), fault, event)
    else:
        read = found[fault.reads[len(me.look)]]
        # What speaks against it once settles it, at whatever time it is told.
        yield f"reads {read}", me._replace(look=(*me.look, True) if read else (False,))
        yield "cannot look", me._replace(look=(False,))


def written_by_hand(world: World) -> Iterator[tuple[str, World]]:
    for owner in (NOBODY, A, B, UNREADABLE):
        if owner != world.owner:
            yield f"hand writes {owner}", world._replace(owner=owner)


def written_by_sharder(world: World, processes: Processes) -> Iterator[tuple[str, World]]:
    """Revokes, and grants once it has read, after an assignment that names nobody, that the others do not hold it."""
    if world.leader is None:
        yield "sharder reads", world._replace(leader=frozenset())
        return
    if world.owner != NOBODY:
        yield "sharder revokes", world._replace(owner=NOBODY, leader=None)
        return
    free = world.leader
    for number in (A, B):
        if number not in free and is_free(processes[world.shards[number - 1]], number):
            yield f"sharder sees {number} without it", world._replace(leader=free | {number})
    for number in (A, B):
        if 3 - number in free:
            yield f"sharder grants {number}", world._replace(owner=number, leader=None)


def mirror(world: World, processes: Processes) -> World:
    """The same with the shards' names exchanged: what holds of the one holds of the other."""
    owner, (a, b), leader = world
    return World(
        SWAPPED.get(owner, owner),
        (processes.mirrored(b), processes.mirrored(a)),
        None if leader is None else frozenset(SWAPPED[number] for number in leader),
    )


def two_owners(*shards: Process) -> bool:
    return all(each.busy or each.late for each in shards) and any(each.busy for each in shards)


def at_rest(*shards: Process) -> bool:
    """Nobody works there, nor may anybody for up to a lease: the shard owes it to a dead process's writes."""
    return any(each.owed and each.part is Part.ENDING for each in shards)


def explore(fault: Fault, *, hands: bool, wrong: Callable[..., bool] = two_owners) -> tuple[int, list[str] | None]:
    """How many states there are, and the shortest way to what is wrong (`None`: there is none)."""
    processes = Processes(fault)
    start = World(NOBODY, (processes.number(Process(A)), processes.number(Process(B))))
    before: dict[World, tuple[World, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        world = queue.popleft()
        if wrong(*processes.of(world)):
            return len(before), way(before, world)
        for what, after in moves(world, processes, hands=hands):
            if after not in before:
                before[after] = before[mirror(after, processes)] = (world, what)
                queue.append(after)
    return len(before), None


def way(before: Mapping[World, tuple[World, str] | None], world: World) -> list[str]:
    steps: list[str] = []
    while (step := before[world]) is not None:
        world = step[0]
        steps.append(step[1])
    return steps[::-1]


def test_no_two_shards_work_on_one_point() -> None:
    """Whatever any sharder does, a hand could have written."""
    states, found = explore(SOUND, hands=True, wrong=lambda *both: two_owners(*both) or at_rest(*both))
    assert found is None
    assert states > 50_000, "so small a world proves little"


@pytest.mark.parametrize("name", FAULTS)
def test_each_planted_fault_gives_two_owners(name: str) -> None:
    assert explore(FAULTS[name], hands=True)[1] is not None


def test_to_heed_at_once_who_is_named_otherwise_leaves_a_point_at_rest() -> None:
    """What a process that goes on with a dead one's lease cannot give away yet it works on."""
    assert explore(Fault(rests=True), hands=True, wrong=at_rest)[1] is not None


def test_without_any_look_the_sharders_care_is_not_enough() -> None:
    """Whom it has named may not have seen it yet, and hold nothing, when it names the next."""
    assert explore(FAULTS["no look"], hands=False)[1] is not None


def test_without_a_look_at_the_leases_the_sharders_care_is_enough() -> None:
    assert explore(FAULTS["no look at the leases"], hands=False)[1] is None


def test_the_order_of_a_looks_two_reads_is_no_matter_of_safety() -> None:
    """It is the sharder whose order matters."""
    assert explore(Fault(reads=("leases", "assignment")), hands=True)[1] is None


def test_the_table_has_every_state_and_event() -> None:
    assert set(TRANSITIONS) == {(part, event) for part in Part for event in Heard}
