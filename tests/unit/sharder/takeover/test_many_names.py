"""Objects of one namespace that carry very many names that no shard ever had hold up nobody else."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sharder.takeover import placeholders
from sharder.takeover.placeholders import MAX_COUNTED
from shardsdk.errors import Forbidden
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    LABELS,
    OWNERS,
    SHARDS,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    thing,
)
from tests.unit.sharder.placement.test_handover import Refusing

FEW = 8
MADE_UP = 5 * FEW


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there are for one namespace, so that tests need few objects."""
    monkeypatch.setattr(placeholders, "MAX_NAMES", FEW)


def crowd(stage: Stage) -> None:
    """Children of one owner, each on a shard of another name."""
    owner = stage.create(OWNERS, thing("owner", shard="one"))
    for number in range(MADE_UP):
        stage.create(CHILDREN, thing(f"child-{number}", shard=f"made-up-{number}", owner=owner))


def refusing_stage(clock: VirtualClock, *shards: str) -> Stage:
    """Of a ring whose crowd would stay."""
    stage = make_stage(clock, api=Refusing)
    stage.set_up(ring(), *shards)
    assert isinstance(stage.api, Refusing)
    stage.api.refused.update(f"child-{number}" for number in range(MADE_UP))
    return stage


def left(stage: Stage) -> int:
    """Children that still carry such a name."""
    return sum(str(stage.label(CHILDREN, f"child-{number}")).startswith("made-up") for number in range(MADE_UP))


def made_up(stage: Stage) -> int:
    """Leases of such names."""
    return sum(each["metadata"]["name"].startswith("made-up") for each in stage.server.select(LEASES))


@in_virtual_time
async def test_few_leases_are_made_at_a_time_for_names_that_never_had_one(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one", "two")
    crowd(stage)
    most = 0

    def all_moved() -> bool:
        nonlocal most
        most = max(most, made_up(stage))
        return not left(stage)

    with caplog.at_level(logging.WARNING):
        async with leading(stage):
            await stage.until(all_moved, seconds=1200)
            await stage.until(lambda: not made_up(stage))
            for number in range(MADE_UP):
                again = {"metadata": {"labels": {LABELS.shard: f"made-up-{number}"}}}
                stage.server.patch(CHILDREN, f"child-{number}", "default", again)
            assert left(stage) == MADE_UP
            await stage.until(all_moved, seconds=1200)
    assert FEW <= most <= FEW + 10, "as many more as are made at once"
    told = [record for record in caplog.records if "names of very many shards" in record.message]
    assert told
    assert {vars(record)["namespace"] for record in told} == {"default"}


@in_virtual_time
async def test_a_crowd_that_stays_holds_up_no_other_namespace_and_no_name_that_a_shard_has_had(
    clock: VirtualClock,
) -> None:
    stage = refusing_stage(clock, "one", "two")
    crowd(stage)
    [late], [there] = names_on("two", "one", "two"), names_on("two", "one", "two", namespace="another")
    async with leading(stage):
        await stage.until(lambda: made_up(stage) >= FEW, seconds=100)
        stage.create(OWNERS, thing(there, shard="restored"), "another")
        await stage.until(lambda: stage.label(OWNERS, there, "another") == "two", seconds=60)
        stage.start("three")
        await stage.until(lambda: stage.holder("three") == "three")
        stage.create(OWNERS, thing(late, shard="three"))
        stage.crash("three")
        stage.server.delete(LEASES, "three", SHARDS)
        await stage.until(lambda: stage.label(OWNERS, late) == "two", seconds=60)
        assert left(stage) == MADE_UP
    async with leading(stage):
        before = made_up(stage)
        await stage.pass_time(60)
        assert made_up(stage) == before, "whoever leads next counts what it finds"


@in_virtual_time
async def test_a_crowd_that_stays_hides_no_other_namespaces_objects_behind_as_many_of_the_same_name(
    clock: VirtualClock,
) -> None:
    """Of a name that others' objects carry as well, as after a backup was restored."""
    stage = refusing_stage(clock, "one", "two")
    crowd(stage)
    [there] = names_on("two", "one", "two", namespace="another")
    async with leading(stage):
        await stage.until(lambda: made_up(stage) >= FEW, seconds=100)
        for number in range(MAX_COUNTED + 1):
            stage.create(OWNERS, thing(f"same-{number}", shard="restored"))
        await stage.pass_time(60)
        stage.create(OWNERS, thing(there, shard="restored"), "another")
        await stage.until(lambda: stage.label(OWNERS, there, "another") == "two", seconds=60)


@in_virtual_time
async def test_a_name_that_a_shard_has_had_does_not_wait_either_once_it_has_had_a_placeholder(
    clock: VirtualClock,
) -> None:
    stage = refusing_stage(clock, "one", "two", "three")
    [late] = names_on("two", "one", "two")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.create(OWNERS, thing(late, shard="three"))
        stage.crash("three")
        stage.server.delete(LEASES, "three", SHARDS)
        await stage.until(lambda: stage.label(OWNERS, late) == "two", seconds=60)
        await stage.until(lambda: stage.server.find(LEASES, "three", SHARDS) is None, seconds=300)
        crowd(stage)
        await stage.until(lambda: made_up(stage) >= FEW, seconds=100)
        stage.server.patch(OWNERS, late, "default", {"metadata": {"labels": {LABELS.shard: "three"}}})
        await stage.until(lambda: stage.label(OWNERS, late) == "two", seconds=60)


class Half(MemoryApi):
    """Children cannot be read."""

    def _ask_for(self, resource: Any, namespace: Any, *verbs: str, name: str = "", part: str = "") -> Any:
        if resource == CHILDREN and {"list", "watch"} & set(verbs):
            raise Forbidden(f"list {resource.plural}: no right", status=403, reason="Forbidden")
        return super()._ask_for(resource, namespace, *verbs, name=name, part=part)


@in_virtual_time
async def test_names_take_turns_also_while_nobody_knows_whether_they_have_objects_left(clock: VirtualClock) -> None:
    """Their placeholders stay then, for what cannot be read may carry them."""
    stage = make_stage(clock, api=Half)
    stage.set_up(ring(ALONE, {"resource": CHILDREN.plural}), "one", "two")
    names = [f"it-{number}" for number in range(2 * FEW + 10)]
    async with leading(stage):
        await stage.pass_time(20)
        for number, name in enumerate(names):
            stage.create(OWNERS, thing(name, shard=f"made-up-{number}"))
        moved = {"one", "two"}
        await stage.until(lambda: {stage.label(OWNERS, name) for name in names} <= moved, seconds=600)


@in_virtual_time
async def test_placeholders_that_cannot_end_do_not_grow_without_bound(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody gives few objects other names again and again, while some kind cannot be read."""
    monkeypatch.setattr(placeholders, "MAX_UNSEEN", 2 * FEW)
    stage = make_stage(clock, api=Half)
    stage.set_up(ring(ALONE, {"resource": CHILDREN.plural}), "one", "two")
    for number in range(FEW):
        stage.create(OWNERS, thing(f"it-{number}", shard="one"))
    async with leading(stage):
        await stage.pass_time(20)
        for again in range(10):
            for number in range(FEW):
                label = {"metadata": {"labels": {LABELS.shard: f"made-up-{again}-{number}"}}}
                stage.server.patch(OWNERS, f"it-{number}", "default", label)
            await stage.pass_time(placeholders.SEEN_SECONDS + 20)
        assert FEW < made_up(stage) <= 2 * FEW + 2 * (FEW + 10)
