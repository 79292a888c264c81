"""Leader election in virtual time."""

from __future__ import annotations

import asyncio
import random
import re
import socket

import pytest

from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.events.recorder import EventType
from shardsdk.lease.hold import Hold
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.processes import Process
from shardsdk.testing.virtual import SkewedClock, VirtualClock, in_virtual_time
from tests.election_rig import NAME, Candidates, Recorder, running
from tests.lease_rig import NAMESPACE


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
        world.server.patch(LEASES, NAME, NAMESPACE, {"spec": {"holderIdentity": "b"}})
        await asyncio.sleep(2.5)
        assert isinstance(task.exception(), LeaseLost)
        assert world.lease.holder == "b"


@in_virtual_time
async def test_of_two_processes_of_one_identity_the_second_waits_for_the_first_as_for_any_other(
    clock: VirtualClock,
) -> None:
    world = Candidates(clock)
    first, _ = world.make("same")
    second, api = world.make("same")
    process = Process("first")
    process.start(first.run(world.lead("first")))
    await world.until(lambda: first.is_leader)
    async with running(second.run(world.lead("second"))):
        await asyncio.sleep(60)
        assert set(api.requests) == {"get"}
        process.kill()
        world.leading.clear()
        assert 12 < await world.until(lambda: second.is_leader) < 17.5


@in_virtual_time
async def test_who_could_not_release_its_lease_leads_again_at_once_when_it_can_write(clock: VirtualClock) -> None:
    world = Candidates(clock)
    elector, api = world.make("a")
    async with running(elector.run(world.lead("a"))) as task:
        await world.until(lambda: elector.is_leader)
        api.fault = Fault.REFUSED
        await asyncio.sleep(60)
        assert isinstance(task.exception(), LeaseLost)
    assert world.lease.holder == "a"
    async with running(elector.run(world.lead("a"))):
        await asyncio.sleep(5)
        api.fault = Fault.NONE
        assert await world.until(lambda: elector.is_leader) <= 2.5


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
async def test_a_keeper_that_ends_by_itself_ends_the_leadership(clock: VirtualClock) -> None:
    candidates = Candidates(clock)
    elector, _ = candidates.make("a")

    async def lead(hold: Hold) -> None:
        next(task for task in asyncio.all_tasks() if task.get_name() == "election-my-controller").cancel()
        await asyncio.sleep(60)

    with pytest.raises(LeaseLost, match="the keeper of lease my-controller has ended"):
        await elector.run(lead)
    assert clock.monotonic() < 5
    assert candidates.lease.holder == "a", "it runs out"


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
async def test_identities_are_unique_and_never_empty(clock: VirtualClock) -> None:
    world = Candidates(clock)
    first = world.elector(MemoryApi(world.server, world.clock), None, rng=random.Random(1))
    second = world.elector(MemoryApi(world.server, world.clock), None, rng=random.Random(2))
    assert first.identity != second.identity
    for each in (first, second):
        assert re.fullmatch(
            rf"{re.escape(socket.gethostname())}_[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}", each.identity
        )
    with pytest.raises(ConfigurationError, match="empty"):
        world.elector(MemoryApi(world.server, world.clock), "")


def test_timings_are_validated_with_a_sentence() -> None:
    assert LeaseTimings() == LeaseTimings(15, 10, 2)
    with pytest.raises(ConfigurationError, match="renew_deadline is 20 s"):
        LeaseTimings(renew_deadline=20)
