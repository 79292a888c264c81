"""A leader's thread ends the process when its time is over, whatever its event loop does."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.events.recorder import EVENTS
from shardsdk.kube.clock import SystemClock
from shardsdk.lease.hold import Hold
from shardsdk.lease.leadership import Candidate, Election
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.kube_configs import in_cluster, load, service_account
from tests.simulation.machines import MachineClock

WAIT_SECONDS = 60.0


async def test_a_leader_that_blocks_its_event_loop_past_its_deadline_ends_with_its_process() -> None:
    clock, died = SystemClock(), threading.Event()
    api = MemoryApi(MemoryServer(), clock)
    election = Election("blocked", "default", timings=LeaseTimings(1, 0.5, 0.1))
    candidate = Candidate(election, None, clock=clock, rng=Random(1), threaded=True, die=died.set)

    async def block(hold: Hold) -> None:
        assert died.wait(WAIT_SECONDS), "nobody noticed"  # the loop takes no turn meanwhile
        assert hold.ends_at <= clock.monotonic()

    with pytest.raises(LeaseLost):
        await candidate.run(api, block)


async def test_a_leader_that_ends_in_time_is_left_alone() -> None:
    clock, died = SystemClock(), threading.Event()
    api = MemoryApi(MemoryServer(), clock)
    candidate = Candidate(Election("quick", "default"), None, clock=clock, rng=Random(1), threaded=True, die=died.set)

    async def lead(hold: Hold) -> None:
        await asyncio.sleep(0)

    await candidate.run(api, lead)
    for thread in threading.enumerate():
        if thread.name == "hold-watch":
            thread.join(WAIT_SECONDS)
    assert not died.is_set()


@in_virtual_time
async def test_an_election_tells_what_becomes_of_it(clock: VirtualClock) -> None:
    server, told = MemoryServer(), list[Any]()
    election = Election(
        "told",
        "default",
        identity="me",
        on_started=lambda: told.append("started"),
        on_stopped=lambda: told.append("stopped"),
        on_new_leader=told.append,
    )
    candidate = Candidate(election, None, clock=clock, rng=Random(1), threaded=False, die=lambda: None)
    settled: list[str] = []

    async def settle() -> None:
        settled.append(server.get(LEASES, "told", "default")["spec"]["holderIdentity"])

    async def lead(hold: Hold) -> None:
        candidate.settle_first(settle)
        await clock.sleep(5)

    await candidate.run(MemoryApi(server, clock), lead)
    assert told == ["me", "started", "stopped"]
    assert settled == ["me"], "before the release"
    assert server.get(LEASES, "told", "default")["spec"].get("holderIdentity") in (None, "")
    messages = sorted(event["message"] for event in server.select(EVENTS))
    assert messages == ["me became leader", "me stopped leading"]


@in_virtual_time
async def test_once_its_lease_is_lost_and_its_work_has_ended_a_candidate_waits_for_no_server(
    clock: VirtualClock,
) -> None:
    api = MemoryApi(MemoryServer(), clock)
    candidate = Candidate(
        Election("lost", "default"), None, clock=clock, rng=Random(1), threaded=False, die=lambda: None
    )
    ended_at: list[float] = []

    async def lead(hold: Hold) -> None:
        api.fault = Fault.LOST
        try:
            await clock.sleep(60)
        finally:
            ended_at.append(clock.monotonic())

    with pytest.raises(LeaseLost):
        await candidate.run(api, lead)
    assert ended_at == [clock.monotonic()]
    assert candidate.lost is not None


@in_virtual_time
async def test_a_lead_that_ends_while_its_hold_is_in_doubt_has_lost_nothing(clock: VirtualClock) -> None:
    machine = MachineClock(clock)
    candidate = Candidate(
        Election("kept", "default"), None, clock=machine, rng=Random(1), threaded=False, die=lambda: None
    )

    async def lead(hold: Hold) -> None:
        machine.lapses.note(60)
        assert hold.doubted

    await candidate.run(MemoryApi(MemoryServer(), machine), lead)
    assert candidate.lost is None


async def test_the_namespace_is_that_of_the_pods_service_account_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = await load(tmp_path, environ=in_cluster(service_account(tmp_path / "account")))

    def namespace(election: Election, source: object = access) -> str:
        return Candidate(
            election, source, clock=SystemClock(), rng=Random(1), threaded=False, die=lambda: None
        ).namespace

    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    assert namespace(Election("mine")) == "pods-namespace"
    with pytest.raises(ConfigurationError, match="POD_NAMESPACE"):
        namespace(Election("mine"), None)
    monkeypatch.setenv("POD_NAMESPACE", "team")
    assert namespace(Election("mine")) == "team"
    assert namespace(Election("mine", "given")) == "given"
