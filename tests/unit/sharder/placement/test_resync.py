"""Going through everything: what a pass must not miss, when it may stop, and when none is due."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest

from sharder.placement import resync, slots
from shardsdk.errors import ConnectionFailed, Forbidden, Invalid
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import NAMESPACES, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    LABELS,
    OWNERS,
    SETTINGS,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)

EVERYTHING: Final = Selector()
TEAM: Final = {"matchLabels": {"team": "a"}}


class Faulty(MemoryApi):
    """Reads that fail or take their time, writes that are refused or, all of them, not answered; by plural, by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.unreadable: set[str] = set()
        self.refused: set[str] = set()
        self.unanswered: set[str] = set()
        self.seconds_each = 0.0

    async def pages(
        self, resource: Resource, namespace: str | None = None, *, selector: Selector = EVERYTHING, **more: Any
    ) -> AsyncIterator[list[Any]]:
        if resource.plural in self.unreadable:
            self.lists.append(resource.plural)
            raise Forbidden(f"list {resource.plural}", status=403)
        async for page in super().pages(resource, namespace, selector=selector, **more):
            for each in page:
                await asyncio.sleep(self.seconds_each)
                yield [each]

    async def patch(self, resource: Resource, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if name in self.refused:
            raise Invalid(f"patch {name}: an admission policy refuses it", status=422)
        if resource.plural in self.unanswered:
            await asyncio.sleep(more["timeout_seconds"])
            raise ConnectionFailed(f"patch {name}: no answer within {more['timeout_seconds']:g} s")
        return await super().patch(resource, name, namespace, body, **more)


class Late(MemoryApi):
    """What happens to namespaces is told half a minute later."""

    async def watch(self, resource: Resource, *args: Any, **more: Any) -> AsyncIterator[Any]:
        listed = resource != NAMESPACES
        async for event in super().watch(resource, *args, **more):
            if resource == NAMESPACES and listed:
                await asyncio.sleep(30)
            listed = listed or event.initial_end
            yield event


def label_namespace(stage: Any, name: str, labels: Mapping[str, str | None]) -> None:
    stage.server.patch(NAMESPACES, name, None, {"metadata": {"labels": dict(labels)}})


@in_virtual_time
async def test_a_namespace_that_comes_into_scope_while_shards_come_is_gone_through(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE, namespaceSelector=TEAM), "one")
    stage.create(OWNERS, thing("waits"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        label_namespace(stage, "default", {"team": "a"})
        stage.start("two")
        await stage.until(lambda: stage.label(OWNERS, "waits") is not None, seconds=10)


@in_virtual_time
async def test_many_namespaces_that_come_into_scope_at_once_are_gone_through(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Faulty)
    assert isinstance(stage.api, Faulty)
    stage.set_up(ring(ALONE, namespaceSelector=TEAM), "one")
    names = [f"ns-{number}" for number in range(40)]
    for name in names:
        stage.create(NAMESPACES, {"metadata": {"name": name}}, None)
        stage.create(OWNERS, thing("waits"), name)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.seconds_each = 0.1
        for name in names:
            label_namespace(stage, name, {"team": "a"})
        await stage.until(lambda: all(stage.label(OWNERS, "waits", name) for name in names), seconds=10)


@in_virtual_time
async def test_what_waits_in_a_namespace_that_leaves_the_scope_is_not_waited_for(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Faulty)
    assert isinstance(stage.api, Faulty)
    stage.api.refused.add("refused")
    label_namespace(stage, "default", {"team": "a"})
    stage.set_up(ring(ALONE, namespaceSelector=TEAM), "one")
    stage.create(OWNERS, thing("refused"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") is not None)
        await stage.pass_time(30)
        assert stage.condition("Settled") != "True"
        label_namespace(stage, "default", {"team": None})
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=70)


@in_virtual_time
async def test_a_resource_that_cannot_be_read_keeps_no_other_from_being_gone_through(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Faulty)
    assert isinstance(stage.api, Faulty)
    stage.api.unreadable.add(OWNERS.plural)
    stage.set_up(ring(ALONE, {"resource": CHILDREN.plural}), "one", "two")
    [name] = names_on("two", "one", "two", resource=CHILDREN)
    stage.create(CHILDREN, thing(name, shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.draining(CHILDREN, name), seconds=10)


@in_virtual_time
async def test_a_pass_that_fails_is_not_made_again_at_once(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Faulty)
    assert isinstance(stage.api, Faulty)
    stage.set_up(ring(ALONE, namespaceSelector=TEAM), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.unreadable.add(OWNERS.plural)
        label_namespace(stage, "default", {"team": "a"})
        before = stage.api.lists.count(OWNERS.plural)
        await stage.pass_time(60)
        assert stage.api.lists.count(OWNERS.plural) - before < 20
        stage.api.unreadable.clear()
        stage.create(OWNERS, thing("waits"))
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=70)


@in_virtual_time
async def test_a_periodic_pass_soon_after_a_change_does_not_take_the_place_of_the_last_one(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one")
    async with leading(stage, dataclasses.replace(SETTINGS, sync_period_seconds=60)):
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(60 - clock.monotonic() - 3)
        stage.start("two")
        await stage.until(lambda: stage.condition("Settled") != "True", seconds=2)
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=16)


@in_virtual_time
async def test_a_shard_that_comes_and_goes_keeps_no_pass_from_reaching_its_end(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Faulty)
    assert isinstance(stage.api, Faulty)
    stage.set_up(ring(ALONE), "one", "two")
    with_flaps = set(names_on("one", "one", "two", "flaps", count=100))
    *before, last = sorted(with_flaps.intersection(names_on("one", "one", "two", count=100)))[:30]
    for name in before:
        stage.create(OWNERS, thing(name, shard="one"))
    stage.create(OWNERS, thing(last, shard="two"))
    stage.api.seconds_each = 0.5
    async with leading(stage):
        for _ in range(12):
            stage.start("flaps")
            await stage.pass_time(3)
            stage.release("flaps")
            await stage.pass_time(3)
        assert stage.draining(OWNERS, last)


@in_virtual_time
async def test_new_objects_that_admission_missed_cost_no_pass(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        before = stage.api.lists.count(OWNERS.plural)
        for number in range(60):
            stage.create(OWNERS, thing(f"generated-{number}"))
            await stage.pass_time(1)
        assert stage.api.lists.count(OWNERS.plural) - before <= 1
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=10)


@in_virtual_time
async def test_what_nothing_in_the_ring_controls_any_more_keeps_no_ring_from_settling(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    stage.create(CHILDREN, {"metadata": {"name": "orphan", "labels": {LABELS.shard: "one"}}}, "kube-system")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=30)


@in_virtual_time
async def test_nothing_is_taken_away_in_a_namespace_that_was_not_seen_yet(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Late)
    stage.set_up(ring(ALONE, namespaceSelector=TEAM), "one")
    [kept] = names_on("one", "one", "two", namespace="new")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.create(NAMESPACES, {"metadata": {"name": "new", "labels": {"team": "a"}}}, None)
        stage.create(OWNERS, thing(kept, shard="one"), "new")  # as the webhook does
        stage.create(OWNERS, thing("missed"), "new")
        stage.start("two")
        await stage.pass_time(25)
        assert not stage.draining(OWNERS, kept, "new")
        await stage.until(lambda: stage.label(OWNERS, "missed", "new") is not None, seconds=15)


@pytest.mark.parametrize(("namespaces", "most"), [(1, 6), (20, 6), (1, 1)])
def test_a_namespace_that_comes_into_scope_with_more_objects_than_may_wait_is_placed_to_the_end(
    monkeypatch: pytest.MonkeyPatch, namespaces: int, most: int
) -> None:
    """No watch holds them, as they did not change with their namespace; those that were left out are no exception."""
    monkeypatch.setattr(resync, "MAX_MISPLACED", most)

    @in_virtual_time
    async def crowded(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.set_up(ring(ALONE, namespaceSelector=TEAM), "one")
        teams = [f"team-{number}" for number in range(namespaces)]
        for name in teams:
            stage.create(NAMESPACES, {"metadata": {"name": name}}, None)
            for number in range(40 // namespaces):
                stage.create(OWNERS, thing(f"owner-{number}"), name)
        async with leading(stage):
            await stage.until(lambda: stage.condition("Settled") == "True")
            for name in teams:
                label_namespace(stage, name, {"team": "a"})
            await stage.until(
                lambda: all(LABELS.shard in each["metadata"].get("labels", {}) for each in stage.server.select(OWNERS)),
                seconds=100,
            )
            await stage.until(lambda: stage.condition("Settled") == "True")

    crowded()


@pytest.mark.parametrize("resources", [(), (ALONE,)], ids=["families", "single objects"])
def test_what_comes_into_scope_with_its_namespace_while_nothing_can_be_written_is_placed_afterwards(
    resources: tuple[Any, ...],
) -> None:
    """No watch holds it, so that whoever puts one off, as too many others wait for an answer, has to remember it."""

    @in_virtual_time
    async def unanswered(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=Faulty)
        assert isinstance(stage.api, Faulty)
        stage.set_up(ring(*resources, namespaceSelector=TEAM), "one")
        names = [f"owner-{number}" for number in range(3 * slots.MAX_SUSPECTED)]
        for name in names:
            stage.create(OWNERS, thing(name))
        async with leading(stage):
            await stage.until(lambda: stage.condition("Settled") == "True")
            stage.api.unanswered = {OWNERS.plural}
            label_namespace(stage, "default", {"team": "a"})
            await stage.pass_time(90)
            stage.api.unanswered = set()
            await stage.until(lambda: all(stage.label(OWNERS, name) == "one" for name in names), seconds=45)

    unanswered()
