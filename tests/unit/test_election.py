"""Leader election in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest

from shardsdk.core.timings import LeaseTimings
from shardsdk.errors import ConfigurationError, Invalid, LeaseLost
from shardsdk.protocol.leases import Lease
from shardsdk.runtime.election import ElectionTimings, LeaderElector
from shardsdk.runtime.events import EventType, Regarding
from shardsdk.runtime.hold import Hold
from shardsdk.testing.leaseserver import Fault, LeaseApi, LeaseStore
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import SkewedClock, VirtualClock, in_virtual_time
from tests.lease_rig import NAMESPACE

NAME = "my-controller"


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, EventType, str, str]] = []

    def event(self, regarding: Regarding, event_type: EventType, reason: str, message: str) -> None:
        assert regarding.uid
        self.events.append((f"{regarding.kind} {regarding.namespace}/{regarding.name}", event_type, reason, message))


class Candidates:
    """Candidates for one Lease, and who led when."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.store = LeaseStore()
        self.log: list[str] = []
        self.leading: list[str] = []

    def make(self, identity: str, **options: Any) -> tuple[LeaderElector, LeaseApi]:
        api = LeaseApi(self.store)
        return self.elector(api, identity, **options), api

    def elector(self, api: LeaseApi, identity: str | None, **options: Any) -> LeaderElector:
        given = {"clock": self.clock, "rng": random.Random(len(self.log)), **options}
        return LeaderElector(api, namespace=NAMESPACE, name=NAME, identity=identity, **given)  # type: ignore[arg-type]

    def lead(self, identity: str, seconds: float = 1e6) -> Callable[[Hold], Awaitable[None]]:
        async def lead(hold: Hold) -> None:
            assert hold.remaining() > 0
            self.log.append(f"{identity} leads")
            self.leading.append(identity)
            assert len(self.leading) == 1, "two leaders"
            try:
                await asyncio.sleep(seconds)
            finally:
                self.leading = [each for each in self.leading if each != identity]
                self.log.append(f"{identity} stops")

        return lead

    @property
    def lease(self) -> Lease:
        lease = self.store.find(NAMESPACE, NAME)
        assert lease is not None
        return lease

    async def until(self, condition: Callable[[], bool]) -> float:
        began = self.clock.monotonic()
        async with asyncio.timeout(300):
            while not condition():
                await asyncio.sleep(0.01)
        return self.clock.monotonic() - began


@asynccontextmanager
async def running(coroutine: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))


@in_virtual_time
async def test_the_first_leads_and_the_next_follows_as_soon_as_it_released(clock: VirtualClock) -> None:
    world = Candidates(clock)
    first, _ = world.make("a")
    second, _ = world.make("b")
    async with running(first.run(world.lead("a"))) as a:
        await world.until(lambda: first.is_leader)
        async with running(second.run(world.lead("b"))):
            await asyncio.sleep(60)
            assert not second.is_leader
            assert first.leader == second.leader == "a"
            a.cancel()
            assert await world.until(lambda: second.is_leader) <= 2.5
            assert world.log == ["a leads", "a stops", "b leads"]
            assert world.lease.spec.lease_transitions == 1


@in_virtual_time
async def test_a_leader_that_died_is_succeeded_after_its_lease_by_the_successors_own_clock(
    clock: VirtualClock,
) -> None:
    world = Candidates(clock)
    first, _ = world.make("a")
    elsewhere = SkewedClock(clock, ahead_seconds=-86_400, boot_seconds=500)
    second, _ = world.make("b", clock=elsewhere)
    process = Process("a")
    process.start(first.run(world.lead("a")))
    await world.until(lambda: first.is_leader)
    async with running(second.run(world.lead("b"))):
        await asyncio.sleep(30)
        process.kill()
        world.leading.clear()
        # It last saw a renewal up to one pause after it was made, and it may have been made one pause before the end.
        assert 12 < await world.until(lambda: second.is_leader) < 17.5


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.UNANSWERED])
@in_virtual_time
async def test_no_fault_keeps_a_leader_past_its_deadline(clock: VirtualClock, fault: Fault) -> None:
    world = Candidates(clock)
    confirmed: list[float] = []
    first, api = world.make("a", on_renewed=lambda sent, answered: confirmed.append(sent))
    second, _ = world.make("b")
    async with running(first.run(world.lead("a"))) as a, running(second.run(world.lead("b"))):
        await world.until(lambda: first.is_leader)
        await asyncio.sleep(30)
        api.fault = fault
        last = confirmed[-1]
        await asyncio.wait((a,))
        assert isinstance(a.exception(), LeaseLost)
        assert clock.monotonic() - last <= 14
        assert world.log == ["a leads", "a stops"]
        await world.until(lambda: second.is_leader)
        assert clock.monotonic() - last >= 15


@in_virtual_time
async def test_a_short_outage_changes_no_leader(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, api = world.make("a")
    async with running(elector.run(world.lead("a"))):
        for fault in (Fault.REFUSED, Fault.LOST, Fault.UNANSWERED):
            await asyncio.sleep(20)
            api.fault = fault
            await asyncio.sleep(6)
            api.fault = Fault.NONE
        await asyncio.sleep(20)
        assert world.log == ["a leads"]


@in_virtual_time
async def test_a_leader_that_overslept_may_not_write_and_stops(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, _ = world.make("a")
    remaining: list[float] = []

    async def lead(hold: Hold) -> None:
        while True:
            remaining.append(hold.remaining())
            await asyncio.sleep(0.1)

    process = Process("a")
    task = process.start(elector.run(lead))
    await asyncio.sleep(30)
    process.pause()
    await asyncio.sleep(20)
    remaining.clear()
    process.resume()
    with pytest.raises(LeaseLost):
        await task
    assert all(left <= 0 for left in remaining)


@in_virtual_time
async def test_a_leader_that_sees_another_stops_at_once(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, _ = world.make("a")
    async with running(elector.run(world.lead("a"))) as task:
        await world.until(lambda: elector.is_leader)
        world.store.patch(NAMESPACE, NAME, {"spec": {"holderIdentity": "b"}})
        await asyncio.sleep(2.5)
        assert isinstance(task.exception(), LeaseLost)
        assert world.lease.holder == "b"


@in_virtual_time
async def test_two_processes_of_one_identity_do_not_lead_for_long(clock: VirtualClock) -> None:
    world = Candidates(clock)
    first, _ = world.make("same")
    second, _ = world.make("same")
    async with running(first.run(lambda hold: asyncio.sleep(1e6))) as a:
        await world.until(lambda: first.is_leader)
        async with running(second.run(lambda hold: asyncio.sleep(1e6))) as b:
            await asyncio.sleep(2.5)
            assert isinstance(a.exception(), LeaseLost)
            assert not b.done()


@in_virtual_time
async def test_a_candidate_that_stops_while_waiting_touches_nothing(clock: VirtualClock) -> None:
    world = Candidates(clock)
    first, _ = world.make("a")
    second, api = world.make("b")
    async with running(first.run(world.lead("a"))):
        await world.until(lambda: first.is_leader)
        async with running(second.run(world.lead("b"))):
            await asyncio.sleep(20)
        assert set(api.requests) == {"get"}
        assert first.is_leader


@in_virtual_time
async def test_a_lead_that_returns_ends_the_term(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, _ = world.make("a")
    await elector.run(world.lead("a", 40))
    assert world.lease.holder == ""
    assert not elector.is_leader
    await elector.run(world.lead("a", 1))
    assert world.log == ["a leads", "a stops"] * 2


@in_virtual_time
async def test_what_a_lead_raises_comes_out_and_the_lease_is_released(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, _ = world.make("a")

    async def lead(hold: Hold) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await elector.run(lead)
    assert world.lease.holder == ""


@in_virtual_time
async def test_what_a_lead_raises_while_it_is_cancelled_does_not_hide_the_loss(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, api = world.make("a")

    async def lead(hold: Hold) -> None:
        api.fault = Fault.REFUSED
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in cleanup")

    with pytest.raises(LeaseLost) as caught:
        await elector.run(lead)
    assert isinstance(caught.value.__cause__, ValueError)


@in_virtual_time
async def test_the_lease_is_kept_while_a_cancelled_lead_finishes(clock: VirtualClock) -> None:
    world = Candidates(clock)
    first, _ = world.make("a")
    second, _ = world.make("b")

    async def lead(hold: Hold) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(25)
            assert hold.remaining() > 0
            assert world.lease.holder == "a"

    async with running(first.run(lead)) as a:
        await world.until(lambda: first.is_leader)
        async with running(second.run(world.lead("b"))):
            a.cancel()
            await asyncio.wait((a,))
            assert a.cancelled()
            await world.until(lambda: second.is_leader)


@in_virtual_time
async def test_a_lead_that_was_left_running_keeps_the_lease_from_being_released(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, _ = world.make("a")
    stuck = asyncio.Event()

    async def lead(hold: Hold) -> None:
        while not stuck.is_set():
            try:
                await stuck.wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(elector.run(lead))
    await world.until(lambda: elector.is_leader)
    task.cancel()
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait((task,))
    assert world.lease.holder == "a"
    stuck.set()
    await asyncio.sleep(0)


@in_virtual_time
async def test_the_lease_is_released_only_when_its_writes_are_settled(clock: VirtualClock) -> None:
    world = Candidates(clock)
    seen: list[str] = []

    async def settled() -> None:
        await asyncio.sleep(8)
        seen.append(world.lease.holder)

    elector, _ = world.make("a", settled=settled)
    await elector.run(world.lead("a", 1))
    assert seen == ["a"]
    assert world.lease.holder == ""


@in_virtual_time
async def test_without_release_the_next_one_waits(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, _ = world.make("a", release_on_stop=False)
    await elector.run(world.lead("a", 5))
    assert world.lease.holder == "a"
    second, _ = world.make("b")
    async with running(second.run(world.lead("b"))):
        assert await world.until(lambda: second.is_leader) >= 15


@in_virtual_time
async def test_a_lead_that_does_not_end_is_reported_when_its_hold_has(clock: VirtualClock) -> None:
    world = Candidates(clock)
    told: list[float] = []
    elector, api = world.make("a", on_deadline=lambda: told.append(clock.monotonic()))
    stuck = asyncio.Event()
    holds: list[Hold] = []

    async def lead(hold: Hold) -> None:
        holds.append(hold)
        api.fault = Fault.LOST
        while not stuck.is_set():
            try:
                await stuck.wait()
            except asyncio.CancelledError:
                continue

    async with running(elector.run(lead)) as task:
        await world.until(lambda: bool(told))
        assert told == [pytest.approx(holds[0].ends_at)]
        assert holds[0].remaining() <= 0
        stuck.set()
        await asyncio.wait((task,))
        assert isinstance(task.exception(), LeaseLost)


@in_virtual_time
async def test_callbacks_and_events_tell_the_story(clock: VirtualClock) -> None:
    world = Candidates(clock)
    recorder = Recorder()
    told: list[str] = []
    first, _ = world.make("a", recorder=recorder)
    second, _ = world.make(
        "b",
        recorder=recorder,
        on_started=lambda: told.append("started"),
        on_stopped=lambda: told.append("stopped"),
        on_new_leader=lambda leader: told.append(f"leader {leader}"),
    )
    async with running(first.run(world.lead("a"))) as a:
        await world.until(lambda: first.is_leader)
        async with running(second.run(world.lead("b"))):
            await asyncio.sleep(10)
            a.cancel()
            await world.until(lambda: second.is_leader)
    assert told == ["leader a", "leader b", "started", "stopped"]
    about = f"Lease {NAMESPACE}/{NAME}"
    assert recorder.events == [
        (about, EventType.NORMAL, "LeaderElection", message)
        for message in ("a became leader", "a stopped leading", "b became leader", "b stopped leading")
    ]


@in_virtual_time
async def test_callbacks_that_fail_cost_no_leadership(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    world = Candidates(clock)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    elector, _ = world.make("a", on_started=fail, on_stopped=fail, on_new_leader=fail, on_renewed=fail)
    await elector.run(world.lead("a", 60))
    assert world.lease.holder == ""
    assert "A callback of the leader election failed" in caplog.text


@in_virtual_time
async def test_each_confirmed_write_is_told_with_its_times(clock: VirtualClock) -> None:
    world = Candidates(clock)
    renewals: list[tuple[float, float]] = []
    elector, api = world.make("a", on_renewed=lambda sent, answered: renewals.append((sent, answered)))
    api.delay = lambda: 0.25
    await elector.run(world.lead("a", 21))
    assert len(renewals) >= 9
    assert all(answered - sent == pytest.approx(0.5) for sent, answered in renewals)
    assert all(2 <= later[0] - sooner[0] <= 2.4 for sooner, later in pairwise(renewals))


@in_virtual_time
async def test_a_lease_that_can_never_be_written_is_an_error(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, api = world.make("a")
    api.error = Invalid("no", status=422)
    with pytest.raises(Invalid):
        await elector.run(world.lead("a"))


@in_virtual_time
async def test_identities_are_unique_and_never_empty(clock: VirtualClock) -> None:
    world = Candidates(clock)
    first = world.elector(LeaseApi(world.store), None, rng=random.Random(1))
    second = world.elector(LeaseApi(world.store), None, rng=random.Random(2))
    assert first.identity != second.identity
    with pytest.raises(ConfigurationError, match="empty"):
        world.elector(LeaseApi(world.store), "")


def test_timings_are_validated_with_a_sentence() -> None:
    assert ElectionTimings() == LeaseTimings(15, 10, 2)
    with pytest.raises(ConfigurationError, match="renew_deadline is 20 s"):
        ElectionTimings(renew_deadline=20)


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_whatever_happens_no_two_may_write_and_somebody_leads_again(clock: VirtualClock, seed: int) -> None:
    """Five candidates, half an hour of faults and pauses."""
    rng = random.Random(seed)
    world = Candidates(clock)
    holds: dict[str, Hold] = {}
    writers: set[str] = set()

    def lead(identity: str) -> Callable[[Hold], Awaitable[None]]:
        async def lead(hold: Hold) -> None:
            holds[identity] = hold
            await asyncio.sleep(rng.uniform(5, 200))

        return lead

    async def candidate(identity: str, api: LeaseApi) -> None:
        while True:
            elector = world.elector(api, identity, rng=rng)
            with suppress(LeaseLost):
                await elector.run(lead(identity))
            await asyncio.sleep(rng.uniform(0, 1))

    def check() -> None:
        open_now = [identity for identity, hold in holds.items() if hold.remaining() > 0]
        assert len(open_now) <= 1, f"{open_now} may write at once"
        writers.update(open_now)

    apis: list[LeaseApi] = []
    processes: list[Process] = []
    for number in range(5):
        api = LeaseApi(world.store, delay=lambda: rng.uniform(0, 0.4))
        process = Process(f"p{number}")
        process.start(candidate(process.name, api))
        apis.append(api)
        processes.append(process)
    for _ in range(4000):
        await asyncio.sleep(0.5)
        check()
        match rng.randrange(40):
            case 0:
                rng.choice(apis).fault = rng.choice(list(Fault))
            case 1 | 2:
                rng.choice(apis).fault = Fault.NONE
            case 3:
                rng.choice(processes).pause()
            case 4 | 5:
                rng.choice(processes).resume()
            case _:
                pass
    for api in apis:
        api.fault = Fault.NONE
    for process in processes:
        process.resume()
    assert len(writers) == 5
    began = clock.monotonic()
    while not any(hold.remaining() > 0 for hold in holds.values()):
        await asyncio.sleep(0.5)
        check()
        assert clock.monotonic() - began < 60
