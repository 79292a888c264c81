"""Objects whose label patches fail for long, as while a webhook is down: told, and tried at a bearable pace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

import pytest

from sharder.backlog.backlog import RETRY_SECONDS
from sharder.backlog.objects import RingResource
from sharder.core import patches
from sharder.core.ringspec import ResolvedMain, Role, Subject
from sharder.placement.rejections import Refusals
from sharder.rings.status import REFUSED
from shardsdk.errors import ConnectionFailed, ServerError, ShardingError, TooManyRequests
from shardsdk.protocol.objects import Resource, SlimMeta
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family
from tests.unit.sharder.placement.stage import ALONE, LABELS, OWNERS, Stage, leading, make_stage, names_on, ring, thing

DOWN: Final = ServerError('Internal error occurred: failed calling webhook "policy.example.org"', status=500)
MANY: Final = 200


class Failing(MemoryApi):
    """Patches of some objects, or of all, are answered by an error, after some seconds; others go through."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.down: ShardingError | None = None
        self.resources: tuple[Resource, ...] | None = (OWNERS,)
        self.only: frozenset[str] = frozenset()
        self.seconds = 0.0
        self.failed = 0

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        meant = self.resources is None or resource in self.resources
        if self.down is not None and meant and (not self.only or name in self.only):
            self.failed += 1
            await asyncio.sleep(self.seconds)
            raise type(self.down)(str(self.down))  # each answer is another
        return await super().patch(resource, name, namespace, body, **more)


def failing_stage(clock: VirtualClock, *resources: Any) -> tuple[Stage, Failing]:
    stage = make_stage(clock, api=Failing)
    assert isinstance(stage.api, Failing)
    stage.set_up(ring(*resources), "one")
    return stage, stage.api


def create(stage: Stage, number: int) -> list[str]:
    names = [f"it-{each}" for each in range(number)]
    for name in names:
        stage.create(OWNERS, thing(name))
    return names


def placed(stage: Stage, names: Iterable[str]) -> bool:
    return {stage.label(OWNERS, name) for name in names} == {"one"}


@pytest.mark.parametrize(
    "error",
    [DOWN, ConnectionFailed("no answer within 30 s"), TooManyRequests("a webhook asks for it", status=429)],
)
@in_virtual_time
async def test_what_fails_for_long_is_told_with_its_answer_and_a_remedy(
    clock: VirtualClock, error: ShardingError
) -> None:
    stage, api = failing_stage(clock, ALONE)
    api.down = error
    async with leading(stage):
        create(stage, 3)
        await stage.pass_time(80)
        assert not stage.events.of(REFUSED)
        await stage.until(lambda: bool(stage.events.of(REFUSED)), seconds=30)
        assert str(error) in stage.events.of(REFUSED)[0]
        assert "conversion webhook of owners.example.org" in stage.events.of(REFUSED)[0]
        await stage.until(lambda: stage.said("Settled").get("reason") == "Refused", seconds=10)
        api.down = None
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=60)


@in_virtual_time
async def test_patches_that_nobody_answers_are_told_though_few_are_tried(clock: VirtualClock) -> None:
    stage, api = failing_stage(clock, ALONE)
    api.down, api.seconds = ConnectionFailed("no answer within 30 s"), 30.0
    async with leading(stage):
        create(stage, MANY)
        await stage.until(lambda: bool(stage.events.of(REFUSED)), seconds=150)


@in_virtual_time
async def test_a_webhook_that_is_called_for_some_objects_only_is_told_as_well(clock: VirtualClock) -> None:
    stage, api = failing_stage(clock, ALONE)
    api.down, api.only = DOWN, frozenset({"it-0", "it-1"})
    async with leading(stage):
        names = create(stage, 2)
        for number in range(30):
            stage.create(OWNERS, thing(f"other-{number}"))
            await stage.pass_time(5)
        [event, *_] = stage.events.of(REFUSED)
        assert "default/it-" in event
        api.down = None
        await stage.until(lambda: placed(stage, names), seconds=1.5 * RETRY_SECONDS[1])


@pytest.mark.parametrize("family", [False, True])
def test_many_that_fail_are_tried_once_a_minute_and_cost_few_lines(
    family: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def story(clock: VirtualClock) -> None:
        stage, api = failing_stage(clock, *(() if family else (ALONE,)))
        api.down = DOWN
        async with leading(stage):
            names = create(stage, MANY)
            await stage.pass_time(300)
            caplog.clear()
            api.failed = 0
            await stage.pass_time(120)
            # An owner with children that no shard has waits for this patch alone, and is tried more often.
            assert api.failed <= (7 if family else 1.5) * 2 * MANY
            told = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
            assert len(told) <= 120 / 10 + 1 + 2
            assert "object cannot be placed" in told
            api.down = None
            await stage.until(lambda: placed(stage, names), seconds=1.5 * RETRY_SECONDS[1])

    story()


def test_a_blip_costs_a_line_and_no_pause(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def story(clock: VirtualClock) -> None:
        stage, api = failing_stage(clock, ALONE)
        api.down = DOWN
        async with leading(stage):
            names = create(stage, MANY)
            await stage.pass_time(5)
            api.down = None
            await stage.until(lambda: placed(stage, names), seconds=10)
            await stage.pass_time(300)
            assert not stage.events.of(REFUSED)

    story()
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == [
        "object not placed, will retry"
    ]


@in_virtual_time
async def test_two_blips_are_no_lasting_failure(clock: VirtualClock) -> None:
    stage, api = failing_stage(clock, ALONE)
    async with leading(stage):
        await stage.pass_time(5)
        for number in range(2):
            api.down = DOWN
            stage.create(OWNERS, thing(f"it-{number}"))
            await stage.pass_time(1)
            stage.server.delete(OWNERS, f"it-{number}", "default")  # so that it is never taken
            api.down = None
            await stage.pass_time(200)
        assert not stage.events.of(REFUSED)


@in_virtual_time
async def test_blips_with_success_of_others_in_between_are_none_either(clock: VirtualClock) -> None:
    """What waits for its turn is not tried meanwhile."""
    stage, api = failing_stage(clock, ALONE)
    stage.start("two")
    names = names_on("two", "one", "two", count=40)
    for name in names:
        stage.create(OWNERS, thing(name, shard="two"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.down = DOWN
        stage.start("three")
        await stage.pass_time(5)
        api.down = None
        await stage.pass_time(95)
        api.down = DOWN
        for name in names:
            if stage.draining(OWNERS, name):
                stage.acknowledge(name)
        await stage.pass_time(5)
        api.down = None
        await stage.pass_time(20)
        assert not stage.events.of(REFUSED)


@in_virtual_time
async def test_nothing_of_an_api_outage_is_called_refused(clock: VirtualClock) -> None:
    stage, api = failing_stage(clock, ALONE)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.down, api.resources = ConnectionFailed("connection refused"), None
        names = create(stage, 20)
        await stage.pass_time(600)
        assert not stage.events.of(REFUSED)
        api.down = None
        await stage.until(lambda: placed(stage, names), seconds=90)
        await stage.pass_time(120)
        assert not stage.events.of(REFUSED)


@in_virtual_time
async def test_a_family_on_a_shard_that_is_gone_moves_soon_once_its_patches_go_through(clock: VirtualClock) -> None:
    stage, api = failing_stage(clock)
    stage.start("two")
    owners = names_on("two", "one", "two", count=5)
    for owner in owners:
        create_family(stage, owner, shard="two", children=("two",))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.down = DOWN
        stage.crash("two")
        await stage.pass_time(400)
        assert stage.events.of(REFUSED)
        api.down = None
        await stage.until(lambda: placed(stage, owners), seconds=120)  # the lease was given back meanwhile


def test_what_nobody_has_answered_counts_as_failing_and_not_as_refused() -> None:
    """A patch that was refused is not executed; one that was not answered may be."""
    refusals, owners = Refusals(LABELS), RingResource(Subject(Role.MAIN, OWNERS, ResolvedMain(OWNERS)))
    it = SlimMeta(name="it", namespace="default")
    for moment in (0.0, 50.0, 100.0):
        refusals.note(owners, it, patches.assign(LABELS, "one", "1"), ServerError("no", status=500), moment)
    assert refusals.pending
    assert refusals.any_lately(100.0)
    assert not refusals.has_object(owners, it)
    refusals.forget(owners, it, 101.0)
    assert not refusals.any_lately(101.0)
