"""A pass over many objects that have to move: few of them are held at a time, and nobody stops it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from sharder.placement import resync
from sharder.placement.resync import Resync
from shardsdk.kube.api import ListOptions, Selection
from shardsdk.protocol.objects import SlimObject
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, LABELS, OWNERS, Stage, leading, make_stage, names_on, ring, thing

#: Objects in one page of a list.
PAGE: Final = 500
FEW: Final = 20
MANY: Final = 3 * PAGE


def acknowledging(stage: Stage, *shards: str, after: float = 0.05) -> None:
    """These shards let go of what they are asked for `after` so many seconds."""

    async def acknowledge(name: str) -> None:
        await stage.pass_time(after)
        if stage.draining(OWNERS, name):
            stage.acknowledge(name)

    def look(change: Change) -> None:
        if change.resource == OWNERS.group_resource and change.new is not None:
            labels = change.new["metadata"].get("labels") or {}
            if LABELS.drain in labels and labels.get(LABELS.shard) in shards:
                tasks.add(asyncio.create_task(acknowledge(change.new["metadata"]["name"])))

    tasks: set[asyncio.Task[None]] = set()
    stage.server.listeners.append(look)


@pytest.mark.parametrize("hangs", [False, True])
def test_no_more_than_few_and_a_page_are_held_and_all_move(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a shard that hangs its own objects are held as well, and the others' move all the same."""
    monkeypatch.setattr(resync, "FEW_MISPLACED", FEW)
    held: list[int] = []
    enqueue = Resync._enqueue

    def enqueued(resync: Resync, number: int, obj: SlimObject) -> bool:
        taken = enqueue(resync, number, obj)
        held.append(resync.misplaced)
        return taken

    monkeypatch.setattr(Resync, "_enqueue", enqueued)

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.set_up(ring(ALONE), "one", "two")
        moving = set(names_on("three", "one", "two", "three", count=MANY))
        places = {
            name: shard
            for shard in ("one", "two")
            for name in names_on(shard, "one", "two", count=MANY)
            if name in moving
        }
        for name, shard in places.items():
            stage.create(OWNERS, thing(name, shard=shard))
        acknowledging(stage, *(("two",) if hangs else ("one", "two")))
        async with leading(stage):
            await stage.until(lambda: stage.condition("Settled") == "True")
            stage.start("three")
            rest = [name for name, shard in places.items() if shard == "two" or not hangs]
            await stage.until(lambda: all(stage.label(OWNERS, name) == "three" for name in rest), seconds=600)
        assert max(held) > FEW
        assert max(held) <= FEW + PAGE or hangs

    scenario()


class SlowLists(MemoryApi):
    """A second passes before owners are read."""

    async def read_pages(self, selection: Selection[Any], options: ListOptions) -> AsyncIterator[list[Any]]:
        if selection.resource == OWNERS:
            await self.clock.sleep(1.0)
        async for page in super().read_pages(selection, options):
            yield page


@pytest.mark.parametrize(("held", "every"), [(0.05, 1.5), (0.05, 0.1), (1.9, 2.0)])
def test_an_object_that_is_moved_again_and_again_has_few_passes_made_over_all_others(held: float, every: float) -> None:
    """Whoever may write it may do that by its drain label, as often as its shard lets go of it."""

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=SlowLists)
        stage.set_up(ring(ALONE), "one", "two")
        [name, *_] = names_on("one", "one", "two")
        stage.create(OWNERS, thing(name))
        acknowledging(stage, "one", after=held)
        async with leading(stage):
            await stage.until(lambda: stage.condition("Settled") == "True")
            stage.api.lists.clear()
            for _ in range(int(90 / every)):
                stage.server.patch(OWNERS, name, "default", {"metadata": {"labels": {LABELS.drain: "true"}}})
                await stage.pass_time(every)
                assert stage.label(OWNERS, name) == "one"
            assert 7 <= stage.api.lists.count(OWNERS.plural) <= 10, "90 s"
            await stage.until(lambda: stage.condition("Settled") == "True", seconds=20)

    scenario()
