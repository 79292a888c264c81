"""Where watching is not allowed: lists say what a watch would have said, at a pace that fits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from sharder.controllers.polling import MAX_POLL_SECONDS, POLL_SECONDS, Poll
from sharder.controllers.seen import SeenMeta, SeenObject
from shardsdk.errors import Forbidden, ServerError, ShardingError
from shardsdk.kube.reflector import Delta
from shardsdk.testing.virtual import VirtualClock, in_virtual_time


def thing(name: str, version: str = "1") -> SeenObject:
    return SeenObject(SeenMeta(name=name, namespace="default", uid=name, resource_version=version))


def forbidden_reflector() -> Any:
    return SimpleNamespace(failure=Forbidden("watch things"), store=[])


class World:
    """What a list finds, whether watching is allowed, and what was told."""

    def __init__(self, clock: VirtualClock, sync_period_seconds: float = 60.0) -> None:
        self.clock = clock
        self.reflector = forbidden_reflector()
        self.objects: list[SeenObject] = []
        self.error: ShardingError | None = None
        self.listed_at: list[float] = []
        self.told: list[str] = []
        self.poll = Poll(
            self.reflector, self._pages, self._wanted, clock=clock, sync_period_seconds=sync_period_seconds
        )  # fmt: skip

    async def _pages(self) -> AsyncIterator[list[SeenObject]]:
        self.listed_at.append(self.clock.monotonic())
        if self.error is not None:
            raise self.error
        for obj in self.objects:
            yield [obj]

    def _wanted(self, obj: SeenObject) -> bool:
        return not obj.metadata.name.startswith("foreign")

    def _on_delta(self, delta: Delta[SeenObject]) -> None:
        assert (delta.object in (self.poll.objects or {}).values()) == (delta.kind.value != "deleted")
        self.told.append(f"{delta.kind.value} {delta.object.metadata.name}")

    async def during(self, steps: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self.poll.run(self._on_delta, lambda: self.told.append("listed")))
        await steps()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_lists_tell_what_a_watch_would_have_told(clock: VirtualClock) -> None:
    world = World(clock)

    async def steps() -> None:
        world.objects = [thing("a"), thing("b"), thing("foreign")]
        await clock.sleep(1.5 * POLL_SECONDS)
        assert world.told == ["added a", "added b", "listed"]
        world.objects = [thing("b", "2"), thing("c")]
        await clock.sleep(POLL_SECONDS)
        assert world.told[3:] == ["deleted a", "modified b", "added c"]
        await clock.sleep(POLL_SECONDS)
        assert world.told[6:] == []

    await world.during(steps)


@in_virtual_time
async def test_where_the_watch_works_nothing_is_listed(clock: VirtualClock) -> None:
    world = World(clock)
    world.reflector.failure = ServerError("watch things", status=500)
    await world.during(lambda: clock.sleep(10 * POLL_SECONDS))
    assert (world.listed_at, world.poll.objects) == ([], None)


@in_virtual_time
async def test_once_watching_is_allowed_the_watch_alone_counts(clock: VirtualClock) -> None:
    world = World(clock)

    async def steps() -> None:
        world.objects = [thing("a")]
        await clock.sleep(1.5 * POLL_SECONDS)
        world.reflector.failure = None
        await clock.sleep(POLL_SECONDS)
        assert world.poll.objects is None
        world.reflector.store = [thing("a")]
        world.reflector.failure = Forbidden("watch things")
        world.objects = [thing("b")]
        await clock.sleep(4 * POLL_SECONDS)
        assert world.told[2:] == ["deleted a", "added b", "listed"]

    await world.during(steps)


@in_virtual_time
async def test_pauses_grow_at_rest_and_are_short_while_anything_is_there(clock: VirtualClock) -> None:
    world = World(clock, sync_period_seconds=8.0)

    async def steps() -> None:
        await clock.sleep(24.0)
        assert pauses(world) == [2.0, 4.0, 8.0, 8.0]
        world.objects = [thing("a")]
        await clock.sleep(11.0)
        assert pauses(world)[4:] == [8.0, 1.0, 1.0, 1.0]

    await world.during(steps)


@in_virtual_time
async def test_without_a_sync_period_there_is_a_longest_pause(clock: VirtualClock) -> None:
    world = World(clock, sync_period_seconds=float("inf"))
    await world.during(lambda: clock.sleep(10 * MAX_POLL_SECONDS))
    assert max(pauses(world)) == MAX_POLL_SECONDS


@in_virtual_time
async def test_a_list_that_fails_proves_nothing_and_is_made_again(clock: VirtualClock) -> None:
    world = World(clock)

    async def steps() -> None:
        world.objects = [thing("a")]
        await clock.sleep(1.5 * POLL_SECONDS)
        world.error = ServerError("list things", status=500)
        await clock.sleep(POLL_SECONDS)
        assert world.told == ["added a", "listed"]
        world.error, world.objects = None, []
        await clock.sleep(3 * POLL_SECONDS)
        assert world.told[2:] == ["deleted a"]

    await world.during(steps)


def pauses(world: World) -> list[float]:
    return [later - earlier for earlier, later in zip(world.listed_at, world.listed_at[1:], strict=False)]
