"""A ring's placement, as edits of the ring begin and end it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from sharder.placement.failing import CALM_SECONDS, TOLD_SECONDS
from sharder.placement.requeues import Requeues
from sharder.placement.slots import MAX_WRITES
from shardsdk.errors import ConnectionFailed, ServerError
from shardsdk.kube.api import Operation, Selection, WatchOptions
from shardsdk.protocol.objects import CLUSTERRINGS, NAMESPACES
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.processes import outside
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    OWNERS,
    RING,
    SlowApi,
    Stage,
    leading,
    make_stage,
    ring,
    thing,
)


class Watched(SlowApi):
    """Counts the watches that go on, by plural."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.watches: Counter[str] = Counter()

    async def read_events(self, selection: Selection[Any], options: WatchOptions) -> AsyncIterator[Any]:
        self.watches[selection.resource.plural] += 1
        try:
            async for event in super().read_events(selection, options):
                yield event
        finally:
            self.watches[selection.resource.plural] -= 1


@in_virtual_time
async def test_of_a_ring_that_is_spoilt_while_an_edit_waits_for_writes_nothing_is_left(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Watched)
    assert isinstance(stage.api, Watched)
    stage.set_up(ring(ALONE), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.api.watches[OWNERS.plural]
        stage.api.slow = {OWNERS.plural: 5.0}
        stage.create(OWNERS, thing("slow"))
        await stage.until(lambda: stage.patches(OWNERS) > 0)
        edited = {"resources": [ALONE | {"controlledResources": [{"resource": CHILDREN.plural}]}]}
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": edited})
        await stage.pass_time(1)
        spoilt = {"resources": [{"group": "No Group", "resource": "owners"}]}
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": spoilt})
        await stage.until(lambda: stage.condition("Ready") == "False")
        await stage.pass_time(10)
        assert not stage.api.watches[OWNERS.plural]
        assert not stage.api.watches[CHILDREN.plural]


class Unheard(SlowApi):
    """Of a write whose caller has gone nobody hears the answer: it counts as under way until its time is over."""

    async def send(self, operation: Operation[Any]) -> Any:
        try:
            return await super().send(operation)
        except asyncio.CancelledError:
            if operation.writes:
                over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_later(10.0, over.set_result, None)
                self._open.add(over)
                over.add_done_callback(self._open.discard)
            raise


class Breaking(SlowApi):
    """Connections break while an owner is written; it is written all the same."""

    async def send(self, operation: Operation[Any]) -> Any:
        if not operation.writes or operation.resource != OWNERS:
            return await super().send(operation)
        outside(super().send(operation))
        await asyncio.sleep(0.1)
        raise ConnectionFailed("the connection broke before the answer")


BOTH: Final = {"resources": [ALONE, {"resource": CHILDREN.plural}]}


@asynccontextmanager
async def edited_meanwhile(clock: VirtualClock, seconds: float, api: type[SlowApi] = Unheard) -> AsyncIterator[Stage]:
    """A ring that is to list children, too, while the label of an owner takes `seconds` to be written."""
    stage = make_stage(clock, api=api)
    assert isinstance(stage.api, SlowApi)
    stage.set_up(ring(ALONE), "one")
    stage.create(CHILDREN, thing("child"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.slow = {OWNERS.plural: seconds}
        stage.create(OWNERS, thing("slow"))
        await stage.until(lambda: stage.patches(OWNERS) > 0)
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": BOTH})
        yield stage


@in_virtual_time
async def test_an_edit_lets_what_is_being_written_end_and_goes_on(clock: VirtualClock) -> None:
    async with edited_meanwhile(clock, 0.5) as stage:
        await stage.until(lambda: stage.label(CHILDREN, "child") == "one", seconds=3)
        assert stage.label(OWNERS, "slow") == "one"


@in_virtual_time
async def test_nothing_is_placed_by_an_edit_while_a_write_of_before_may_still_be_executed(clock: VirtualClock) -> None:
    async with edited_meanwhile(clock, 6.0) as stage:
        await stage.until(lambda: stage.label(CHILDREN, "child") == "one", seconds=30)
        assert stage.label(OWNERS, "slow") == "one", "it has been executed by then"


@in_virtual_time
async def test_nor_while_one_may_be_whose_connection_has_broken(clock: VirtualClock) -> None:
    async with edited_meanwhile(clock, 6.0, Breaking) as stage:
        await stage.until(lambda: stage.label(CHILDREN, "child") == "one", seconds=30)
        assert stage.label(OWNERS, "slow") == "one", "it has been executed by then"


class FailingOnce(SlowApi):
    """The API server fails over the first owner that is written."""

    failed = False

    async def send(self, operation: Operation[Any]) -> Any:
        if operation.writes and operation.resource == OWNERS and not self.failed:
            self.failed = True
            raise ServerError("patch owners: etcd is away", status=500)
        return await super().send(operation)


@pytest.mark.parametrize("api", [SlowApi, FailingOnce])
@in_virtual_time
async def test_an_edit_does_not_wait_for_what_others_write(clock: VirtualClock, api: type[SlowApi]) -> None:
    """Nor where a write of the ring's own has had no answer that counts, but long ago."""
    stage = make_stage(clock, api=api)
    assert isinstance(stage.api, SlowApi)
    stage.set_up(ring(ALONE), "one")
    stage.create(CHILDREN, thing("child"))
    stage.create(NAMESPACES, {"metadata": {"name": "slow"}}, None)
    async with leading(stage):
        stage.create(OWNERS, thing("first"))
        await stage.until(lambda: stage.label(OWNERS, "first") == "one")
        await stage.pass_time(60)
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.slow = {NAMESPACES.plural: 25.0}
        hanging = asyncio.create_task(stage.api.patch(NAMESPACES, "slow", None, {"metadata": {"labels": {"a": "b"}}}))
        await stage.until(lambda: stage.patches(NAMESPACES) > 0)
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": BOTH})
        await stage.until(lambda: stage.label(CHILDREN, "child") == "one", seconds=5)
        assert not hanging.done()
        await hanging


class Outside(SlowApi):
    """An owner that is being written is written also where nobody waits for it any more."""

    async def send(self, operation: Operation[Any]) -> Any:
        if not operation.writes or operation.resource != OWNERS:
            return await super().send(operation)
        return await asyncio.shield(outside(super().send(operation)))


@in_virtual_time
async def test_what_waits_for_its_turn_when_an_edit_comes_is_not_sent_any_more(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Unheard)
    assert isinstance(stage.api, SlowApi)
    stage.set_up(ring(ALONE), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.slow = {OWNERS.plural: 0.7}
        for number in range(3 * MAX_WRITES):
            stage.create(OWNERS, thing(f"owner-{number}"))
        await stage.until(lambda: stage.patches(OWNERS) > 0)
        stage.create(CHILDREN, thing("child"))
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": BOTH})
        await stage.until(lambda: stage.label(CHILDREN, "child") == "one", seconds=8)


@in_virtual_time
async def test_another_ring_of_the_name_waits_for_what_the_first_has_sent(clock: VirtualClock) -> None:
    async with edited_meanwhile(clock, 8.0, Outside) as stage:
        stage.server.delete(CLUSTERRINGS, RING, None)
        await stage.pass_time(1)
        stage.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": BOTH}, None)
        await stage.until(lambda: stage.label(CHILDREN, "child") == "one", seconds=30)
        assert stage.label(OWNERS, "slow") == "one", "it has been executed by then"


@in_virtual_time
async def test_after_an_error_nothing_is_placed_while_a_write_of_before_may_still_be_executed(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = asyncio.Event()

    async def fail(requeues: object) -> None:
        await failing.wait()
        raise RuntimeError("an error that nobody thought of")

    monkeypatch.setattr(Requeues, "run", fail)
    stage = make_stage(clock, api=Outside)
    assert isinstance(stage.api, SlowApi)
    stage.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": BOTH}, None)
    stage.start("one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.slow = {OWNERS.plural: 12.0}
        stage.create(OWNERS, thing("slow"))
        await stage.until(lambda: stage.patches(OWNERS) > 0)
        failing.set()
        await stage.pass_time(0.01)
        monkeypatch.undo()
        stage.create(CHILDREN, thing("child"))
        await stage.until(lambda: stage.label(CHILDREN, "child") == "one", seconds=30)
        assert stage.label(OWNERS, "slow") == "one", "it has been executed by then"


class Broken(MemoryApi):
    """Something comes over a watch of owners that nobody expected."""

    broken = False

    async def read_events(self, selection: Selection[Any], options: WatchOptions) -> AsyncIterator[Any]:
        if self.broken and selection.resource == OWNERS:
            raise ArithmeticError("of a kind that is not handled")
        async for event in super().read_events(selection, options):
            yield event


@in_virtual_time
async def test_a_placement_that_fails_again_and_again_shows_in_the_rings_status(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Broken)
    assert isinstance(stage.api, Broken)
    stage.set_up(ring(ALONE), "one")
    stage.api.broken = True
    async with leading(stage):
        await stage.pass_time(TOLD_SECONDS - 5)
        assert stage.condition("Ready") == "True", "it may be over"
        await stage.until(lambda: "fails again and again" in stage.message("Ready"), seconds=60)
        assert stage.condition("Ready") == "False"
        stage.api.broken = False
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=CALM_SECONDS / 2)
        # Though nothing else changes then.
        await stage.until(lambda: stage.condition("Ready") == "True", seconds=CALM_SECONDS)
