"""The keeper against a hostile world: late, lost and doubled messages, pauses, crashes, clocks that drift, other hands.

The world holds one Lease, processes that want it (each with a keeper, a clock
of its own and a network that loses things), and a peer sharder that takes the
lease by the rules at the first moment it may.  What is asserted is not what
keepers think, but that no two of them could write at one time.

A world is made from a seed; a failing test names it: `simulate(seed)`.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shardsdk.errors import ApiError, RetryRule
from shardsdk.lease.claim import Claim
from shardsdk.lease.keeper import Keeper
from shardsdk.lease.steps import Left, LossKind, Moment, Phase, Read, Stop, Wait, Write
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import Lease, render_micro_time
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memory import MemoryServer
from tests.lease_rig import lease_in

NAMESPACE, NAME = "default", "shard-a"
TIMINGS = LeaseTimings()
#: How fast a machine's clock goes, at most while it is being set right; the margin must cover the difference.
RATES = (0.9167, 1.0, 1.0833)
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
HOSTILE_SECONDS = 400.0
#: What began while the world was hostile ends: the longest pause, the work after it, a restart.
PAUSES = (0.5, 5.0, 12.0, 14.5, 40.0)
ENDS = (0.0, 1.0, 5.0)
RESTARTS = (0.0, 1.0, 20.0)
SUBSIDING_SECONDS = max(PAUSES) + max(ENDS) + max(RESTARTS)
#: A restart grace, a hold that a sharder left behind, a lease, and a few tries.
RECOVERY_SECONDS = 30 + 30 + 15 + 15
#: A lease is then held by one process without a break.
CALM_SECONDS = 60.0
GRACE_SECONDS = 30


@dataclass(eq=False)
class Request:
    """What a process has under way."""

    action: Read | Write
    lease: Lease | None = None
    error: ApiError | None = None


class Machine:
    """A process: its keeper, its clock, its one request, and whether it takes steps."""

    def __init__(self, number: int, instance: str, rng: random.Random) -> None:
        self.number = number
        self.instance = instance
        self.rate = rng.choice(RATES)
        self.boot = rng.uniform(0, 1e6)
        self.ahead = timedelta(seconds=rng.uniform(-1e5, 1e5))
        self.keeper = Keeper(
            Claim(NAMESPACE, NAME, NAME, int(TIMINGS.lease_duration), instance, "example", fenced=True), TIMINGS
        )
        self.request: Request | None = None
        self.alive = True
        self.paused_until = -math.inf
        #: Its wall clock shows that time until then; leases are timed by another clock.
        self.wall_stands_at = self.wall_stands_until = -math.inf
        self.leaving = False
        self.lost = False
        #: What the fence goes by.
        self.hold_ends_at = -math.inf

    def time(self, now: float) -> float:
        return self.boot + now * self.rate

    def moment(self, now: float, chance: float) -> Moment:
        # The machine's number makes its times unlike any other machine's, to the microsecond.
        seconds = round(self.wall_stands_at if now < self.wall_stands_until else now, 5)
        return Moment(self.time(now), EPOCH + self.ahead + timedelta(seconds=seconds, microseconds=self.number), chance)

    def may_write(self, now: float) -> bool:
        """Whether the fence of this process is open, whether or not the process takes steps."""
        taken = self.keeper.loss is not None and self.keeper.loss.kind is LossKind.TAKEN
        return self.alive and not taken and not self.leaving and self.time(now) < self.hold_ends_at


class World:
    """One lease, everybody who wants it, and what happens to them, in order of time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.server = MemoryServer()
        self.machines: list[Machine] = []
        self.happened: Counter[str] = Counter()
        self.hostile = True
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        # Somebody who deletes leases while two processes of one name run is more than the keeper promises to survive.
        self.slots = self.rng.choice((1, 2))
        self.meddling = self.slots == 1 and self.rng.random() < 0.5
        self.sharder_takes = self.rng.random() < 0.7
        self.loss = self.rng.choice((0.0, 0.02, 0.2))
        self.slowness = self.rng.choice((0.01, 0.3, 3.0))
        #: What the sharder counts from, of the lease as it was last seen; ranges and labels are none of it.
        self.seen: object = None
        self.held_until = -math.inf
        self.sharder_holds = False
        for _ in range(self.slots):
            self.boot(f"uid-{self.next_number()}")
        self.after(self.rng.uniform(5, 20), self.trouble)

    # Time.

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + max(seconds, 0.0), self.next_number(), event))

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
            self.check()
        self.now = end

    def check(self) -> None:
        writers = [machine for machine in self.machines if machine.may_write(self.now)]
        assert len(writers) <= 1, f"{[machine.number for machine in writers]} may write at once"
        assert not (self.sharder_holds and writers), f"{writers[0].number} may write under the sharder's lease"

    # Processes.

    def boot(self, instance: str) -> None:
        machine = Machine(len(self.machines), instance, self.rng)
        self.machines = [each for each in self.machines if each.alive] + [machine]
        self.after(0, lambda: self.step(machine))

    def end(self, machine: Machine, *, same_pod: bool) -> None:
        if not machine.alive:
            return
        machine.alive = False
        instance = machine.instance if same_pod else f"uid-{self.next_number()}"
        self.after(self.rng.choice(RESTARTS), lambda: self.boot(instance))

    def on(self, machine: Machine, event: Callable[[], None]) -> None:
        """`event` reaches the process: now, when it is resumed, or never."""
        if machine.alive and self.now < machine.paused_until:
            self.after(machine.paused_until - self.now, lambda: self.on(machine, event))
        elif machine.alive:
            event()

    def step(self, machine: Machine) -> None:
        self.on(machine, lambda: self._step(machine))

    def _step(self, machine: Machine) -> None:
        if machine.request is not None:
            return
        match machine.keeper.next(machine.moment(self.now, self.rng.random())):
            case Wait(seconds):
                self.after(seconds / machine.rate, lambda: self.step(machine))
            case Read() | Write() as action:
                self.send(machine, action)
            case Stop(loss):
                self.happened[f"lost: {loss.kind.name}"] += 1
                self.after(self.rng.choice(ENDS), lambda: self.leave(machine))
            case Left(clean):
                self.happened["left" if clean else "left behind"] += 1
                self.end(machine, same_pod=self.rng.random() < 0.3)
        if machine.keeper.phase is Phase.HOLDING:
            assert not machine.lost, "lost is final"
            assert machine.may_write(self.now), "a keeper that holds has stepped down before its fence closes"

    def watch(self, machine: Machine) -> None:
        """Notice the deadline although a request is under way."""
        machine.keeper.check(machine.moment(self.now, 0.0))
        machine.lost = machine.lost or machine.keeper.phase is Phase.LOST

    def leave(self, machine: Machine, grace_seconds: int = 0) -> None:
        """The work has ended; what is under way is abandoned."""

        def now() -> None:
            if not machine.leaving:
                machine.leaving = True
                machine.request = None
                machine.keeper.leave(machine.moment(self.now, 0.0), grace_seconds=grace_seconds)
                self.step(machine)

        self.on(machine, now)

    # The network and the API server.

    def send(self, machine: Machine, action: Read | Write) -> None:
        request = machine.request = Request(action)
        if self.hostile and self.rng.random() < 0.02:
            self.after(self.delay(), lambda: self.on(machine, lambda: self.turn_away(machine, request)))
        elif not self.loses():
            self.after(self.delay(), lambda: self.execute(machine, request))
        limit = action.timeout_seconds / machine.rate
        self.after(limit, lambda: self.on(machine, lambda: self.give_up(machine, request)))

    def loses(self) -> bool:
        return self.hostile and self.rng.random() < self.loss

    def delay(self) -> float:
        """Mostly short; sometimes so long that the sender has given up, or died, or been succeeded."""
        if not self.hostile:
            return 0.01
        return self.rng.choice((0.0, self.rng.uniform(0, self.slowness), self.rng.uniform(0, 4 * self.slowness)))

    def execute(self, machine: Machine, request: Request) -> None:
        match request.action:
            case Read():
                request.lease = lease_in(self.server, NAME, NAMESPACE)
            case Write(body, create):
                try:
                    made = self.server.create(LEASES, body) if create else self.patch(body)
                    request.lease = msgspec.convert(made, Lease)
                except ApiError as error:
                    request.error = error
        self.sharder_looks()
        self.check()
        if not self.loses():
            self.after(self.delay(), lambda: self.on(machine, lambda: self.answer(machine, request)))

    def answer(self, machine: Machine, request: Request) -> None:
        if machine.request is not request:
            return
        machine.request = None
        keeper, at = machine.keeper, machine.moment(self.now, self.rng.random())
        if request.error is not None:
            if request.error.retry is RetryRule.REFRESH or not (
                isinstance(request.action, Write) and request.action.create
            ):
                keeper.refused(at, str(request.error))
            else:
                keeper.failed(at, str(request.error))
        elif isinstance(request.action, Read):
            keeper.saw(request.lease, at)
        else:
            assert request.lease is not None
            keeper.wrote(request.lease, at)
        if keeper.deadlines is not None:
            machine.hold_ends_at = keeper.deadlines.hold_ends_at
            self.after(
                (keeper.deadlines.step_down_at - at.monotonic) / machine.rate,
                lambda: self.on(machine, lambda: self.watch(machine)),
            )
        self.happened[keeper.phase.name] += 1
        self.step(machine)

    def give_up(self, machine: Machine, request: Request) -> None:
        if machine.request is request:
            machine.request = None
            machine.keeper.failed(machine.moment(self.now, self.rng.random()), "timed out")
            self.step(machine)

    def turn_away(self, machine: Machine, request: Request) -> None:
        """A load balancer answers in place of the API server, and asks for patience."""
        if machine.request is request:
            machine.request = None
            asked = self.rng.choice((1.0, 60.0, 3600.0, math.inf))
            self.happened["busy"] += 1
            at = machine.moment(self.now, self.rng.random())
            machine.keeper.failed(at, "no backend", retry_after_seconds=asked)
            self.step(machine)

    # The sharder.

    def sharder_looks(self) -> None:
        """What it says anew makes the sharder wait anew; a lease that is gone counts until it would have run out."""
        lease = lease_in(self.server, NAME, NAMESPACE)
        if lease is None or self.seen == (seen := (lease.spec, lease.instance, lease.fenced, lease.metadata.uid)):
            return
        self.seen = seen
        self.sharder_holds = lease.holder == SHARDER_HOLDER
        if lease.held_by_shard:
            self.held_until = max(self.held_until, self.now + lease.duration_seconds)
        elif not lease.holder and lease.spec.lease_duration_seconds == 1:
            self.held_until = -math.inf
        if self.sharder_takes and self.hostile:
            self.after(max(self.held_until - self.now, 0.0), self.sharder_takes_if_it_may)

    def sharder_takes_if_it_may(self) -> None:
        lease = lease_in(self.server, NAME, NAMESPACE)
        if lease is None or self.sharder_holds or self.now < self.held_until or not self.hostile:
            return
        # A released lease is mostly left to the next process: else nobody else would ever have it.
        if not lease.holder and self.rng.random() < 0.8:
            return
        self.happened["taken by the sharder"] += 1
        self.write({"spec": {"holderIdentity": SHARDER_HOLDER, "leaseDurationSeconds": 30, "renewTime": self.wall()}})
        if self.rng.random() < 0.8:
            self.after(self.rng.uniform(0, 25), self.sharder_gives_back)

    def sharder_gives_back(self) -> None:
        if self.sharder_holds:
            self.write({"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})

    # Everything else that happens.

    def trouble(self) -> None:
        """Something happens to somebody, again and again."""
        if not self.hostile:
            return
        if alive := [machine for machine in self.machines if machine.alive]:
            machine = self.rng.choice(alive)
            match self.rng.choice(("pause", "pause", "crash", "stop", "label", "meddle", "wall")):
                case "pause":
                    machine.paused_until = self.now + self.rng.choice(PAUSES)
                case "crash":
                    self.end(machine, same_pod=self.rng.random() < 0.5)
                case "stop":
                    self.on(machine, lambda: machine.keeper.tell_leaving(machine.moment(self.now, 0.0)))
                    self.step(machine)
                    grace_seconds, ends_in = self.rng.choice((0, 0, GRACE_SECONDS)), self.rng.choice(ENDS)
                    self.after(ends_in, lambda: self.leave(machine, grace_seconds))
                case "wall":
                    machine.wall_stands_at = self.now
                    machine.wall_stands_until = self.now + self.rng.choice((1.0, 5.0, 20.0))
                case "label":
                    self.write({"metadata": {"labels": {"alpha.sharding.timebertt.dev/state": "ready"}}})
                case _:
                    self.meddle()
        self.after(self.rng.uniform(0, 15), self.trouble)

    def meddle(self) -> None:
        if not self.meddling or self.sharder_holds or lease_in(self.server, NAME, NAMESPACE) is None:
            return
        self.happened["meddled"] += 1
        match self.rng.choice(("delete", "empty", "unlabel", "another", "anonymous")):
            case "delete":
                self.server.delete(LEASES, NAME, NAMESPACE)
            case "empty":
                self.write({"spec": {"holderIdentity": "", "leaseDurationSeconds": 15}})
            case "unlabel":
                self.write({"metadata": {"labels": None}})
            case "another":
                self.write({"spec": {"holderIdentity": "somebody", "renewTime": self.wall()}})
            case _:
                self.write({"metadata": {"annotations": None}})

    def write(self, body: dict[str, Any]) -> None:
        if lease_in(self.server, NAME, NAMESPACE) is not None:
            self.patch(body)
            self.sharder_looks()

    def patch(self, body: Any) -> dict[str, Any]:
        return self.server.patch(LEASES, NAME, NAMESPACE, body)

    def wall(self) -> str:
        return render_micro_time(EPOCH + timedelta(seconds=self.now))

    def holders(self) -> list[Machine]:
        return [machine for machine in self.machines if machine.alive and machine.keeper.phase is Phase.HOLDING]


def simulate(seed: int) -> Counter[str]:
    """A hostile world, then a calm one; what happened in it."""
    world = World(seed)
    world.run(HOSTILE_SECONDS)
    world.hostile = False
    world.run(SUBSIDING_SECONDS + RECOVERY_SECONDS)
    before = world.holders()
    assert len(before) == 1, "once everything works again, somebody soon holds the lease"
    world.run(CALM_SECONDS)
    assert world.holders() == before, "nobody loses a lease while everything works"
    return world.happened


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_no_two_may_write_and_somebody_holds_the_lease_again(seed: int) -> None:
    simulate(seed)


def test_the_world_is_as_hostile_as_it_claims() -> None:
    """Else the test above proves nothing."""
    happened: Counter[str] = Counter()
    for seed in range(30):
        happened += simulate(seed)
    for what in ("lost: DEADLINE", "lost: TAKEN", "left", "left behind", "taken by the sharder", "meddled", "busy"):
        assert happened[what] >= 3, what
    assert happened["HOLDING"] > 1000
