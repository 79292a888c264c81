"""An object is given away when this shard is done with it, and not before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import ServerError
from shardsdk.protocol.objects import PartialObject
from shardsdk.reconcile.context import Context
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import RING, SECRETS, Rig

Ctx = Context[PartialObject]


@in_virtual_time
async def test_an_idle_object_is_given_away_at_once_by_one_patch(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard():
        await clock.sleep(5)
        rig.drain("mine")
        before = len(rig.server.log)
        await clock.sleep(1)
    assert rig.labels("mine") == {}
    assert len(rig.server.log) == before + 1
    assert rig.counter("acknowledgements_total") == 1


@in_virtual_time
async def test_a_busy_object_is_given_away_when_its_reconcile_has_ended(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def slow(context: Ctx) -> None:
        await clock.sleep(100)
        assert rig.labels("mine")[RING.shard] == "shard-1"

    rig.secret("mine")
    async with rig.shard(slow):
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(90)
        assert RING.drain in rig.labels("mine")
        assert rig.counter("drains_waiting") == 1
        await clock.sleep(10)
        assert rig.labels("mine") == {}
        assert rig.counter("drains_waiting") == 0
    assert rig.reconciled == ["mine"]


@in_virtual_time
async def test_a_drain_waits_for_every_controller_of_the_resource(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def until(second: float) -> None:
        await clock.sleep(second - clock.monotonic())

    async def first(context: Ctx) -> None:
        await until(50)

    async def second(context: Ctx) -> None:
        await until(100)

    rig.secret("mine")
    async with rig.shard(first, also=second):
        await clock.sleep(5)
        rig.drain("mine")
        await until(95)
        assert RING.drain in rig.labels("mine")
        await until(105)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_a_drain_waits_for_a_write_that_has_no_answer_yet(clock: VirtualClock) -> None:
    """The reconcile is cancelled, but its write is on the way and may still be executed."""
    rig = Rig(clock)

    async def write(context: Ctx) -> None:
        rig.api.fault = Fault.UNANSWERED
        try:
            async with asyncio.timeout(1):
                await context.api.create(SECRETS, {"metadata": {"name": "other", "namespace": "default"}})
        except TimeoutError:
            pass
        finally:
            rig.api.fault = Fault.NONE

    rig.secret("mine")
    async with rig.shard(write):
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(1)
        assert not rig.resource.inflight.busy(next(iter(rig.main.requests())))
        assert RING.drain in rig.labels("mine")
        await clock.sleep(30)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_a_drain_that_comes_again_waits_for_what_was_written_between(clock: VirtualClock) -> None:
    """It was withdrawn while the shard waited for an earlier write, and a reconcile went between."""
    rig = Rig(clock)
    rig.hold.seconds = 60
    made: list[str] = []

    async def write(context: Ctx) -> None:
        made.append(f"other-{len(made)}")
        rig.api.delay = lambda: 20.0  # the request is on its way for so long
        try:
            async with asyncio.timeout(1):
                await context.api.create(SECRETS, {"metadata": {"name": made[-1], "namespace": "default"}})
        except TimeoutError:
            pass
        finally:
            rig.api.delay = lambda: 0.001

    rig.secret("mine")
    async with rig.shard(write, owns=False):
        await clock.sleep(2)
        rig.drain("mine")
        await clock.sleep(10)
        rig.relabel(SECRETS, "mine", drain=None)
        await clock.sleep(2)
        rig.drain("mine")
        await clock.sleep(12)
        assert made == ["other-0", "other-1"]
        assert rig.server.find(SECRETS, "other-1", "default") is None
        assert RING.drain in rig.labels("mine"), "the second write may still be executed"
        await clock.sleep(30)
        assert rig.labels("mine") == {}


def write_without_answer(rig: Rig, seconds: float) -> None:
    """Some write of this shard is under way for so long."""
    write = asyncio.get_running_loop().create_future()
    rig.api._open.add(write)
    write.add_done_callback(rig.api._open.discard)

    async def answer() -> None:
        await rig.clock.sleep(seconds)
        write.set_result(None)

    rig.tasks.append(asyncio.create_task(answer()))


@in_virtual_time
async def test_what_others_change_all_the_time_is_given_away_though_some_write_is_always_under_way(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    rig.secret("hot")
    async with rig.shard(owns=False):
        await clock.sleep(5)
        rig.drain("hot")
        for number in range(60):
            if RING.drain not in rig.labels("hot"):
                break
            if number % 2 == 0:
                write_without_answer(rig, seconds=3)
            rig.server.patch(SECRETS, "hot", "default", {"metadata": {"annotations": {"beat": str(number)}}})
            await clock.sleep(1)
        assert 3 <= number <= 6, "when the writes were answered that were under way as it was asked for"
        assert rig.labels("hot") == {}
    assert rig.reconciled == ["hot"]


@in_virtual_time
async def test_a_reconcile_that_comes_while_writes_settle_has_them_settled_anew(clock: VirtualClock) -> None:
    """None does while the drain is shown; should one, nobody is to have the object before its writes are dead."""
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard(owns=False):
        await clock.sleep(5)
        write_without_answer(rig, seconds=3)
        rig.drain("mine")
        await clock.sleep(1)
        with rig.resource.inflight.hold(Request("default", "mine")):
            write_without_answer(rig, seconds=20)
        await clock.sleep(18)
        assert RING.drain in rig.labels("mine")
        await clock.sleep(3)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_an_acknowledgement_that_failed_is_made_again_when_it_can_no_longer_be_executed(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    rig.secret("mine")

    def fail_once(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        rig.server.admit = lambda verb, resource, old, new: new
        write_without_answer(rig, seconds=20)  # behind a 5xx etcd may still have it in hand
        raise ServerError("etcd took too long", status=500, reason="InternalError")

    async with rig.shard(owns=False):
        await clock.sleep(5)
        rig.drain("mine")
        rig.server.admit = fail_once
        await clock.sleep(19)
        assert RING.drain in rig.labels("mine")
        assert rig.api.writes.count(("patch", "secrets", "mine")) == 1
        await clock.sleep(2)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_an_acknowledgement_that_meets_a_newer_object_changes_nothing_and_comes_again(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    # News are slow, so that the shard acknowledges a version that is gone already.
    rig.api.lag = lambda: 0.8
    async with rig.shard(owns=False):
        await clock.sleep(10)
        rig.drain("mine")
        await clock.sleep(0.5)
        rig.server.patch(SECRETS, "mine", "default", {"data": {"k": "v"}})
        await clock.sleep(10)
    assert rig.labels("mine") == {}
    assert rig.counter("acknowledge_conflicts_total") == 1
    assert rig.counter("acknowledgements_total") == 1


@in_virtual_time
async def test_a_drain_withdrawn_before_the_acknowledgement_keeps_the_object(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")

    async def slow(context: Ctx) -> None:
        await clock.sleep(20)

    async with rig.shard(slow):
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(1)
        rig.relabel(SECRETS, "mine", drain=None)
        await clock.sleep(100)
    assert rig.labels("mine") == {RING.shard: "shard-1"}
    assert rig.reconciled == ["mine", "mine"]


@in_virtual_time
async def test_an_acknowledgement_without_an_answer_is_sent_until_it_is_known(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard():
        await clock.sleep(5)
        rig.api.fault = Fault.REFUSED
        rig.drain("mine")
        await clock.sleep(5)
        assert RING.drain in rig.labels("mine")
        rig.api.fault = Fault.NONE
        await clock.sleep(120)
    assert rig.labels("mine") == {}


@in_virtual_time
async def test_another_shards_drain_is_not_ours_to_acknowledge(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("other", shard="shard-2")
    async with rig.shard():
        rig.drain("other")
        await clock.sleep(60)
    assert RING.drain in rig.labels("other")


@in_virtual_time
async def test_nothing_is_acknowledged_without_the_lease(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard():
        await clock.sleep(5)
        rig.hold.seconds = 0
        rig.drain("mine")
        await clock.sleep(60)
    assert RING.drain in rig.labels("mine")


@in_virtual_time
async def test_a_reconcile_may_be_cancelled_when_its_drain_waits_too_long(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def stuck(context: Ctx) -> None:
        await asyncio.Event().wait()

    rig.secret("mine")
    async with rig.shard(stuck, drain_timeout_seconds=30):
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(29)
        assert RING.drain in rig.labels("mine")
        await clock.sleep(2)
        assert rig.labels("mine") == {}


@in_virtual_time
async def test_the_webhook_may_answer_an_acknowledgement_with_the_same_shard(clock: VirtualClock) -> None:
    """Removing the labels may put the object back on this very shard, in the same request."""
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard():
        await clock.sleep(5)

        def place(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
            metadata = new["metadata"]
            assert isinstance(metadata, dict)
            metadata.setdefault("labels", {}).setdefault(RING.shard, "shard-1")
            return new

        rig.server.admit = place
        rig.drain("mine")
        await clock.sleep(5)
    assert rig.labels("mine") == {RING.shard: "shard-1"}
    assert rig.reconciled == ["mine", "mine"]


@in_virtual_time
async def test_many_drains_are_acknowledged_while_one_reconcile_is_stuck(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def stuck(context: Ctx) -> None:
        if context.request.name == "stuck":
            await asyncio.Event().wait()

    rig.secret("stuck")
    for number in range(200):
        rig.secret(f"s{number}")
    async with rig.shard(stuck, concurrency=1):
        await clock.sleep(5)
        for number in range(200):
            rig.drain(f"s{number}")
        await clock.sleep(5)
        assert all(rig.labels(f"s{number}") == {} for number in range(200))


@in_virtual_time
async def test_trouble_that_is_over_is_not_paid_for_object_by_object(clock: VirtualClock) -> None:
    """A thousand drains meet five seconds of errors that are answered at once, so that each of them fails."""
    rig = Rig(clock)
    for number in range(1000):
        rig.secret(f"s{number}")
    trouble_ends = 10.0

    def refuse(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        if clock.monotonic() < trouble_ends:
            raise ServerError("the API server restarts", status=500, reason="InternalError")
        return new

    async with rig.shard(owns=False):
        await clock.sleep(trouble_ends - 5 - clock.monotonic())
        for number in range(1000):
            rig.drain(f"s{number}")
        rig.server.admit = refuse
        await clock.sleep(4.9)
        assert not rig.counter("acknowledgements_total")
        assert len(rig.api.writes) > 1000
        await clock.sleep(10)
    assert [number for number in range(1000) if rig.labels(f"s{number}")] == []


@in_virtual_time
async def test_an_acknowledgement_that_does_not_count_is_made_again_after_a_growing_pause_and_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A webhook changes the object in each write, so the sharder puts the labels back."""
    rig = Rig(clock)
    rig.secret("mine")
    patch, voided = rig.server.patch, 0

    def void(*given: Any) -> Any:
        nonlocal voided
        if clock.monotonic() > 100:
            return patch(*given)
        voided += 1
        return patch(SECRETS, "mine", "default", {"metadata": {"annotations": {"written": str(voided)}}})

    async with rig.shard():
        await clock.sleep(5)
        rig.drain("mine")
        rig.server.patch = void  # type: ignore[method-assign, assignment]
        await clock.sleep(100)
        assert 10 < voided < 30
        told = [each for each in caplog.records if "acknowledgement of a drain does not count" in each.message]
        assert len(told) == voided - 1, "once may be chance"
        await clock.sleep(11)
        assert rig.labels("mine") == {}
