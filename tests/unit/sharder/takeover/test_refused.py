"""Leases that nobody acquires, though their shards are gone: what is there stays, and people are told.

The API server does not let the sharder do it, or no other shard is ready.
"""

from __future__ import annotations

import logging
from typing import Any, TypeVar

import pytest

from sharder.takeover.lease_client import UNSHOWN_SECONDS
from sharder.takeover.records import FAILURES_TOLD
from shardsdk.errors import ConnectionFailed, Forbidden, Invalid, ShardingError
from shardsdk.kube.api import Operation, RawRequest
from shardsdk.protocol.labels import LEASE_STATE_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    OWNERS,
    RING,
    SHARDS,
    Stage,
    leading,
    lease,
    make_stage,
    names_on,
    ring,
    thing,
)
from tests.unit.sharder.rings.test_overdue import leads

RETRIED = "lease not handled, will retry"


A = TypeVar("A", bound=MemoryApi)


class Refusing(MemoryApi):
    """Writes to the leases of shards are answered with an error, each time in other words; dry runs are like them."""

    refusal: type[ShardingError] | None = None
    down = False
    attempts = 0

    async def send(self, operation: Operation[Any]) -> Any:
        if self.refusal is not None and operation.writes and operation.namespace == SHARDS:
            self.attempts += 1
            raise self.refusal(f"patch leases: no, attempt {self.attempts}")
        if self.down:
            raise ConnectionFailed("connection refused")
        return await super().send(operation)

    async def exchange(self, request: RawRequest) -> bytes:
        assert ("dryRun", "All") in request.query
        assert request.path.startswith(LEASES.path(SHARDS, ""))
        if self.refusal is not None:
            self.attempts += 1
            raise self.refusal(f"patch leases: no, attempt {self.attempts}")
        return b""


def two_shards(clock: VirtualClock) -> tuple[Stage, Refusing, str]:
    """A ring with two shards, and the name of an object that is on the second."""
    return two_shards_by(clock, Refusing)


def two_shards_by(clock: VirtualClock, api: type[A]) -> tuple[Stage, A, str]:
    """The same, of a sharder with such a connection."""
    stage = make_stage(clock, api=api)
    assert isinstance(stage.api, api)
    stage.set_up(ring(ALONE), "one", "two")
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="two"))
    return stage, stage.api, name


@pytest.mark.parametrize("refusal", [Forbidden, Invalid])
@pytest.mark.parametrize("gone", ["crash", "release", "vanish"])
@in_virtual_time
async def test_it_is_told_with_the_answer_until_the_lease_is_acquired(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, gone: str, refusal: type[ShardingError]
) -> None:
    stage, api, name = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refusal = refusal
        if gone == "release":
            stage.release("two")
        else:
            stage.crash("two")
        if gone == "vanish":
            stage.server.delete(LEASES, "two", SHARDS)
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False", seconds=120)
        condition = stage.said("ShardsAvailable")
        assert condition["reason"] == "NotTakenOver"
        assert condition["message"].startswith("1 of ")
        lease = "the Lease of shard two" if gone == "vanish" else f"the Lease {SHARDS}/two"
        assert f"{lease} cannot be acquired to move what shard two has: patch leases: no" in condition["message"]
        assert stage.events.of("NotTakenOver") == [condition["message"]]
        await stage.pass_time(30)
        caplog.clear()
        before = stage.patches(CLUSTERRINGS)
        await stage.pass_time(3600)
        assert stage.label(OWNERS, name) == "two"
        assert len(stage.events.of("NotTakenOver")) == 1
        assert stage.patches(CLUSTERRINGS) == before, "though each answer has other words"
        assert 1 <= len([each for each in caplog.records if each.getMessage() == RETRIED]) <= 10
        api.refusal = None
        await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=30)
        await stage.until(lambda: stage.condition("ShardsAvailable") == "True", seconds=10)


@in_virtual_time
async def test_what_is_refused_for_a_moment_changes_nothing_of_the_status(clock: VirtualClock) -> None:
    stage, api, name = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refusal = Forbidden
        stage.crash("two")
        await stage.until(lambda: api.attempts == FAILURES_TOLD - 2, seconds=120)
        api.refusal = None
        await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=30)
        assert not stage.events.of("NotTakenOver")


def reasons(stage: Stage) -> list[tuple[str, str]]:
    """What the condition comes to, from now on; filled as time passes."""
    found = list[tuple[str, str]]()

    def look(change: Change) -> None:
        condition = stage.said("ShardsAvailable")
        if change.new is not None and (condition["status"], condition["reason"]) not in found[-1:]:
            found.append((condition["status"], condition["reason"]))

    stage.server.listeners.append(look)
    return found


@in_virtual_time
async def test_it_stays_true_when_the_last_shard_dies_that_could_take_over(clock: VirtualClock) -> None:
    stage, api, _ = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refusal = Forbidden
        stage.crash("two")
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False")
        seen = reasons(stage)
        stage.crash("one")
        await stage.until(lambda: stage.message("ShardsAvailable").startswith("0 of 2 shards are available"))
        assert f"; the Lease {SHARDS}/one ran out, and no other shard is ready" in stage.message("ShardsAvailable")
        assert f"the Lease {SHARDS}/two cannot be acquired" in stage.message("ShardsAvailable")
        await stage.pass_time(300)
        assert seen == [("False", "NotTakenOver")]
        assert not stage.events.of("Available")


@pytest.mark.parametrize("reason", ["NotTakenOver", "NobodyReady"])
@in_virtual_time
async def test_it_stays_true_when_another_replica_leads(clock: VirtualClock, reason: str) -> None:
    stage, api, name = two_shards(clock)
    async with leads(stage, 0):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("two")
        if reason == "NotTakenOver":
            api.refusal = Forbidden
        else:
            stage.crash("one")
        await stage.until(lambda: stage.said("ShardsAvailable")["reason"] == reason)
    seen, since = reasons(stage), stage.said("ShardsAvailable")["lastTransitionTime"]
    for number in (1, 2):
        async with leads(stage, number):
            await stage.pass_time(120)
    assert seen == [("False", reason)]
    assert stage.said("ShardsAvailable")["lastTransitionTime"] == since
    assert len(stage.events.of(reason)) == 1
    api.refusal = None
    # One that asks for decades is no shard's, and nothing waits for it.
    forever = lease(clock, "ever")
    stage.create(LEASES, {**forever, "spec": {**forever["spec"], "leaseDurationSeconds": 2**31 - 1}}, SHARDS)
    async with leads(stage, 3):
        if reason == "NobodyReady":
            stage.start("three")
        await stage.until(lambda: stage.label(OWNERS, name) in ("one", "three"))
        await stage.until(lambda: stage.condition("ShardsAvailable") == "True")
        await stage.pass_time(120)
        assert stage.condition("ShardsAvailable") == "True"
    for shard in stage.shards.values():
        shard.cancel()


@pytest.mark.parametrize("over", ["acquired", "renewed"])
@in_virtual_time
async def test_the_next_leader_says_that_it_is_over_as_soon_as_it_can_know(clock: VirtualClock, over: str) -> None:
    stage, api, name = two_shards(clock)
    async with leads(stage, 0):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refusal = Forbidden
        stage.crash("two")
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False")
    api.refusal = None
    if over == "renewed":
        stage.start("two")
    async with leads(stage, 1):
        if over == "acquired":
            await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=40)
        assert stage.condition("ShardsAvailable") == "False"
        await stage.until(lambda: stage.condition("ShardsAvailable") == "True", seconds=12)
    for shard in stage.shards.values():
        shard.cancel()


@in_virtual_time
async def test_that_nobody_is_ready_to_take_over_is_told_until_somebody_is(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one")
    stage.create(OWNERS, thing("it", shard="one"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("one")
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False", seconds=20)
        assert stage.said("ShardsAvailable")["reason"] == "NobodyReady"
        assert stage.message("ShardsAvailable") == (
            f"0 of 1 shards are available; the Lease {SHARDS}/one ran out, and no other shard is ready to take over"
            " what its shard has; start that shard again, or another one of this ring"
        )
        assert stage.server.get(CLUSTERRINGS, RING, None)["status"]["availableShards"] == 0
        await stage.pass_time(600)
        assert len(stage.events.of("NobodyReady")) == 1
        stage.start("two")
        await stage.until(lambda: stage.label(OWNERS, "it") == "two", seconds=20)
        await stage.until(lambda: stage.condition("ShardsAvailable") == "True", seconds=20)


@in_virtual_time
async def test_an_outage_of_the_api_server_is_no_news_of_a_single_shard(clock: VirtualClock) -> None:
    stage, api, _ = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.events.taken.clear()
        stage.crash("two")
        stage.crash("one")
        api.down = True
        await stage.pass_time(120)
        api.down = False
        stage.start("one")
        stage.start("two")
        await stage.pass_time(120)
        assert not {"NobodyReady", "NotTakenOver", "Available"} & {reason for reason, _ in stage.events.taken}


@in_virtual_time
async def test_a_placeholder_that_is_refused_in_another_namespace_is_told_of(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Refusing)
    assert isinstance(stage.api, Refusing)
    stage.create(NAMESPACES, {"metadata": {"name": "other", "labels": {}}}, None)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    stage.start("one", "other")
    stage.start("two")
    stage.create(OWNERS, thing("it", shard="ghost"))
    stage.api.refusal = Forbidden
    async with leading(stage):
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False")
        seen = reasons(stage)
        await stage.pass_time(900)
        assert seen == [("False", "NotTakenOver")]
        assert len(stage.events.of("NotTakenOver")) == 1
        stage.api.refusal = None
        await stage.until(lambda: stage.label(OWNERS, "it") != "ghost")
        await stage.until(lambda: stage.condition("ShardsAvailable") == "True")


@in_virtual_time
async def test_a_shard_that_holds_its_lease_again_is_available_though_its_lease_cannot_be_written(
    clock: VirtualClock,
) -> None:
    stage, api, _ = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refusal = Forbidden
        stage.crash("two")
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False")
        stage.start("two")
        await stage.until(lambda: stage.condition("ShardsAvailable") == "True", seconds=10)
        await stage.pass_time(300)
        assert stage.condition("ShardsAvailable") == "True"


class Unlabelled(MemoryApi):
    """Nobody may label a shard's lease with its state, at first."""

    refuses = True
    attempts = 0

    async def send(self, operation: Operation[Any]) -> Any:
        if self.refuses and operation.writes and operation.namespace == SHARDS:
            self.attempts += 1
            raise Forbidden("a policy refuses labels of leases", status=403)
        return await super().send(operation)


def test_a_lease_that_may_not_be_labelled_is_tried_once_a_minute_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def story(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=Unlabelled)
        assert isinstance(stage.api, Unlabelled)
        stage.set_up(ring(ALONE), "one", "two")

        def shown() -> set[str | None]:
            found = (stage.server.find(LEASES, shard, SHARDS) for shard in ("one", "two"))
            return {each["metadata"]["labels"].get(LEASE_STATE_LABEL) for each in found if each is not None}

        async with leading(stage):
            await stage.pass_time(600)
            assert 10 <= stage.api.attempts <= 24
            told = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
            assert set(told) == {"lease state not shown"}
            assert len(told) <= 11
            stage.api.refuses = False
            await stage.until(lambda: shown() == {"ready"}, seconds=UNSHOWN_SECONDS + 30)

    story()
