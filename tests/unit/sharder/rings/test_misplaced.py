"""Objects that are not on the shard where they belong, and stay there: the ring says so, and why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shardsdk.errors import Invalid
from shardsdk.kube.api import Operation
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    OWNERS,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)


class Refusing(MemoryApi):
    """Objects cannot be changed."""

    refuses = False

    async def send(self, operation: Operation[Any]) -> Any:
        if self.refuses and operation.resource == OWNERS and operation.writes:
            raise Invalid("patch owners: an admission policy refuses it", status=422)
        return await super().send(operation)


def settled(stage: Stage) -> tuple[str, str, str]:
    found = stage.said("Settled")
    return found["status"], found["reason"], found["message"]


def everything_said(stage: Stage) -> list[tuple[str, str, str]]:
    """What the condition says from now on, whenever that is something else; filled as time passes."""
    found, last = list[tuple[str, str, str]](), [settled(stage)]

    def look(change: Change) -> None:
        if (now := settled(stage)) != last[0]:
            last[0] = now
            found.append(now)

    stage.server.listeners.append(look)
    return found


@asynccontextmanager
async def refused(clock: VirtualClock) -> AsyncIterator[tuple[Stage, Refusing, list[str]]]:
    """Three objects that belong on a shard which has come, and cannot be moved there; the ring says so."""
    stage = make_stage(clock, api=Refusing)
    api = stage.api
    assert isinstance(api, Refusing)
    stage.set_up(ring(ALONE), "one")
    names = names_on("two", "one", "two", count=3)
    for name in names:
        stage.create(OWNERS, thing(name, shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refuses = True
        stage.start("two")
        await stage.until(lambda: settled(stage)[1] == "Refused", seconds=30)
        yield stage, api, names


@in_virtual_time
async def test_that_they_cannot_be_moved_is_said_until_they_can(clock: VirtualClock) -> None:
    async with refused(clock) as (stage, api, names):
        await stage.pass_time(60)
        said, patches = everything_said(stage), stage.patches(CLUSTERRINGS)
        await stage.pass_time(1200)
        assert not said, "it neither comes and goes nor counts"
        assert stage.patches(CLUSTERRINGS) == patches
        assert settled(stage)[:2] == ("False", "Refused")
        assert settled(stage)[2].startswith(
            "0 unassigned, 0 stranded, 0 draining; the last resync has found objects that are not where they should be;"
            " the API server refuses to change some of them"
        )
        api.refuses = False
        await stage.until(lambda: all(stage.draining(OWNERS, each) for each in names))
        await stage.until(lambda: settled(stage)[1] == "Moving")
        for name in names:
            stage.acknowledge(name)
        await stage.until(lambda: stage.condition("Settled") == "True")


@in_virtual_time
async def test_those_that_are_deleted_are_said_no_more(clock: VirtualClock) -> None:
    async with refused(clock) as (stage, _, names):
        for name in names:
            stage.server.delete(OWNERS, name, "default")
        await stage.until(lambda: stage.condition("Settled") == "True")


@pytest.mark.parametrize("resources", [(ALONE,), ()], ids=["alone", "with children"])
@in_virtual_time
async def test_that_stranded_ones_are_refused_is_said_all_the_time(
    clock: VirtualClock, resources: tuple[Any, ...]
) -> None:
    stage = make_stage(clock, api=Refusing)
    assert isinstance(stage.api, Refusing)
    stage.set_up(ring(*resources), "one", "two")
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="two"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.refuses = True
        stage.crash("two")
        await stage.until(lambda: settled(stage)[1] == "Refused")
        await stage.pass_time(60)
        said = everything_said(stage)
        await stage.pass_time(1200)
        assert {reason for _, reason, _ in said} <= {"Refused"}
        assert settled(stage)[1] == "Refused"
        stage.api.refuses = False
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=300)


@in_virtual_time
async def test_that_no_resync_has_ended_is_said_until_one_has_and_not_whenever_a_shard_comes(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    said: set[str] = set()
    stage.server.listeners.append(
        lambda change: said.add(settled(stage)[2]) if stage.condition("Settled") == "Unknown" else None
    )
    stage.start("one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert said == {"no resync has ended yet"}
        said.clear()
        stage.start("two")
        await stage.until(lambda: stage.condition("Settled") == "Unknown")
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert len(said) == 1
        assert "shards came or went" in said.pop()
