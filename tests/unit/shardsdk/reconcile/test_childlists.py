"""Lists of children that take long: who comes next does not pay for them, and people hear of whoever waits."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import ServerError
from shardsdk.queueing.item import Priority
from shardsdk.reconcile.childlists import LATE_SECONDS, LIST_PAUSE_SECONDS, RECENT_LISTS, LateLists, ListPauses
from shardsdk.reconcile.state import Arrival, Children, ObjectState
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, Rig


@in_virtual_time
async def test_whoever_comes_after_a_slow_list_does_not_pay_for_it(clock: VirtualClock) -> None:
    """The network was slow once, and is well again."""
    rig = Rig(clock)
    async with rig.shard():
        await clock.sleep(5)
        rig.api.delay = lambda: 14.0
        rig.secret("during")
        await clock.sleep(1)
        rig.api.delay = lambda: 0.001
        while not rig.reconciled:
            await clock.sleep(0.1)
        rig.secret("after")
        await clock.sleep(2)
    assert rig.reconciled == ["during", "after"]


@pytest.mark.parametrize(
    ("seconds", "pauses"),
    [
        pytest.param([0.001, 0.002], [LIST_PAUSE_SECONDS, LIST_PAUSE_SECONDS], id="quick"),
        pytest.param([0.1, 0.2], [0.4, 0.8], id="as they cost"),
        pytest.param([14.0, 0.01, 0.01], [1.0, LIST_PAUSE_SECONDS, LIST_PAUSE_SECONDS], id="the first hangs"),
        pytest.param([0.1, 14.0, 0.1], [0.4, 1.6, 0.4], id="one hangs"),
        pytest.param([5.0, 5.0, 6.0], [1.0, 20.0, 24.0], id="a large set"),
        pytest.param([5.0, 5.0, 60.0], [1.0, 20.0, 80.0], id="one of a large set hangs"),
        pytest.param(
            [0.01, *[14.0] * (RECENT_LISTS + 2)],
            [LIST_PAUSE_SECONDS, *[1.0] * RECENT_LISTS, 56.0, 56.0],
            id="slow from some moment on",
        ),
    ],
)
def test_a_hang_is_forgiven_and_what_lasts_is_paid(seconds: list[float], pauses: list[float]) -> None:
    lists = ListPauses()
    assert [lists.after(each) for each in seconds] == pytest.approx(pauses)


@in_virtual_time
async def test_an_api_server_that_stays_slow_is_left_alone_for_most_of_the_time(clock: VirtualClock) -> None:
    """Though this shard has no children: the server looks through those of all."""
    rig = Rig(clock)
    begun: list[float] = []
    async with rig.shard() as reconciler:
        reconciler._barrier._on_list = lambda: begun.append(clock.monotonic())
        await clock.sleep(5)
        rig.secret("quick")
        await clock.sleep(5)
        rig.api.delay = lambda: 2.0
        for number in range(200):
            rig.secret(f"s{number}")
            await clock.sleep(1)
    apart = [after - before for before, after in itertools.pairwise(begun)][-5:]
    assert apart == pytest.approx([5 * 2 * 2.0] * 5)  # unlabelled children are a list of their own


@in_virtual_time
async def test_it_is_told_while_an_owner_waits_for_a_list_that_hangs(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)
    async with rig.shard():
        await clock.sleep(5)
        rig.secret("quick")
        await clock.sleep(LATE_SECONDS)
        assert _told(caplog) == []
        rig.api.delay = lambda: 50.0
        rig.secret("waits")
        await clock.sleep(2.5 * LATE_SECONDS)
        (told,) = _told(caplog)
        await clock.sleep(2.5 * LATE_SECONDS)
        assert _told(caplog) == [told]  # once a minute
    assert (vars(told)["namespace"], vars(told)["object"]) == ("default", "waits")
    assert vars(told)["resource"] == "configmaps"
    assert told.levelno == logging.WARNING


@in_virtual_time
async def test_between_a_list_that_failed_and_the_next_no_resource_is_blamed(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    state = ObjectState(Children.LISTING, arrival=Arrival(clock.monotonic(), Priority.FRESH, wakes=True))
    late = LateLists({Request("default", "waits"): state}, clock)
    with pytest.raises(ServerError), late.listing(CONFIGMAPS.group_resource):
        raise ServerError("etcd is away", status=500)
    telling = asyncio.create_task(late.run())
    await clock.sleep(1.5 * LATE_SECONDS)
    telling.cancel()
    (told,) = _told(caplog)
    assert "resource" not in vars(told)


@in_virtual_time
async def test_who_waits_for_a_write_of_its_own_waits_for_no_list(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)
    async with rig.shard() as reconciler:
        await clock.sleep(5)
        rig.secret("owner")
        await clock.sleep(1)

        async def settle() -> None:
            await clock.sleep(5 * LATE_SECONDS)

        barrier = reconciler._barrier
        barrier._settle = settle
        (thing,) = rig.server.select(rig.main.resource, "default")
        (owner,) = rig.main.requests()
        barrier.note_unanswered(owner, thing["metadata"]["uid"])
        await clock.sleep(6 * LATE_SECONDS)
        assert barrier.waiting == 0
    assert _told(caplog) == []


def _told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if "wait for a list of their children" in each.message]
