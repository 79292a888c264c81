"""What a cache by ranges says while it gains some, though their list is interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request
from shardsdk.errors import ConnectionFailed
from shardsdk.kube.api import ListOptions, Selection, T
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import PartialObject
from shardsdk.protocol.ranges import NOWHERE, HashBy, HashRanges, point_of
from shardsdk.reconcile.barrier import Barrier
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS

#: Long enough for every list and pause but one that is held.
SOON = 5.0


def around(namespace: str) -> HashRanges:
    return HashRanges.of((point_of(namespace), point_of(namespace) + 1))


OLD, NEW, MORE = around("old"), around("new"), around("more")


class Interrupted(MemoryApi):
    """After the first page, of one object, lists wait until they may go on, or break off."""

    def __init__(self, server: MemoryServer, clock: VirtualClock) -> None:
        super().__init__(server, clock)
        self.goes_on, self.breaks = asyncio.Event(), asyncio.Event()
        self.goes_on.set()

    async def read_pages(self, selection: Selection[T], options: ListOptions) -> AsyncIterator[list[T]]:
        async for page in super().read_pages(selection, ListOptions(1, options.on_version, options.on_unfit)):
            yield page
            while not self.goes_on.is_set():
                if self.breaks.is_set():
                    raise ConnectionFailed("the connection broke between two pages")
                await asyncio.sleep(0.01)

    def read_stream(self, selection: Selection[T], batch: int) -> AsyncIterator[list[T]]:
        """Those who ask beside the cache are answered."""
        return super().read_pages(selection, ListOptions(batch))


class Gaining:
    """A cache that has `OLD`, and in which the list of what lies in `NEW` has shown the first of two objects."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server = MemoryServer()
        self.api = Interrupted(self.server, clock)
        self.cache: Cache[PartialObject] = Cache(
            self.api, CONFIGMAPS, clock=clock, rng=Random(1), hash_by=HashBy.NAMESPACE
        )
        self.told: list[Delta[PartialObject]] = []
        self.cache.listen(self.told.append)
        self.versions = {name: self.make(name) for name in ("a", "b")}

    def make(self, name: str) -> str:
        """The version of an object in `NEW`, a child of its own owner."""
        reference = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": f"u-{name}", "controller": True}
        metadata = {"name": name, "namespace": "new", "ownerReferences": [reference]}
        made: str = self.server.create(CONFIGMAPS, {"metadata": metadata})["metadata"]["resourceVersion"]
        return made

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.cache.run())
        self.cache.show(OLD)
        await self.clock.sleep(SOON)
        self.api.goes_on.clear()
        self.cache.show(OLD | NEW)
        await self.clock.sleep(SOON)
        assert self.shown == ["a"]
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    @property
    def shown(self) -> list[str]:
        return [request.name for request in self.cache.requests()]

    def fails(self) -> bool:
        return self.cache.failure is not None

    def has_seen(self, name: str) -> bool:
        return self.cache.has_seen(Request("new", name), self.versions[name])

    @property
    def ended(self) -> list[str]:
        """What listeners were told to have ended."""
        return [each.object.metadata.name for each in self.told if each.kind is EventKind.DELETED]


@in_virtual_time
async def test_what_a_list_that_breaks_off_has_shown_is_not_said_to_have_ended(clock: VirtualClock) -> None:
    gaining = Gaining(clock)
    async with gaining.begun():
        gaining.api.breaks.set()
        for _ in range(2000):  # also between an attempt and the next
            await clock.sleep(0.01)
            assert gaining.has_seen("a") == ("a" in gaining.shown)
        assert not gaining.has_seen("b")
        gaining.api.goes_on.set()
        await clock.sleep(60)
        assert gaining.shown == ["a", "b"]
    assert gaining.ended == [], "whoever works on it would be cancelled"


@in_virtual_time
async def test_nor_what_one_has_shown_that_ends_because_more_is_gained(clock: VirtualClock) -> None:
    gaining = Gaining(clock)
    async with gaining.begun():
        gaining.cache.show(OLD | NEW | MORE)
        for _ in range(100):
            await asyncio.sleep(0)
            assert gaining.has_seen("a") == ("a" in gaining.shown)
        gaining.api.goes_on.set()
        await clock.sleep(SOON)
        assert gaining.shown == ["a", "b"]
    assert gaining.ended == []


@in_virtual_time
async def test_what_vanishes_before_the_next_list_is_told_to_have_ended_then(clock: VirtualClock) -> None:
    gaining = Gaining(clock)
    async with gaining.begun():
        gaining.api.breaks.set()
        await clock.sleep(SOON)
        gaining.server.delete(CONFIGMAPS, "a", "new")
        gaining.api.goes_on.set()
        await clock.sleep(60)
        assert gaining.shown == ["b"]
        assert gaining.has_seen("a")
    assert gaining.ended == ["a"]


@in_virtual_time
async def test_ranges_that_are_lost_before_their_list_is_complete_leave_nothing_behind(clock: VirtualClock) -> None:
    for rest in (OLD, OLD | MORE, NOWHERE):
        gaining = Gaining(clock)
        async with gaining.begun():
            gaining.cache.show(rest)
            assert gaining.shown == []
            assert not gaining.has_seen("a"), "it is there; only not in the cache"
            gaining.api.goes_on.set()
            await clock.sleep(SOON)
            assert gaining.shown == []
            gaining.cache.show(OLD | NEW)
            await clock.sleep(SOON)
            assert gaining.shown == ["a", "b"]


@in_virtual_time
async def test_an_owner_passes_while_the_cache_has_its_children_and_at_no_other_time(clock: VirtualClock) -> None:
    """Whoever reconciled it then would make them a second time."""
    gaining, owner = Gaining(clock), Request("new", "a")
    settle, woken = gaining.api.writes_settled, list[Request]()
    barrier = Barrier(
        [gaining.cache], main=SECRETS, wake=lambda who, _: woken.append(who), settle=settle, clock=clock, rng=Random(2)
    )
    task = asyncio.create_task(barrier.run())
    async with gaining.begun():
        gaining.api.breaks.set()
        await clock.sleep(0.05)
        barrier.arrived(owner, "u-a")
        for count in range(3000):
            await clock.sleep(0.01)
            assert not barrier.passes(owner, "u-a") or "a" in gaining.shown
            if count == 1000:
                gaining.api.goes_on.set()
    assert woken == [owner]
    task.cancel()


@in_virtual_time
async def test_news_of_what_it_has_arrives_while_the_list_of_what_is_gained_breaks_off_again_and_again(
    clock: VirtualClock,
) -> None:
    gaining = Gaining(clock)
    gaining.server.create(CONFIGMAPS, {"metadata": {"name": "mine", "namespace": "old"}})
    task = asyncio.create_task(gaining.cache.run())
    gaining.cache.show(OLD)
    await clock.sleep(SOON)
    gaining.api.goes_on.clear()
    gaining.api.breaks.set()
    gaining.cache.show(OLD | NEW)
    await clock.sleep(600)
    assert gaining.fails()
    for _ in range(10):
        gaining.told.clear()
        gaining.server.patch(CONFIGMAPS, "mine", "old", {"metadata": {"labels": {"at": f"{clock.monotonic():g}"}}})
        await clock.sleep(SOON)
        assert [(each.kind, each.initial) for each in gaining.told if each.object.metadata.name == "mine"] == [
            (EventKind.MODIFIED, False)
        ]
    gaining.api.goes_on.set()
    await clock.sleep(60)
    assert sorted(gaining.shown) == ["a", "b", "mine"]
    gaining.server.delete(CONFIGMAPS, "mine", "old")
    await clock.sleep(SOON)
    assert gaining.shown == ["a", "b"]
    assert not gaining.fails()
    task.cancel()
