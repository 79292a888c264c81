"""Label patches that are taken and undone, by somebody's webhook say: they are not tried all the time; others are."""

from __future__ import annotations

from typing import Any, Final

import pytest

from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, OWNERS, Stage, leading, make_stage, names_on, ring, thing

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
