"""A loop of one's own by ranges: what it is let into stays its own until it is out again, in any thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from shardsdk.errors import ConfigurationError, LeaseLost, RingChanged
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.lease.ring import ByRanges
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.share import Share
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.namespaces import NAME_LABEL, CoveredNamespaces
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import EVERYWHERE, NOWHERE, HashBy, HashRanges, point_of
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import NAMESPACE, RING, connecting, lease_in
from tests.ranges_rig import HIGH, LOW, RangesWorld
from tests.simulation.machines import MachineClock

SELECTOR = {"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": ["kube-system"]}]}
SPEC = {"assignment": "Ranges", "hashBy": "Namespace", "namespaceSelector": SELECTOR}
#: Namespaces in each half of the space of hashes.
LOWER = next(name for name in map("{}-low".format, range(100)) if point_of(name) in LOW)
UPPER = next(name for name in map("{}-high".format, range(100)) if point_of(name) in HIGH)
COVERED = CoveredNamespaces(without=frozenset({"kube-system"}))


async def work_until(share: Share, ended: asyncio.Event) -> None:
    """A block in the upper half that takes until then."""
    with share.work_on(UPPER) as mine:
        assert mine
        await ended.wait()


class Loop:
    """A shard with a loop of its own, and writes of which one may be on its way."""

    def __init__(
        self, world: RangesWorld, name: str, covered: CoveredNamespaces | None = COVERED, clock: Clock | None = None
    ) -> None:
        clock = clock or world.clock
        self.world, self.name = world, name
        self.api = MemoryApi(world.server, world.clock)
        self.lease = ShardLease(
            connecting(self.api), RING, name, NAMESPACE, ranges=self._ranges(covered), threaded=False, fenced=False,
            clock=clock, rng=Random(1),
        )  # fmt: skip
        self.settled = asyncio.Event()
        self.settled.set()
        self.lease.settle_first(self._settle)
        self.told: list[HashRanges] = []
        self.share = Share(
            connecting(MemoryApi(world.server, world.clock)), self.lease,
            self._ranges(covered), on_change=self.told.append, clock=clock, rng=Random(1),
        )  # fmt: skip

    @staticmethod
    def _ranges(covered: CoveredNamespaces | None) -> ByRanges | None:
        return None if covered is None else ByRanges(HashBy.NAMESPACE, covered)

    async def _settle(self) -> None:
        await self.settled.wait()

    @asynccontextmanager
    async def working(self, ranges: HashRanges) -> AsyncIterator[Share]:
        async with self.lease, self.share as share:
            self.world.name({self.name: ranges})
            await self.world.until(lambda: share.working == ranges)
            yield share


@in_virtual_time
async def test_it_is_let_in_where_it_is_named_and_where_the_ring_covers_and_nowhere_else(clock: VirtualClock) -> None:
    loop = Loop(RangesWorld(clock), "a", CoveredNamespaces(without=frozenset({f"{LOWER}-system"})))
    with loop.share.work_on(LOWER) as mine:
        assert not mine, "its lease is not even sought"
    async with loop.working(LOW) as share:
        for namespace, wanted in ((LOWER, True), (UPPER, False), (f"{LOWER}-system", False)):
            with share.work_on(namespace) as mine:
                assert mine is wanted
        loop.world.name({"a": EVERYWHERE})
        await loop.world.until(lambda: share.working == EVERYWHERE)
        with share.work_on(UPPER) as mine:
            assert mine
    with loop.share.work_on(LOWER) as mine:
        assert not mine, "it has ended"
    assert loop.told == [LOW, EVERYWHERE]


@in_virtual_time
async def test_what_is_revoked_stays_on_the_lease_until_the_block_has_ended_and_its_writes_have(
    clock: VirtualClock,
) -> None:
    loop = Loop(RangesWorld(clock), "a")
    async with loop.working(EVERYWHERE) as share:
        with share.work_on(UPPER) as mine:
            assert mine
            loop.settled.clear()
            loop.world.name({"a": LOW})
            await loop.world.until(lambda: share.working == LOW)
            with share.work_on(UPPER) as again:
                assert not again, "nothing begins there any more"
            await asyncio.sleep(20)
            assert loop.world.held("a") == EVERYWHERE
        await asyncio.sleep(20)
        assert loop.world.held("a") == EVERYWHERE, "a write is on its way"
        loop.settled.set()
        await loop.world.until(lambda: loop.world.held("a") == LOW)
        with share.work_on(LOWER) as mine:
            assert mine, "what it keeps was never taken away"


@in_virtual_time
async def test_blocks_of_one_object_at_once_count_each(clock: VirtualClock) -> None:
    loop = Loop(RangesWorld(clock), "a")
    async with loop.working(EVERYWHERE) as share:
        with share.work_on(UPPER):
            with share.work_on(UPPER):
                loop.world.name({"a": LOW})
                await loop.world.until(lambda: share.working == LOW)
            await asyncio.sleep(20)
            assert loop.world.held("a") == EVERYWHERE
        await loop.world.until(lambda: loop.world.held("a") == LOW)


async def test_a_block_in_a_thread_keeps_what_it_has_begun() -> None:
    """On the real clock: threads do not live in virtual time."""
    clock = VirtualClock()
    loop = Loop(RangesWorld(clock), "a")
    share = loop.share
    share._loop = asyncio.get_running_loop()
    share._set_open(EVERYWHERE)
    loop.lease.fence.extend(60)
    inside, out = threading.Event(), threading.Event()

    def work() -> bool:
        with share.work_on(UPPER) as mine:
            inside.set()
            out.wait(30)
            return mine

    working = asyncio.create_task(asyncio.to_thread(work))
    await asyncio.to_thread(inside.wait, 30)
    share._set_open(LOW)
    ended = asyncio.create_task(share._work_ended(HIGH))
    await share._work_ended(LOW)
    assert not ended.done()
    out.set()
    await asyncio.wait_for(ended, 30)
    assert await working


@in_virtual_time
async def test_the_lease_is_kept_until_what_runs_has_ended_though_the_body_has(clock: VirtualClock) -> None:
    loop = Loop(RangesWorld(clock), "a")
    ended = asyncio.Event()

    async def body() -> None:
        async with loop.working(EVERYWHERE) as share:
            began = asyncio.create_task(work_until(share, ended))
            await asyncio.sleep(1)
            assert not began.done()

    running = asyncio.create_task(body())
    await asyncio.sleep(30)
    assert (loop.share.working, loop.world.held("a")) == (NOWHERE, EVERYWHERE)
    assert loop.share.stopping.is_set(), "threads are told to end"
    ended.set()
    await running
    assert loop.world.held("a") == NOWHERE


@in_virtual_time
async def test_nothing_begins_once_it_is_told_to_stop(clock: VirtualClock) -> None:
    async with Loop(RangesWorld(clock), "a").working(EVERYWHERE) as share:
        with share.work_on(UPPER) as mine:
            share.stopping.set()
            assert mine, "what has begun goes on"
            with share.work_on(UPPER) as again:
                assert not again


@in_virtual_time
async def test_nothing_begins_once_the_lease_is_lost(clock: VirtualClock) -> None:
    loop = Loop(RangesWorld(clock), "a")

    async def body() -> None:
        async with loop.working(EVERYWHERE):
            loop.api.fault = Fault.LOST
            await asyncio.sleep(600)

    with pytest.raises(LeaseLost):
        await body()
    with loop.share.work_on(UPPER) as mine:
        assert not mine


@pytest.mark.parametrize("covered", [COVERED, None], ids=["by ranges", "by labels"])
@in_virtual_time
async def test_nothing_begins_once_the_lease_has_run_out_though_the_event_loop_has_not_noticed(
    clock: VirtualClock, covered: CoveredNamespaces | None
) -> None:
    """As in a thread of a process that was stopped, or whose event loop is blocked."""

    async def body() -> None:
        async with Loop(RangesWorld(clock), "a", covered).working(EVERYWHERE) as share:
            with share.work_on(UPPER) as mine:
                assert mine
            clock.jump(LeaseTimings().lease_duration)
            with share.work_on(UPPER) as mine:
                assert not mine
            await asyncio.sleep(600)

    with pytest.raises(LeaseLost):
        await body()


@pytest.mark.parametrize("covered", [COVERED, None], ids=["by ranges", "by labels"])
@in_virtual_time
async def test_what_was_refused_while_the_lease_was_doubted_is_asked_for_again_once_it_is_confirmed(
    clock: VirtualClock, covered: CoveredNamespaces | None
) -> None:
    machine = MachineClock(clock)
    loop = Loop(RangesWorld(clock), "a", covered, machine)
    async with loop.working(EVERYWHERE) as share:
        loop.told.clear()
        machine.lapses.note(LeaseTimings().lease_duration)
        await loop.world.until(lambda: loop.lease.fence.remaining() > 0)
        await asyncio.sleep(5)
        assert loop.told == [], "nothing was refused"
        loop.api.fault = Fault.LOST
        machine.lapses.note(LeaseTimings().lease_duration)
        for _ in range(2):
            with share.work_on(UPPER) as mine:
                assert not mine
        await asyncio.sleep(3)
        assert loop.told == [], "it would be refused again"
        loop.api.fault = Fault.NONE
        await loop.world.until(lambda: bool(loop.told))
        with share.work_on(UPPER) as mine:
            assert mine
        await asyncio.sleep(5)
        assert loop.told == [EVERYWHERE]
        share.stopping.set()
        machine.lapses.note(LeaseTimings().lease_duration)
        with share.work_on(UPPER) as mine:
            assert not mine
        await asyncio.sleep(5)
        assert loop.told == [EVERYWHERE], "nothing begins any more"


@in_virtual_time
async def test_a_ring_that_hashes_uids_has_to_be_told_the_uid(clock: VirtualClock) -> None:
    """Without one, all objects would lie at one point, and be one shard's."""
    ranges = ByRanges(HashBy.UID, CoveredNamespaces())
    loop = Loop(RangesWorld(clock), "a")
    share = Share(connecting(loop.api), loop.lease, ranges, clock=clock)
    with pytest.raises(ValueError, match=r"pass metadata\.uid"), share.work_on(UPPER):
        pytest.fail("it was let in")
    with share.work_on(UPPER, "4711") as mine:
        assert not mine, "its lease is not even sought"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"assignment": "Labels"}, "works by hashes of namespaces"),
        ({"namespaceSelector": {"matchExpressions": []}}, "covers other namespac"),
    ],
)
@in_virtual_time
async def test_a_ring_that_is_made_again_otherwise_ends_it_with_what_to_do(
    clock: VirtualClock, spec: dict[str, object], words: str
) -> None:
    world = RangesWorld(clock)
    world.server.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": SPEC})
    loop = Loop(world, "a", CoveredNamespaces.parse(SELECTOR))

    async def body() -> None:
        async with loop.working(EVERYWHERE):
            world.server.patch(CLUSTERRINGS, RING, None, {"spec": spec})
            await asyncio.sleep(600)

    with pytest.raises(RingChanged, match=words):
        await body()
    left = lease_in(world.server, "a", NAMESPACE)
    assert left is not None
    assert (left.holder, left.ended_in_failure) == ("", False), "an edit of its ring is no crash"
    with loop.share.work_on(LOWER) as mine:
        assert not mine


@in_virtual_time
async def test_a_ring_that_was_edited_while_the_lease_was_waited_for_ends_it(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    world.server.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": SPEC})
    loop = Loop(world, "a", CoveredNamespaces(without=frozenset({"kube-system", "since-then-covered"})))

    async def body() -> None:
        async with loop.lease, loop.share:
            await asyncio.sleep(600)

    with pytest.raises(ConfigurationError, match="covers other namespaces than when this process started"):
        await body()


@in_virtual_time
async def test_of_a_ring_by_labels_it_says_what_to_list_and_lets_all_of_that_in_until_the_end(
    clock: VirtualClock,
) -> None:
    loop = Loop(RangesWorld(clock), "a", None)
    labels = parse_ring_name(RING)
    assert (loop.share.selector, loop.share.labels) == (f"{labels.shard}=a", {labels.shard: "a"})
    async with loop.lease, loop.share as share:
        with share.work_on(UPPER) as mine:
            assert mine
    with loop.share.work_on(UPPER) as mine:
        assert not mine


@in_virtual_time
async def test_a_ring_by_labels_that_is_made_again_by_ranges_ends_it_too(clock: VirtualClock) -> None:
    world = RangesWorld(clock)
    world.server.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": {}})
    loop = Loop(world, "a", None)

    async def body() -> None:
        async with loop.lease, loop.share:
            world.server.patch(CLUSTERRINGS, RING, None, {"spec": SPEC})
            await asyncio.sleep(600)

    with pytest.raises(ConfigurationError, match="this process works by labels"):
        await body()


async def test_what_is_in_a_thread_is_told_to_end_when_the_ring_is_made_again() -> None:
    """On the real clock, with the loop that docs/sdk/parts.md and examples/plain_client.py have."""
    clock, loop = SystemClock(), asyncio.get_running_loop()
    server, told, begun = MemoryServer(now=clock.now), list[bool](), asyncio.Event()
    server.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": SPEC})
    api = MemoryApi(server, clock)
    lease = ShardLease(connecting(api), RING, "a", NAMESPACE, threaded=False, fenced=False, clock=clock, rng=Random(1))

    def work(share: Share) -> None:
        loop.call_soon_threadsafe(begun.set)
        told.append(share.stopping.wait(60))

    @asynccontextmanager
    async def connect_once_begun() -> AsyncIterator[MemoryApi]:
        await begun.wait()  # what is cancelled before there is a thread for it does not begin
        yield api

    with pytest.raises(ConfigurationError, match="this process works by labels"):
        async with lease, Share(connect_once_begun, lease, None) as share:
            await lease.to_thread(work, share)
    assert told == [True], "it would have kept the lease for ever, and worked on nothing"


@pytest.mark.parametrize("covered", [COVERED, None], ids=["by ranges", "by labels"])
@in_virtual_time
async def test_what_is_in_a_thread_is_told_to_end_when_the_lease_is_lost(
    clock: VirtualClock, covered: CoveredNamespaces | None
) -> None:
    loop = Loop(RangesWorld(clock), "a", covered)

    async def body() -> None:
        async with loop.working(EVERYWHERE) as share:
            loop.api.fault = Fault.LOST
            until = clock.monotonic() + 60
            while not share.stopping.is_set() and clock.monotonic() < until:
                with suppress(asyncio.CancelledError):  # which waits for what is in threads
                    await asyncio.sleep(0.1)
            assert share.stopping.is_set()

    with pytest.raises(LeaseLost):
        await body()


@in_virtual_time
async def test_of_a_ring_by_ranges_nothing_is_selected_or_labelled(clock: VirtualClock) -> None:
    share = Loop(RangesWorld(clock), "a").share
    assert (share.selector, share.labels) == ("", {})


@in_virtual_time
async def test_an_error_of_the_body_comes_out_as_it_is(clock: VirtualClock) -> None:
    loop = Loop(RangesWorld(clock), "a")
    with pytest.raises(ValueError, match="mine"):
        async with loop.working(EVERYWHERE):
            raise ValueError("mine")
