"""One placement per ring: what happens to it harms no other ring, and two of them never overlap."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sharder.core import takeover
from sharder.placement.placement import Placement
from sharder.placement.requeues import Requeues
from sharder.placement.slots import MAX_WRITES
from sharder.rings.leader import Leader
from shardsdk.errors import StreamInterrupted
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, GroupResource, Resource
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family, split_families
from tests.unit.sharder.placement.refusing import Interrupted, changes_of
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    LABELS,
    OWNERS,
    RING,
    SETTINGS,
    SlowApi,
    leading,
    lease,
    make_stage,
    names_on,
    ring,
    thing,
)


@in_virtual_time
async def test_a_changed_ring_places_nothing_before_what_is_on_its_way_has_arrived(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=SlowApi)
    assert isinstance(stage.api, SlowApi)
    split = split_families(stage)
    stage.set_up(ring(), "one", "two")
    with_three = set(names_on("three", "one", "two", "three", count=100))
    name = next(each for each in names_on("two", "one", "two", count=100) if each in with_three)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.slow[OWNERS.plural] = 5.0
        create_family(stage, name, shard=None, children=(None, None))
        await stage.until(lambda: ("patch", OWNERS.plural, name) in stage.api.writes)
        stage.start("three")
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"namespaceSelector": {"matchLabels": {}}}})
        await stage.until(lambda: stage.label(OWNERS, name) is not None, seconds=30)
        await stage.pass_time(10)
    assert not split


def test_of_a_ring_that_changes_again_and_again_one_placement_runs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the one before last still has to end, and the last never got to run."""
    running: list[Placement] = []
    most = 0

    async def run(placement: Placement) -> None:
        nonlocal most
        running.append(placement)
        most = max(most, len(running))
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(2)
            running.remove(placement)

    monkeypatch.setattr(Placement, "run", run)

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.create(CLUSTERRINGS, ring(), None)
        async with leading(stage):
            await stage.until(lambda: bool(running))
            for value in ("a", "b", "c"):
                selector = {"matchLabels": {"changed": value}}
                stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"namespaceSelector": selector}})
                await stage.pass_time(0.5)
            await stage.pass_time(10)
            assert len(running) == 1

    scenario()
    assert most == 1


def test_a_placement_that_fails_is_begun_anew_and_harms_no_other_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    run, failures = Requeues.run, ["placement/ring"]

    async def fail_once(requeues: Requeues) -> None:
        if (name := requeues._backlog.queue.name) in failures:
            failures.remove(name)
            await asyncio.sleep(1)
            raise KeyError("nobody expected this")
        await run(requeues)

    monkeypatch.setattr(Requeues, "run", fail_once)

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.create(CLUSTERRINGS, ring(), None)
        stage.create(CLUSTERRINGS, ring({"resource": CHILDREN.plural}, name="other"), None)
        stage.start("one")
        other = lease(clock, "two")
        other["metadata"]["labels"] = {"alpha.sharding.timebertt.dev/clusterring": "other"}
        async with leading(stage):
            stage.create(LEASES, other, "shards")
            await stage.until(lambda: not failures)
            await stage.pass_time(2)
            stage.create(CHILDREN, thing("others"))
            label = parse_ring_name("other").shard
            await stage.until(
                lambda: label in stage.server.get(CHILDREN, "others", "default")["metadata"].get("labels", {}),
                seconds=2,
            )
            stage.create(OWNERS, thing("mine"))
            await stage.until(lambda: stage.label(OWNERS, "mine") == "one", seconds=10)

    scenario()


@in_virtual_time
async def test_an_object_that_meets_an_error_nobody_expected_is_tried_again_and_that_is_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(clock, api=Interrupted)
    assert isinstance(stage.api, Interrupted)
    stage.set_up(ring(ALONE), "one")

    def fail() -> None:
        raise KeyError("nobody expected this")

    stage.api.before["it"] = fail
    stage.create(OWNERS, thing("it"))
    async with leading(stage):
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=1)
        [told] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert (told.getMessage(), vars(told)["object"]) == ("object not placed, will retry", "it")


@in_virtual_time
async def test_a_dead_shards_lease_is_given_back_some_seconds_after_the_last_of_its_objects_has_moved(
    clock: VirtualClock,
) -> None:
    """A shard that starts under its name must not find in a watch that lags what is somebody else's by now."""
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one", "two")
    [name] = names_on("one", "one", "two")
    stage.create(OWNERS, thing(name, shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        await stage.until(lambda: stage.label(OWNERS, name) == "two")
        assert await stage.until(lambda: stage.holder("one") == "") >= takeover.RETURN_AFTER_SECONDS - 0.1


@in_virtual_time
async def test_a_resource_is_written_down_before_any_of_its_objects_gets_a_label(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=SlowApi)
    assert isinstance(stage.api, SlowApi)
    early: list[Any] = []

    def look(change: Change) -> None:
        if change.resource == CHILDREN.group_resource and change.new is not None:
            listed = stage.server.get(CLUSTERRINGS, RING, None).get("status", {}).get("placedResources", [])
            known = [GroupResource(each["group"], each["resource"]) for each in listed]
            if LABELS.shard in change.new["metadata"].get("labels", {}) and CHILDREN.group_resource not in known:
                early.append(change)

    stage.server.listeners.append(look)
    stage.set_up(ring(ALONE), "one")
    stage.create(CHILDREN, thing("child"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.slow[CLUSTERRINGS.plural] = 2.0
        both = [ALONE, {"resource": CHILDREN.plural}]
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": both}})
        await stage.pass_time(1)
        stage.create(OWNERS, thing("meanwhile"))
        await stage.until(lambda: stage.label(OWNERS, "meanwhile") == "one", seconds=1)
        await stage.until(lambda: stage.label(CHILDREN, "child") == "one", seconds=10)
    assert not early


def test_controllers_that_fail_leave_caches_and_webhook_alone_and_lead_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run, failures = Leader.run, [1]

    async def fail_once(leader: Leader) -> None:
        if failures:
            failures.clear()
            await asyncio.sleep(5)
            raise KeyError("nobody expected this")
        await run(leader)

    monkeypatch.setattr(Leader, "run", fail_once)

    @in_virtual_time
    async def scenario(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.set_up(ring(), "one")
        async with leading(stage) as replica:
            await stage.until(lambda: not replica.elector.is_leader, seconds=10)
            assert replica.cache.view(RING) is not None
            stage.create(OWNERS, thing("it"))
            await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=10)

    scenario()


class Suspended(MemoryApi):
    """Once `suspended`, watches that were open say nothing more until their silence is noticed; new ones work."""

    suspended = False

    async def watch(
        self, resource: Resource, *args: Any, silence_seconds: float = 90.0, **kwargs: Any
    ) -> AsyncIterator[Any]:
        was = self.suspended
        async for event in super().watch(resource, *args, silence_seconds=silence_seconds, **kwargs):
            if self.suspended and not was:
                await asyncio.sleep(silence_seconds)
                raise StreamInterrupted(f"the watch said nothing for {silence_seconds:g} s")
            yield event


@in_virtual_time
async def test_when_the_watch_of_leases_hangs_all_others_begin_anew_with_it(clock: VirtualClock) -> None:
    """An API server of several is suspended; what is new is placed long before each silence is noticed."""
    stage = make_stage(clock, api=Suspended)
    assert isinstance(stage.api, Suspended)
    stage.set_up(ring(ALONE), "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.suspended = True
        stage.create(OWNERS, thing("new"))
        await stage.until(lambda: stage.label(OWNERS, "new") is not None, seconds=25)
        stage.create(OWNERS, thing("newer"))
        await stage.until(lambda: stage.label(OWNERS, "newer") is not None, seconds=2)


@in_virtual_time
async def test_what_was_given_to_a_dead_shard_last_is_taken_from_it_first(clock: VirtualClock) -> None:
    """Nobody has ever worked on what was made after its end."""
    stage = make_stage(clock, api=SlowApi)
    assert isinstance(stage.api, SlowApi)
    moved: list[str] = []
    stage.server.listeners.append(
        lambda change: (
            moved.append(change.new["metadata"]["name"])
            if change.resource == OWNERS.group_resource and change.old is not None and change.new is not None
            else None
        )
    )
    stage.set_up(ring(ALONE), "one", "two")
    names = names_on("one", "one", "two", count=60)
    for name in names:
        stage.create(OWNERS, thing(name, shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        await stage.pass_time(5)
        stage.create(OWNERS, thing("new", shard="one"))
        await stage.until(lambda: all(stage.label(OWNERS, name) == "two" for name in [*names, "new"]), seconds=60)
    assert moved.index("new") == 0


@in_virtual_time
async def test_what_waited_for_its_turn_while_a_shard_left_is_decided_anew(clock: VirtualClock) -> None:
    """It was for that shard, which would have it until its lease is taken over."""
    stage = make_stage(clock, api=SlowApi)
    assert isinstance(stage.api, SlowApi)
    stage.set_up(ring(ALONE), "one", "two")
    names = names_on("two", "one", "two", count=2 * MAX_WRITES)
    async with leading(stage, dataclasses.replace(SETTINGS, concurrent_moves=2 * MAX_WRITES)):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.slow[OWNERS.plural] = 3.0
        for name in names:
            stage.create(OWNERS, thing(name))
        await stage.until(lambda: stage.patches(OWNERS) == MAX_WRITES)
        sent = {name for _, plural, name in stage.api.writes if plural == OWNERS.plural}
        [waits, *_] = (name for name in names if name not in sent)
        changes = changes_of(stage, waits)
        stage.release("two")
        await stage.until(lambda: bool(changes))
        assert changes == [(None, "one")]
