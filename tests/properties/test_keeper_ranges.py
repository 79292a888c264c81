"""The ranges that a lease says are held, in the hostile world of test_keeper: what was confirmed is there.

Whoever may work on ranges does so because a write was confirmed that holds them; nobody else
may believe that they are free while this process may write.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from shardsdk.lease.steps import Phase
from shardsdk.protocol.ranges import NOWHERE, SPACE, HashRanges
from tests.lease_rig import lease_in
from tests.properties.test_keeper import HOSTILE_SECONDS, NAME, NAMESPACE, Machine, World

CELLS = 8
WIDTH = SPACE // CELLS


class Worked:
    """What a process works on: what was confirmed, less what it was told to give up since."""

    def __init__(self) -> None:
        self.asked: dict[int, HashRanges] = {0: NOWHERE}
        self.confirmed = 0

    def ranges(self, machine: Machine) -> HashRanges:
        """What every write since the confirmed one holds, that one included."""
        held = self.asked[machine.keeper.held.confirmed]
        for number, ranges in self.asked.items():
            if number > machine.keeper.held.confirmed:
                held = held & ranges
        return held


def play(seed: int) -> Counter[str]:
    """A hostile world in which processes change what they hold; what happened in it."""
    world = World(seed)
    world.meddling = False
    worked: dict[int, Worked] = {}

    def change() -> None:
        for machine in world.machines:
            if machine.alive and machine.keeper.phase is Phase.HOLDING and world.now >= machine.paused_until:
                mine = worked.setdefault(id(machine), Worked())
                number = machine.keeper.held.number + 1
                cells = [cell for cell in range(CELLS) if world.rng.random() < 0.4]
                ranges = HashRanges.of(*((cell * WIDTH, (cell + 1) * WIDTH) for cell in cells))
                mine.asked[number] = ranges
                machine.keeper.hold_ranges(ranges, number)
                world.step(machine)
                world.happened["changed"] += 1
        check()
        world.after(world.rng.uniform(0, 3), change)

    def check() -> None:
        lease = lease_in(world.server, NAME, NAMESPACE)
        for machine in world.machines:
            if id(machine) in worked and machine.may_write(world.now):
                working = worked[id(machine)].ranges(machine)
                said = NOWHERE if lease is None else lease.held_ranges or NOWHERE
                assert not working - said, f"{machine.number} works on {working}, and its lease says {said}"
                world.happened["worked"] += bool(working)

    world.after(0, change)
    world.run(HOSTILE_SECONDS)
    return world.happened


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_the_lease_says_what_is_worked_on(seed: int) -> None:
    play(seed)


def test_the_world_is_busy_enough() -> None:
    happened = sum((play(seed) for seed in range(5)), Counter[str]())
    assert happened["worked"] > 100
    assert happened["lost: DEADLINE"] + happened["lost: TAKEN"] > 0
