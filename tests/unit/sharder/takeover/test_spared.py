"""Leases that ran out while nobody was let write them: their shards have time to come back, and no longer than that."""

from __future__ import annotations

from datetime import datetime, timedelta
from re import findall
from typing import Any

import pytest

from sharder.takeover.lease_client import PROMPT_SECONDS, REQUEST_SECONDS
from sharder.takeover.records import SLOW_DURATIONS
from shardsdk.errors import (
    BadRequest,
    Conflict,
    ConnectionFailed,
    Forbidden,
    Invalid,
    ServerError,
    ShardingError,
    TooManyRequests,
)
from shardsdk.kube.api import Operation, RawRequest
from shardsdk.protocol.labels import LEASE_STATE_LABEL
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, OWNERS, SHARDS, leading, make_stage, names_on, ring, thing
from tests.unit.sharder.takeover.test_refused import Refusing, two_shards, two_shards_by


@pytest.mark.parametrize("refusal", [Forbidden, Invalid, ServerError, ConnectionFailed])
@pytest.mark.parametrize("all_at_once", [False, True])
@in_virtual_time
async def test_shards_that_could_not_renew_either_get_their_duration_to_come_back(
    clock: VirtualClock, refusal: type[ShardingError], all_at_once: bool
) -> None:
    """A policy refuses every write of Leases in the shards' namespace, and spares the sharder's own."""
    stage, api, name = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refusal = refusal
        stage.crash("two")
        if not all_at_once:
            await stage.pass_time(5)
        stage.crash("one")
        await stage.pass_time(60)
        assert stage.said("ShardsAvailable")["reason"] in ("NobodyReady", "NotTakenOver")
        api.refusal = None
        stage.start("one")
        for _ in range(140):
            await stage.pass_time(0.1)
            assert stage.label(OWNERS, name) == stage.holder("two") == "two"
            assert not stage.draining(OWNERS, name)
        stage.start("two")
        await stage.until(lambda: stage.condition("ShardsAvailable") == "True", seconds=10)
        await stage.pass_time(60)
        assert stage.label(OWNERS, name) == "two"


@in_virtual_time
async def test_one_that_does_not_come_back_is_taken_over_after_that(clock: VirtualClock) -> None:
    stage, api, name = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refusal = ServerError
        stage.crash("two")
        await stage.until(lambda: api.attempts == 3)
        api.refusal = None
        passed = await stage.until(lambda: stage.label(OWNERS, name) == "one")
        assert 15 < passed < 25
        assert "NobodyReady" not in {reason for reason, _ in stage.events.taken}, "somebody is"


class Failing(MemoryApi):
    """Writes to the leases of shards fail for a moment, again and again, and so do dry runs."""

    clock: VirtualClock
    period = seconds = 0.0

    @property
    def fails(self) -> bool:
        return bool(self.period) and self.clock.monotonic() % self.period < self.seconds

    async def send(self, operation: Operation[Any]) -> Any:
        if self.fails and operation.writes and operation.namespace == SHARDS:
            raise ServerError("failed calling webhook")
        return await super().send(operation)

    async def exchange(self, request: RawRequest) -> bytes:
        if self.fails:
            raise ServerError("failed calling webhook")
        return b""


@pytest.mark.parametrize(("period", "seconds"), [(16.0, 2.0), (17.0, 4.0), (30.0, 3.0), (7.75, 1.5)])
@pytest.mark.parametrize("offset", [0.0, 0.25, 0.5, 0.75])
@in_virtual_time
async def test_what_fails_again_and_again_puts_a_takeover_off_once(
    clock: VirtualClock, period: float, seconds: float, offset: float
) -> None:
    stage, api, name = two_shards_by(clock, Failing)
    api.clock, api.seconds = clock, seconds
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(offset * period)
        api.period = period
        stage.crash("two")
        await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=2 * 15 + 15)


@in_virtual_time
async def test_each_time_that_a_shard_was_back_it_is_spared_again_if_it_has_to_be(clock: VirtualClock) -> None:
    stage, api, name = two_shards(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        for _ in range(2):
            attempts = api.attempts
            api.refusal = ServerError
            stage.crash("two")
            await stage.until(lambda: api.attempts > attempts)  # noqa: B023
            api.refusal = None
            await stage.pass_time(12)
            assert stage.label(OWNERS, name) == stage.holder("two") == "two"
            stage.start("two")
            await stage.pass_time(60)
        stage.crash("two")
        assert await stage.until(lambda: stage.label(OWNERS, name) == "one") < 25, "nothing was refused since"


@in_virtual_time
async def test_that_a_shard_that_lives_could_not_be_labelled_holds_nothing_up(clock: VirtualClock) -> None:
    stage, api, name = two_shards(clock)
    api.refusal = ServerError
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert api.attempts
        stage.crash("two")
        await stage.pass_time(10)  # it has not run out, and was looked at for the last time before it does
        api.refusal = None
        assert await stage.until(lambda: stage.label(OWNERS, name) == "one") < 8


@pytest.mark.parametrize("back", [True, False])
@in_virtual_time
async def test_a_long_wait_is_told_of_with_its_end(clock: VirtualClock, *, back: bool) -> None:
    stage = make_stage(clock, api=Refusing)
    api = stage.api
    assert isinstance(api, Refusing)
    stage.set_up(ring(ALONE), "one")
    stage.start("two", duration=300)
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="two"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("two")
        await stage.pass_time(200)
        api.refusal = ServerError
        await stage.until(lambda: api.attempts > 0, seconds=200)
        api.refusal = None
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False", seconds=10)
        assert stage.said("ShardsAvailable")["reason"] == stage.said("Settled")["reason"] == "NotTakenOver"
        message = stage.message("ShardsAvailable")
        assert message.startswith(f"1 of 2 shards are available; the Lease {SHARDS}/two ran out, and writes of it")
        [told] = findall(r"until (.{8}) UTC to renew it: start it again", message)
        await stage.pass_time(280)
        assert stage.message("ShardsAvailable") == message
        assert stage.condition("Settled") == "False"
        assert stage.label(OWNERS, name) == "two"
        if back:
            stage.start("two", duration=300)
            await stage.until(lambda: stage.condition("Settled") == "True", seconds=15)
        else:
            await stage.until(lambda: stage.label(OWNERS, name) == "one")
            until = datetime.strptime(f"{clock.now():%F} {told}+0000", "%Y-%m-%d %H:%M:%S%z")
            assert until <= clock.now() < until + timedelta(seconds=10)
        await stage.until(lambda: stage.condition("ShardsAvailable") == "True")
        assert len(stage.events.of("NotTakenOver")) == 1


@in_virtual_time
async def test_a_dry_run_that_meets_another_version_each_time_has_leases_listed_anew(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Behind(Refusing):
        overtaken = True

        async def exchange(self, request: RawRequest) -> bytes:
            if self.overtaken:
                raise Conflict("the object has been modified", status=409)
            return await super().exchange(request)

    stage = make_stage(clock, api=Behind)
    api = stage.api
    assert isinstance(api, Behind)
    stage.set_up(ring(ALONE), "one", "two")
    async with leading(stage):
        await stage.pass_time(10)
        api.refusal = ServerError
        stage.crash("two")
        await stage.until(lambda: api.attempts > 0)
        api.refusal = None
        await stage.pass_time(10)
        [told] = [each for each in caplog.records if "listing them anew" in each.getMessage()]
        assert "the one of shard two has changed" in vars(told)["why"]
        assert stage.holder("two") == "two"


class NoDryRuns(Refusing):
    """An API server, a webhook or a policy that takes none."""

    answer: ShardingError

    async def exchange(self, request: RawRequest) -> bytes:
        raise self.answer


@pytest.mark.parametrize(
    "answer",
    [
        BadRequest("admission webhook does not support dry run", status=400),
        Forbidden("a policy refuses dry runs", status=403),
        ServerError("failed calling webhook", status=500),
        TooManyRequests("not so many dry runs", status=429),
        Conflict("a webhook takes no dry runs for the time being", status=409),
    ],
)
@in_virtual_time
async def test_where_no_dry_run_is_taken_the_write_itself_tells(clock: VirtualClock, answer: ShardingError) -> None:
    stage, api, name = two_shards_by(clock, NoDryRuns)
    api.answer = answer
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refusal = Forbidden
        stage.crash("two")
        await stage.until(lambda: stage.said("ShardsAvailable")["reason"] == "NotTakenOver", seconds=300)
        attempts = api.attempts
        await stage.pass_time(5 * 15)
        assert 3 <= api.attempts - attempts <= 5, "once in a duration, since it takes the lease from its shard"
        api.refusal = None
        await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=40)


class SlowDryRuns(Refusing):
    """A webhook that takes its time for dry runs, and fails at them, or says nothing within the time of a request."""

    clock: VirtualClock
    seconds: float

    async def exchange(self, request: RawRequest) -> bytes:
        for _ in range(round(4 * self.seconds)):
            await self.clock.sleep(0.25)
        if self.seconds < REQUEST_SECONDS:
            raise ServerError("failed calling webhook: context deadline exceeded", status=500)
        raise ConnectionFailed("no answer")


@pytest.mark.parametrize("seconds", [PROMPT_SECONDS, 3.0, REQUEST_SECONDS])
@in_virtual_time
async def test_where_dry_runs_alone_are_slow_the_write_itself_is_tried_now_and_then(
    clock: VirtualClock, seconds: float
) -> None:
    """Else what is on the shard would have nobody for ever."""
    stage, api, name = two_shards_by(clock, SlowDryRuns)
    api.clock, api.seconds = clock, seconds
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refusal = Forbidden
        stage.crash("two")
        await stage.until(lambda: stage.said("ShardsAvailable")["reason"] == "NotTakenOver", seconds=300)
        attempts = api.attempts
        await stage.pass_time(3 * SLOW_DURATIONS * 15)
        assert 2 <= api.attempts - attempts <= 3
        api.refusal = None
        await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=SLOW_DURATIONS * 15 + 20)


@pytest.mark.parametrize("back", [True, False])
@in_virtual_time
async def test_a_policy_against_the_label_alone_holds_a_takeover_up_once(clock: VirtualClock, *, back: bool) -> None:
    class LabelRefused(MemoryApi):
        async def send(self, operation: Operation[Any]) -> Any:
            body: Any = operation.body or {}
            to_lease = operation.writes and operation.namespace == SHARDS
            if to_lease and "spec" not in body and body["metadata"]["labels"][LEASE_STATE_LABEL] != "ready":
                raise Forbidden("a policy refuses labels of leases", status=403)
            return await super().send(operation)

        async def exchange(self, request: RawRequest) -> bytes:
            return b""

    stage = make_stage(clock, api=LabelRefused)
    stage.set_up(ring(ALONE))
    for shard in ("one", "two"):
        stage.start(shard, duration=120, fenced=False)
    [name] = names_on("two", "one", "two")
    stage.create(OWNERS, thing(name, shard="two"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.crash("two")
        told = await stage.until(lambda: stage.condition("ShardsAvailable") == "False", seconds=600)
        assert 120 * 2 - 20 < told < 120 * 2 + 5
        if back:
            stage.start("two", duration=120, fenced=False)
            await stage.until(lambda: stage.condition("ShardsAvailable") == "True", seconds=5)
        else:
            passed = await stage.until(lambda: stage.label(OWNERS, name) == "one", seconds=600)
            assert told + passed < 120 * 3 + 20


class Hanging(MemoryApi):
    """A webhook of the shards' namespace whose answers take seconds: errors, until it is back."""

    clock: VirtualClock
    broken = False

    async def _review(self) -> None:
        for _ in range(16):
            if not self.broken:
                return
            await self.clock.sleep(0.25)
        raise ServerError("failed calling webhook: context deadline exceeded", status=500)

    async def send(self, operation: Operation[Any]) -> Any:
        if operation.writes and operation.namespace == SHARDS:
            await self._review()
        return await super().send(operation)

    async def exchange(self, request: RawRequest) -> bytes:
        await self._review()
        return b""


@pytest.mark.parametrize("seconds", range(60, 90))
@in_virtual_time
async def test_a_write_that_hangs_is_not_the_first_to_pass_once_writes_pass_again(
    clock: VirtualClock, seconds: int
) -> None:
    """Behind a dry run whose error took seconds the write would wait as long, and take the lease at the end."""
    stage, api, name = two_shards_by(clock, Hanging)
    api.clock = clock
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.broken = True
        stage.crash("two")
        await stage.pass_time(seconds)
        api.broken = False
        await stage.pass_time(12)
        assert stage.label(OWNERS, name) == stage.holder("two") == "two"
