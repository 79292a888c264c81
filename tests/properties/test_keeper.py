"""The keeper against a hostile world: late, lost and doubled messages, pauses, crashes, clocks that drift, other hands.

The world holds one Lease, processes that want it (each with a keeper, a clock
of its own and a network that loses things), and a peer sharder that takes the
lease by the rules as soon as it may.  What is asserted is not what keepers
think, but that no two of them could write at one time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardsdk.core.claim import Claim, duration_seconds
from shardsdk.core.keeper import Keeper
from shardsdk.core.steps import Left, LossKind, Moment, Phase, Read, Stop, Wait, Write
from shardsdk.core.timings import LeaseTimings
from shardsdk.errors import ApiError, Retry
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import Lease, render_micro_time
from shardsdk.testing.leaseserver import LeaseStore

NAMESPACE, NAME = "default", "shard-a"
TIMINGS = LeaseTimings()
#: How fast a machine's clock goes; the margin must cover the difference.
RATES = (0.999, 1.0, 1.001)
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
SECONDS = st.floats(min_value=0.01, max_value=6, allow_nan=False)
DELAY = st.sampled_from([0.0, 0.0, 0.0, 0.01, 2.0, 4.0])


@dataclass
class Request:
    """What a process has under way."""

    action: Read | Write
    executed: bool = False
    answer: Lease | None = None
    error: ApiError | None = None


@dataclass(eq=False)
class Machine:
    """A process: its keeper, its clock, its one request."""

    number: int
    instance: str
    rate: float
    boot: float
    keeper: Keeper = field(init=False)
    request: Request | None = None
    alive: bool = True
    #: The deadline that this process's fence goes by, once it has one.
    hold_ends_at: float = -math.inf

    def __post_init__(self) -> None:
        self.keeper = Keeper(
            Claim(NAMESPACE, NAME, NAME, int(TIMINGS.lease_duration), self.instance, "example", fenced=True), TIMINGS
        )

    def time(self, now: float) -> float:
        return self.boot + now * self.rate

    def moment(self, now: float, chance: float = 0.0) -> Moment:
        # Wall clocks differ by hours; the machine's number makes them unique to the microsecond.
        wall = EPOCH + timedelta(hours=self.number, seconds=now, microseconds=self.number)
        return Moment(self.time(now), wall, chance)

    def may_write(self, now: float) -> bool:
        """Whether the fence of this process is open, whether or not the process takes steps."""
        taken = self.keeper.loss is not None and self.keeper.loss.kind is LossKind.TAKEN
        gone = self.keeper.phase in (Phase.LEAVING, Phase.LEFT)
        return self.alive and not taken and not gone and self.time(now) < self.hold_ends_at


class World(RuleBasedStateMachine):
    """One lease, and everybody who wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = LeaseStore()
        self.machines: list[Machine] = []
        self.in_transit: list[Request] = []
        self.solo = True
        #: The sharder's view: the version it saw, when, and for how long that counts.
        self.seen_version = ""
        self.held_until = -math.inf
        self.sharder_holds = False

    @initialize(solo=st.booleans(), rate=st.sampled_from(RATES))
    def begin(self, solo: bool, rate: float) -> None:
        # Somebody who deletes leases while two processes of one name run is more than the keeper promises to survive.
        self.solo = solo
        self._boot("x", rate)
        if not solo:
            self._boot("y", 1.0)

    def _boot(self, instance: str, rate: float) -> Machine:
        machine = Machine(len(self.machines), instance, rate, boot=1000.0 * (len(self.machines) + 1))
        self.machines.append(machine)
        return machine

    # Processes.

    def _step(self, machine: Machine, chance: float) -> None:
        """Ask the keeper what to do, and send it if it is a request."""
        if machine.request is not None:
            return
        match machine.keeper.next(machine.moment(self.now, chance)):
            case Read() | Write() as action:
                machine.request = Request(action)
                self.in_transit.append(machine.request)
            case Wait() | Stop() | Left():
                pass

    def _execute(self, request: Request) -> None:
        """What the API server does with a request, whenever it gets there."""
        request.executed = True
        match request.action:
            case Read():
                request.answer = self.store.find(NAMESPACE, NAME)
            case Write(body, create):
                try:
                    made = self.store.create(body) if create else self.store.patch(NAMESPACE, NAME, body)
                    request.answer = msgspec.convert(made, Lease)
                except ApiError as error:
                    request.error = error
        self._sharder_looks()

    def _answer(self, machine: Machine) -> None:
        request = machine.request
        assert request is not None
        machine.request = None
        at = machine.moment(self.now)
        if request.error is not None:
            if request.error.retry is Retry.REFRESH or not (
                isinstance(request.action, Write) and request.action.create
            ):
                machine.keeper.refused(at, str(request.error))
            else:
                machine.keeper.failed(at, str(request.error))
        elif isinstance(request.action, Read):
            machine.keeper.saw(request.answer, at)
        else:
            assert request.answer is not None
            machine.keeper.wrote(request.answer, at)
        if machine.keeper.deadlines is not None:
            machine.hold_ends_at = machine.keeper.deadlines.hold_ends_at

    @rule(data=st.data(), chance=st.floats(0, 0.99), there=DELAY, back=DELAY, rounds=st.integers(1, 4))
    def works(self, data: st.DataObject, chance: float, there: float, back: float, rounds: int) -> None:
        """A process does a few steps; its network loses nothing, but may be slow."""
        machine = data.draw(st.sampled_from(self.machines))
        assume(machine.alive)
        for _ in range(rounds):
            self._step(machine, chance)
            if machine.request is not None:
                self.now += there
                if not machine.request.executed:
                    self._execute(machine.request)
                self.now += back
                self._answer(machine)

    @rule(data=st.data(), chance=st.floats(0, 0.99))
    def sends(self, data: st.DataObject, chance: float) -> None:
        machine = data.draw(st.sampled_from(self.machines))
        assume(machine.alive)
        self._step(machine, chance)

    @precondition(lambda self: any(not request.executed for request in self.in_transit))
    @rule(data=st.data())
    def executes(self, data: st.DataObject) -> None:
        """A request arrives: also one whose sender has given it up, or died."""
        self._execute(data.draw(st.sampled_from([request for request in self.in_transit if not request.executed])))

    @rule(data=st.data())
    def answers(self, data: st.DataObject) -> None:
        """An answer arrives, however late."""
        machine = data.draw(st.sampled_from(self.machines))
        assume(machine.alive and machine.request is not None and machine.request.executed)
        self._answer(machine)

    @rule(data=st.data())
    def gives_up_waiting(self, data: st.DataObject) -> None:
        """A timeout: the request may or may not have been executed, or still be."""
        machine = data.draw(st.sampled_from(self.machines))
        assume(machine.alive and machine.request is not None)
        machine.request = None
        machine.keeper.failed(machine.moment(self.now), "timed out")

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._sharder_looks()

    @rule(data=st.data(), grace=st.sampled_from([0, 0, 30]))
    def leaves(self, data: st.DataObject, grace: int) -> None:
        """The work has ended."""
        machine = data.draw(st.sampled_from(self.machines))
        assume(machine.alive)
        machine.request = None
        machine.keeper.leave(machine.moment(self.now), grace_seconds=grace)

    @rule(data=st.data(), same_pod=st.booleans(), rate=st.sampled_from(RATES))
    def restarts(self, data: st.DataObject, same_pod: bool, rate: float) -> None:
        """A process dies; another of its name begins."""
        machine = data.draw(st.sampled_from(self.machines))
        assume(machine.alive and len(self.machines) < 8)
        machine.alive = False
        self._boot(machine.instance if same_pod else f"i{len(self.machines)}", rate)

    # Everybody else.

    def _sharder_looks(self) -> None:
        """Whatever changes makes the sharder wait anew; a lease that is gone counts until it would have run out."""
        lease = self.store.find(NAMESPACE, NAME)
        if lease is None or lease.metadata.resource_version == self.seen_version:
            return
        self.seen_version = lease.metadata.resource_version
        self.sharder_holds = lease.holder == SHARDER_HOLDER
        if lease.held_by_shard:
            self.held_until = max(self.held_until, self.now + duration_seconds(lease))
        elif not lease.holder and lease.spec.lease_duration_seconds == 1:
            self.held_until = -math.inf

    @rule(wait=st.booleans())
    def sharder_takes_what_it_may(self, wait: bool) -> None:
        """With `wait`, time passes up to the very moment at which it may; nobody else takes a step meanwhile."""
        lease = self.store.find(NAMESPACE, NAME)
        assume(lease is not None and not self.sharder_holds and (wait or self.now >= self.held_until))
        assert lease is not None
        self.now = max(self.now, self.held_until)
        spec = {"holderIdentity": SHARDER_HOLDER, "leaseDurationSeconds": 30, "renewTime": self._wall()}
        self.store.patch(
            NAMESPACE, NAME, {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        )
        self._sharder_looks()

    @precondition(lambda self: self.sharder_holds)
    @rule()
    def sharder_gives_back(self) -> None:
        self._spec({"holderIdentity": "", "leaseDurationSeconds": 1})

    @rule()
    def sharder_labels_the_state(self) -> None:
        assume(self.store.find(NAMESPACE, NAME) is not None)
        self.store.patch(NAMESPACE, NAME, {"metadata": {"labels": {"alpha.sharding.timebertt.dev/state": "ready"}}})
        self._sharder_looks()

    @precondition(lambda self: self.solo and not self.sharder_holds)
    @rule(how=st.sampled_from(["delete", "empty", "unlabel", "another", "anonymous"]))
    def somebody_meddles(self, how: str) -> None:
        assume(self.store.find(NAMESPACE, NAME) is not None)
        match how:
            case "delete":
                self.store.delete(NAMESPACE, NAME)
            case "empty":
                self._spec({"holderIdentity": "", "leaseDurationSeconds": 15})
            case "unlabel":
                self.store.patch(NAMESPACE, NAME, {"metadata": {"labels": None}})
            case "another":
                self._spec({"holderIdentity": "somebody", "renewTime": self._wall()})
            case _:
                self.store.patch(NAMESPACE, NAME, {"metadata": {"annotations": None}})
        self._sharder_looks()

    def _spec(self, spec: dict[str, object]) -> None:
        self.store.patch(NAMESPACE, NAME, {"spec": spec})
        self._sharder_looks()

    def _wall(self) -> str:
        return render_micro_time(EPOCH + timedelta(seconds=self.now))

    # What must hold.

    @invariant()
    def no_two_processes_may_write(self) -> None:
        writers = [machine for machine in self.machines if machine.may_write(self.now)]
        assert len(writers) <= 1, f"{[machine.number for machine in writers]} may write at once"

    @invariant()
    def nobody_may_write_while_the_sharder_holds_the_lease(self) -> None:
        writers = [machine.number for machine in self.machines if machine.may_write(self.now)]
        assert not (self.sharder_holds and writers), f"{writers} may write under the sharder's lease"

    @invariant()
    def who_works_could_write(self) -> None:
        """A keeper that says HOLDING has stepped down before its fence closes, as soon as it is asked."""
        for machine in self.machines:
            machine.keeper.check(machine.moment(self.now))
            if machine.alive and machine.keeper.phase is Phase.HOLDING:
                assert machine.may_write(self.now)

    def teardown(self) -> None:
        """Once everything works again and nobody meddles, somebody soon holds the lease, and goes on holding it."""
        if not self.machines:
            return
        if self.sharder_holds:
            self.sharder_gives_back()
        for machine in self.machines:
            machine.alive = machine.alive and machine.keeper.phase in (Phase.SEEKING, Phase.HOLDING)
        if not any(machine.alive for machine in self.machines):
            self._boot("fresh", 1.0)
        # A grace, then the longest lease, then a few tries.
        self._run_all(30 + 30 + 5 * TIMINGS.retry_period)
        holders = [machine for machine in self.machines if machine.alive and machine.keeper.phase is Phase.HOLDING]
        assert len(holders) == 1
        self._run_all(60)
        assert holders[0].keeper.phase is Phase.HOLDING

    def _run_all(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.25
            for machine in self.machines:
                if machine.alive:
                    machine.request = None if machine.request and machine.request.executed else machine.request
                    self._step(machine, 0.5)
                    if machine.request is not None:
                        self._execute(machine.request)
                        self._answer(machine)
            self.no_two_processes_may_write()


WorldTest = World.TestCase
WorldTest.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
WorldTest = pytest.mark.timeout(300)(WorldTest)
