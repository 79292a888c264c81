"""A machine whose clocks were stopped is told from API servers whose clocks differ, and no mistake costs a lease."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import warnings
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardsdk.errors import FenceClosed
from shardsdk.kube.lapses import (
    DRIFT,
    MACHINE,
    MEMORY_SECONDS,
    NOTICED_SECONDS,
    STEADY_SECONDS,
    STRANGERS_SECONDS,
    Lapses,
    Missed,
    ServerClock,
    lapses_of,
    parse_date,
)
from shardsdk.lease.hold import Hold
from shardsdk.lease.shardlease import ShardLease
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.kube_fakes import CONFIGMAPS, ManualClock
from tests.kube_server import config_map, says, talking
from tests.lease_rig import Rig, lose
from tests.unit.shardsdk.kube.stopped import Machine, behind_a_proxy

rates = st.sampled_from([0.9167, 1.0, 1.0833])
pauses = st.lists(st.floats(0, 10), min_size=1, max_size=30)
ways = st.floats(0, 0.05)


@given(st.floats(0, 1), rates, pauses, ways, st.floats(0.01, 3600))
@settings(max_examples=200, deadline=None)
def test_a_stop_is_noticed_at_the_first_answer_after_it(
    phase: float, rate: float, gaps: Sequence[float], way: float, more: float
) -> None:
    machine = Machine(rate=rate)
    machine.true += phase
    for gap in gaps:
        machine.ask("connection", way=way)
        machine.true += gap
    assert machine.found == []
    seconds = NOTICED_SECONDS + DRIFT * gaps[-1] + 0.2 * gaps[-1] + 4 * way + more
    machine.stop(seconds)
    missed = machine.ask("connection", way=way)
    assert missed == pytest.approx(seconds, abs=2 * (1 + way) + 0.3 * gaps[-1])
    for number in range(3):
        machine.true += 1
        assert machine.ask(f"other-{number % 2}", way=way) == 0, "once is enough, for every connection"


@given(
    st.floats(0, 1), rates, st.lists(st.tuples(st.floats(0, MEMORY_SECONDS), st.integers(0, 3), ways), max_size=20),
    st.floats(0, MEMORY_SECONDS), ways, st.floats(0, 60),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_no_more_was_missed_than_is_said_however_long_nothing_came_over_the_connection(
    phase: float, rate: float, before: list[tuple[float, int, float]], idle: float, way: float, seconds: float
) -> None:
    machine = Machine(rate=rate)
    machine.true += phase
    for gap, connection, delay in before:
        machine.true += gap
        machine.ask(connection, way=delay)
    machine.ask("idle", way=way)
    machine.true += idle
    machine.stop(seconds)
    machine.ask("idle", way=way)
    if machine.found:
        assert machine.lapses.seconds >= seconds


@given(rates, st.lists(st.tuples(st.floats(0, 40), st.integers(0, 3), ways), max_size=60))
@settings(max_examples=200, deadline=None)
def test_clocks_that_are_set_right_are_no_stop(rate: float, steps: list[tuple[float, int, float]]) -> None:
    machine = Machine(rate=rate)
    for gap, number, way in steps:
        machine.true += gap
        assert machine.ask(number, way=way) == 0


@given(st.lists(st.floats(-600, 600), min_size=2, max_size=3), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_servers_whose_clocks_differ_are_mistaken_for_stops_rarely(ahead: list[float], seed: int) -> None:
    rng = random.Random(seed)
    machine = Machine()
    leads = {number: rng.choice(ahead) for number in range(8)}  # each connection to one server
    for number in range(8, 500):
        if rng.random() < 0.1:
            del leads[rng.choice(list(leads))]
            leads[number] = rng.choice(ahead)
        connection = rng.choice(list(leads))
        machine.true += rng.uniform(0, 1)
        machine.ask(connection, ahead=leads[connection])
    assert len(machine.found) <= 1 + (machine.true - 1000) / STRANGERS_SECONDS


def test_a_connection_behind_which_are_several_clocks_is_believed_once() -> None:
    assert len(behind_a_proxy(30.0).found) == 1


@given(st.floats(3, 30), st.floats(0, 600), st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_stop_that_is_longer_than_several_clocks_explain_is_noticed(differ: float, more: float, ahead: bool) -> None:
    machine = behind_a_proxy(differ)
    known, seconds = machine.lapses.seconds, 2 * differ + 2 * NOTICED_SECONDS + more
    machine.stop(seconds)
    machine.ask("proxy", ahead=differ * ahead)
    assert machine.lapses.seconds - known >= seconds


@pytest.mark.parametrize("differ", [3.0, 30.0])
def test_a_connection_whose_clocks_agree_again_is_believed_as_any_other(differ: float) -> None:
    machine = behind_a_proxy(differ)
    for _ in range(int(STEADY_SECONDS) + 2):
        machine.true += 1
        machine.ask("proxy")
    machine.stop(NOTICED_SECONDS + 1)
    assert machine.ask("proxy") > 0


@given(st.floats(3, 60), st.floats(-60, -3), st.floats(0, 600), rates)
@settings(max_examples=100, deadline=None)
def test_a_clock_that_is_set_back_some_time_after_a_stop_hides_no_later_one(
    first: float, back: float, later: float, rate: float
) -> None:
    machine = Machine(rate=rate)

    def use(seconds: float, ahead: float = 0.0) -> None:
        for _ in range(int(seconds / 2)):
            machine.true += 2
            machine.ask("connection", ahead=ahead)

    use(10)
    machine.stop(first + NOTICED_SECONDS)
    use(1.1 * STEADY_SECONDS)  # by a clock that may be slow
    use(10 + later, back)
    assert len(machine.found) == 1
    machine.stop(2 * NOTICED_SECONDS)
    assert machine.ask("connection", ahead=back) > 0


class Meeting(ServerClock):
    """Two that have both compared before either has noted what it found, if that may be."""

    both = threading.Barrier(2)

    def heard(self, connection: Hashable, sent: float, answered: float, date: float) -> Missed:
        missed = super().heard(connection, sent, answered, date)
        if missed.seconds:
            with suppress(threading.BrokenBarrierError):
                self.both.wait(0.2)
        return missed


def test_a_stop_that_two_clients_find_at_once_counts_once() -> None:
    lapses, clients = Lapses(), [Meeting(), Meeting()]

    def hear(client: ServerClock, at: float, date: float) -> None:
        client.compare("connection", at + lapses.least, lambda: at, date, lapses)

    for client in clients:
        hear(client, 1000.0, 1000.0)
    threads = [threading.Thread(target=hear, args=(client, 1001.0, 1021.0)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lapses.least == pytest.approx(20, abs=2)


def test_a_process_that_was_forked_while_clocks_were_compared_compares_its_own() -> None:
    with ThreadPoolExecutor(1) as other, MACHINE.comparing:
        # Another thread forks: in the child nobody is left to give the lock back.
        status = other.submit(fork, lambda: MACHINE.comparing.acquire(blocking=False)).result()
    assert status == 0


def fork(succeeds: Callable[[], bool]) -> int:
    """The exit code of a process that is forked to ask this."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads: that is what this is about
        child = os.fork()
    if child == 0:
        os._exit(0 if succeeds() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_connection_that_was_long_unused_tells_nothing() -> None:
    machine = Machine()
    machine.ask("old")
    machine.true += MEMORY_SECONDS + 1
    machine.stop(30)
    assert machine.ask("old") == 0


def test_a_date_is_read_as_the_api_server_writes_it() -> None:
    assert parse_date(formatdate(1_800_000_000, usegmt=True)) == 1_800_000_000
    assert parse_date("") is None
    assert parse_date("yesterday") is None


class StoppedClock(ManualClock):
    """A machine's clock that a test stops."""

    def __init__(self, at: float = 1_000.0) -> None:
        super().__init__(at)
        self.lapses = Lapses()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def answering_at(dates: Sequence[float]) -> Callable[[Any], Awaitable[Any]]:
    """An API server by whose clock it is `dates[0]`."""

    async def answer(request: Any) -> Any:
        response = await says(config_map("a"))(request)
        response.headers["Date"] = formatdate(dates[0], usegmt=True)
        return response

    return answer


async def test_the_client_notices_and_writes_nothing_until_a_renewal_has_confirmed_the_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, dates = StoppedClock(), [1_800_000_000.0]

    hold = Hold("the lease", clock)
    hold.extend(clock.monotonic() + 12.6)
    async with talking(answering_at(dates), clock=clock, fence=hold) as (client, server):
        await client.patch(CONFIGMAPS, "a", "default", {})
        dates[0] += 30
        await client.get(CONFIGMAPS, "a", "default")
        assert "This machine was stopped for about 30" in caplog.text
        assert hold.remaining() < 0
        writing = asyncio.ensure_future(client.patch(CONFIGMAPS, "b", "default", {}))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(server.seen) == 2
        hold.extend(clock.monotonic() + 12.6)
        await writing
        hold.close()
        with pytest.raises(FenceClosed):
            await client.patch(CONFIGMAPS, "c", "default", {})
        assert [each.path.rpartition("/")[2] for each in server.seen] == ["a", "a", "b"]


@in_virtual_time
async def test_a_hold_that_ended_in_a_stop_is_over_also_when_an_idle_connection_tells_of_it(
    clock: VirtualClock,
) -> None:
    machine, lapsing = Machine(), Lapsing(clock)
    lapsing.lapses = machine.lapses
    hold = Hold("the lease", lapsing)
    machine.ask("idle")
    machine.true += 55
    hold.extend(clock.monotonic() + 12.6)
    machine.stop(15)
    assert 0 < machine.ask("idle") < 12, "an idle connection tells of part of it"
    assert hold.remaining() < 0
    assert hold.doubted


async def test_clocks_that_differ_behind_one_connection_are_told_of_and_again_when_twice_as_far_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, dates = StoppedClock(), [1_800_000_000.0]

    async with talking(answering_at(dates), clock=clock) as (client, server):
        for differ in (5, 8, 20):
            for turn in range(10):
                dates[0] = 1_800_000_000.0 + differ * (turn % 2)
                await client.get(CONFIGMAPS, "a", "default")
    told = [line.getMessage() for line in caplog.records if "to and fro" in line.msg]
    assert [line.partition(" goes to and fro by ")[::2] for line in told] == [
        (
            f"The clock of the API server {server.url}",
            f"up to {apart} s, and stops of this machine of up to {hidden} s may go unnoticed;"
            " are the clocks of your API servers right?",
        )
        for apart, hidden in ((6.0, 14.5), (21.0, 44.5))
    ]


class Lapsing:
    """Virtual time in which a machine may have missed some."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.lapses = Lapses()
        self.monotonic, self.now, self.sleep = clock.monotonic, clock.now, clock.sleep


def held(rig: Rig, clock: Lapsing) -> ShardLease:
    return rig.shard(clock=clock)


@pytest.mark.parametrize("missed", [3.0, 30.0, 3600.0])
@in_virtual_time
async def test_what_was_missed_shortens_the_hold_until_a_renewal_which_is_due_at_once(
    clock: VirtualClock, missed: float
) -> None:
    rig, lapsing = Rig(clock), Lapsing(clock)
    async with held(rig, lapsing) as lease:
        await asyncio.sleep(0.5)
        before = lease.fence.remaining()
        lapsing.lapses.note(missed)
        assert lease.fence.remaining() == pytest.approx(before - missed)
        doubts = [lease.fence.doubted]
        assert await rig.until(lambda: lease.fence.remaining() > 12) < 0.1
        doubts.append(lease.fence.doubted)
        assert doubts == [True, False]
        await asyncio.sleep(60)
        assert not lease.lost.is_set(), "a mistake costs no lease"
    assert rig.holder() == ""


@in_virtual_time
async def test_a_renewal_that_was_under_way_confirms_nothing_that_was_missed_later(clock: VirtualClock) -> None:
    rig, lapsing = Rig(clock), Lapsing(clock)
    api = rig.api()
    async with rig.shard(api, clock=lapsing) as lease:
        api.delay = lambda: 1.0
        asked = len(api.requests)
        await rig.until(lambda: len(api.requests) > asked)
        lapsing.lapses.note(30.0)
        renewed = lease.fence.ends_at
        await rig.until(lambda: lease.fence.ends_at > renewed)
        assert lease.fence.remaining() < 0
        api.delay = lambda: 0.001
        assert await rig.until(lambda: lease.fence.remaining() > 0) < 2.1, "the next is not long in coming"
    assert rig.holder() == ""


@in_virtual_time
async def test_a_machine_that_was_stopped_while_its_lease_was_taken_loses_it(clock: VirtualClock) -> None:
    rig, lapsing = Rig(clock), Lapsing(clock)
    lease = held(rig, lapsing)

    async def work() -> None:
        rig.meddle({"spec": {"holderIdentity": SHARDER_HOLDER, "renewTime": "2031-01-01T00:00:00.000000Z"}})
        lapsing.lapses.note(30.0)
        assert lease.fence.remaining() < 0

    assert "held by shardlease-controller" in await lose(lease, work)
    assert clock.monotonic() < 1
    assert not lease.fence.doubted
    assert rig.holder() == SHARDER_HOLDER


def test_a_clock_that_says_nothing_misses_nothing() -> None:
    assert lapses_of(VirtualClock()).seconds == 0
