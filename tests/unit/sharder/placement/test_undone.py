"""Label patches that are taken and undone, by somebody's webhook say: they are not tried all the time; others are."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from sharder.core.takeover import RETURN_AFTER_SECONDS
from sharder.rings.status import REFUSED
from shardsdk.protocol.objects import LEASES, Resource
from shardsdk.testing.memory import Object
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    LABELS,
    OWNERS,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)

MANY: Final = 20


class Stripping(MemoryApi):
    """Somebody's webhook takes the ring's labels off all owners but those that are `spared`, and stamps each write."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.strips = True
        self.spared: set[str] = set()
        self.stripped = 0

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if self.strips and resource == OWNERS and name not in self.spared:
            self.stripped += 1
            stamp = {"annotations": {"stamp": str(self.stripped)}}
            body = {"metadata": {**{each: body["metadata"][each] for each in ("resourceVersion",)}, **stamp}}
        return await super().patch(resource, name, namespace, body, **more)


@pytest.mark.parametrize("resources", [(ALONE,), ()])
@pytest.mark.parametrize("lag", [0.0, 0.05])
def test_what_is_undone_is_not_tried_again_because_that_was_written(resources: tuple[Any, ...], lag: float) -> None:
    """Its watch shows the write that somebody has undone; be it before the answer comes or after."""

    @in_virtual_time
    async def undone(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=Stripping)
        assert isinstance(stage.api, Stripping)
        api = stage.api
        api.lag = lambda: lag
        api.delay = lambda: 0.02
        stage.set_up(ring(*resources), "one")
        names = [f"it-{number}" for number in range(MANY)]
        async with leading(stage):
            await stage.until(lambda: stage.condition("Settled") == "True")
            for name in names:
                stage.create(OWNERS, thing(name))
            await stage.pass_time(60)
            assert api.stripped <= 8 * MANY
            await stage.pass_time(240)
            api.stripped = 0
            await stage.pass_time(300)
            assert MANY <= api.stripped <= 16 * MANY
            api.spared.add(names[0])
            stage.server.patch(OWNERS, names[0], "default", {"metadata": {"annotations": {"mended": "yes"}}})
            await stage.until(lambda: stage.label(OWNERS, names[0]) == "one", seconds=2)
            api.strips = False
            await stage.until(lambda: {stage.label(OWNERS, name) for name in names} == {"one"}, seconds=61)

    undone()


def kept_by_one(clock: VirtualClock, *resources: Any) -> tuple[Stage, Stripping, str]:
    """An object that shard one has and two is to get once it is there; nothing is undone yet."""
    stage = make_stage(clock, api=Stripping)
    assert isinstance(stage.api, Stripping)
    stage.api.strips = False
    stage.set_up(ring(*resources), "one")
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="one"))
    return stage, stage.api, name


async def undo_drains(stage: Stage, api: Stripping) -> None:
    """Have its drain undone, a moment ago for the third time, so that it is not tried again by itself soon."""
    await stage.until_settled()
    api.strips = True
    stage.start("two")
    await stage.until(lambda: api.stripped == 3)
    await stage.pass_time(1)


@pytest.mark.parametrize("resources", [(ALONE,), ()])
def test_what_was_undone_is_taken_over_at_once_when_its_shard_is_gone(resources: tuple[Any, ...]) -> None:
    """That its shard was not to be asked for it is past then."""

    @in_virtual_time
    async def gone(clock: VirtualClock) -> None:
        stage, api, name = kept_by_one(clock, *resources)
        async with leading(stage):
            await undo_drains(stage, api)
            api.strips = False
            stage.release("one")
            await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=1)

    gone()


@pytest.mark.parametrize("resources", [(ALONE,), ()])
def test_what_is_undone_while_its_shard_is_gone_is_not_tried_all_the_time(resources: tuple[Any, ...]) -> None:
    @in_virtual_time
    async def gone(clock: VirtualClock) -> None:
        stage, api, name = kept_by_one(clock, *resources)
        async with leading(stage):
            await undo_drains(stage, api)
            stage.release("one")
            await stage.pass_time(60)
            assert 3 < api.stripped <= 8
            api.strips = False
            await stage.until(lambda: stage.label(OWNERS, name) == "two", seconds=61)

    gone()


@pytest.mark.parametrize("resources", [(ALONE,), ()])
def test_what_drains_again_with_each_write_does_not_go_to_and_fro(resources: tuple[Any, ...]) -> None:
    """Somebody's webhook puts the drain label back alone, and the shard that is given the object lets go of it."""

    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.set_up(ring(*resources), "one")
        given: list[float] = []

        def insist(verb: str, resource: Resource, old: Object | None, new: Object) -> Object:
            if resource == OWNERS and old is not None:
                labels = new["metadata"].setdefault("labels", {})
                labels[LABELS.drain] = "yes"
                if labels.get(LABELS.shard) and not (old["metadata"].get("labels") or {}).get(LABELS.shard):
                    given.append(clock.monotonic())
                    asyncio.get_running_loop().call_later(0.02, stage.acknowledge, "it")
            return new

        async with leading(stage):
            await stage.until(lambda: stage.condition("Settled") == "True")
            stage.create(OWNERS, thing("it", shard="one"))
            await stage.pass_time(5)
            stage.server.admit = insist
            stage.server.patch(OWNERS, "it", "default", {"metadata": {"labels": {LABELS.shard: None}}})
            await stage.pass_time(120)
            assert 2 <= len(given) <= 12
            assert any("puts it back" in each for each in stage.events.of(REFUSED))
            stage.server.admit = lambda verb, resource, old, new: new
            await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=61)
            await stage.pass_time(30)
            assert stage.label(OWNERS, "it") == "one"
            assert not stage.draining(OWNERS, "it")

    scene()


@in_virtual_time
async def test_a_move_whose_drain_label_comes_back_is_the_last_move_all_the_same(clock: VirtualClock) -> None:
    """The lease is given back some seconds later only: watches of whoever gets it may lag."""
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one", "two")
    [name], moved, back = names_on("two", "one", "two", count=1), list[float](), list[float]()

    def insist(verb: str, resource: Resource, old: Object | None, new: Object) -> Object:
        if resource == OWNERS and old is not None:
            new["metadata"].setdefault("labels", {})[LABELS.drain] = "yes"
            moved.append(clock.monotonic())
        if resource == LEASES and new["metadata"]["name"] == "one" and not new["spec"]["holderIdentity"]:
            back.append(clock.monotonic())
        return new

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.create(OWNERS, thing(name, shard="one", draining=True))
        stage.server.admit = insist
        await stage.pass_time(1)
        stage.crash("one")
        await stage.until(lambda: bool(back), seconds=60)
        assert stage.label(OWNERS, name) == "two"
        assert back[0] - moved[0] >= RETURN_AFTER_SECONDS
