"""A reflector without the right to watch lists as often as it is told to, and not otherwise."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shardsdk.errors import Forbidden, ServerError
from shardsdk.kube.reflector import Reflector
from shardsdk.protocol.objects import PartialObject
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.kubectl.rings import SECRETS, RestrictedApi

EVERY = 100.0


class Stage(RestrictedApi):
    """An API server that permits to list, and a reflector that reads from it."""

    def __init__(self, clock: VirtualClock, *, relist_seconds: float | None = EVERY) -> None:
        super().__init__(MemoryServer(), clock, {("watch", "secrets")})
        self.told: list[str] = []
        self.listed_at: list[float] = []
        self.broken = False
        self.reflector: Reflector[PartialObject] = Reflector(
            self, SECRETS, clock=clock, rng=random.Random(1), relist_seconds=relist_seconds,
            handler=lambda delta: self.told.append(f"{delta.kind.value} {delta.object.metadata.name}"),
        )  # fmt: skip

    async def pages(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        self.listed_at.append(self.clock.monotonic())
        if self.broken:
            raise ServerError("list: broken", status=500)
        async for page in super().pages(*args, **options):
            yield page

    def put(self, name: str) -> None:
        self.server.create(SECRETS, {"metadata": {"name": name}}, "default")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.reflector.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_lists_tell_what_a_watch_would_have_told_and_the_missing_right_is_named(clock: VirtualClock) -> None:
    stage = Stage(clock)
    stage.put("a")
    async with stage.running():
        await clock.sleep(10)
        assert stage.reflector.synced.is_set()
        assert (stage.told, len(stage.reflector.store)) == (["added a"], 1)
        stage.server.delete(SECRETS, "a", "default")
        stage.put("b")
        await clock.sleep(2 * EVERY)
        assert stage.told == ["added a", "deleted a", "added b"] or stage.told == ["added a", "added b", "deleted a"]
        assert isinstance(stage.reflector.failure, Forbidden)


@in_virtual_time
async def test_lists_are_made_no_more_often_and_said_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(clock)
    async with stage.running():
        await clock.sleep(20 * EVERY)
    pauses = [after - before for before, after in zip(stage.listed_at, stage.listed_at[1:], strict=False)]
    assert len(pauses) > 10
    assert all(EVERY <= pause <= 1.5 * EVERY for pause in pauses)
    assert [record.levelno for record in caplog.records if record.levelno >= logging.INFO] == [logging.WARNING]


@in_virtual_time
async def test_once_watching_is_permitted_the_watch_alone_counts(clock: VirtualClock) -> None:
    stage = Stage(clock)
    async with stage.running():
        await clock.sleep(EVERY / 2)
        stage.denied.clear()
        await clock.sleep(EVERY)
        lists = len(stage.listed_at)
        assert stage.reflector.failure is None
        stage.put("a")
        await clock.sleep(1)
        assert stage.told == ["added a"]
        await clock.sleep(5 * EVERY)
        assert len(stage.listed_at) == lists


@in_virtual_time
async def test_a_list_that_fails_proves_nothing_and_is_soon_made_again(clock: VirtualClock) -> None:
    stage = Stage(clock)
    stage.broken = True
    async with stage.running():
        await clock.sleep(EVERY / 2)
        assert not stage.reflector.synced.is_set()
        assert len(stage.listed_at) > 1
        stage.broken = False
        await clock.sleep(EVERY / 2)
        assert stage.reflector.synced.is_set()


@in_virtual_time
async def test_a_restart_lists_at_once(clock: VirtualClock) -> None:
    stage = Stage(clock)
    async with stage.running():
        await clock.sleep(EVERY / 2)
        stage.put("a")
        await asyncio.wait_for(stage.reflector.listed(stage.reflector.restart()), EVERY / 10)
        assert stage.told == ["added a"]


@in_virtual_time
async def test_nothing_is_listed_unless_it_is_asked_for(clock: VirtualClock) -> None:
    stage = Stage(clock, relist_seconds=None)
    async with stage.running():
        await clock.sleep(20 * EVERY)
        assert not stage.reflector.synced.is_set()
    assert stage.listed_at == []
