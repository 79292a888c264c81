"""What a pace holds up, and what becomes of the place of a request that gives up."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.errors import ConnectionFailed
from shardsdk.kube.pace import AtMostEvery, Pace
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES
from tests.kube_fakes import CONFIGMAPS, ManualClock
from tests.kube_server import config_map, says, talking


def test_what_comes_again_and_again_passes_once_in_so_many_seconds_each_for_itself() -> None:
    news = AtMostEvery(10.0)
    comes = [(5.0, "a"), (5.0, "b"), (14.9, "a"), (15.0, "a"), (15.1, "b"), (24.9, "a"), (25.0, "a")]
    assert [moment for moment, about in comes if news.passes(moment, about)] == [5.0, 5.0, 15.0, 15.1, 25.0]


async def turns() -> None:
    """Let everybody go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lease_waits_for_no_request_of_another_kind() -> None:
    """A leader's label writes would cost it the lease that they are made under."""
    clock = ManualClock()
    async with talking(says({"metadata": {"name": "a", "namespace": "n"}}), clock=clock, qps=1) as (client, server):
        await client.get(CONFIGMAPS, "a", "n")
        waiting = [asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "n", {})) for _ in range(3)]
        await turns()
        await client.get(LEASES, "a", "n", model=Lease)
        await client.patch(LEASES, "a", "n", {}, model=Lease)
        assert [each.path.split("/")[-2] for each in server.seen] == ["configmaps", "leases", "leases"]
        for each in waiting:
            each.cancel()


@pytest.mark.parametrize("first", [0, 1], ids=["also the first in the line", "all but the first"])
async def test_requests_that_give_up_cost_those_behind_them_nothing(first: int) -> None:
    clock = ManualClock()
    pace = Pace(clock, qps=10)
    await pace.wait()
    waiting = [asyncio.ensure_future(pace.wait()) for _ in range(100)]
    await turns()
    last = asyncio.ensure_future(pace.wait())
    for each in waiting[first:]:
        each.cancel()
    await turns()
    for _ in range(first + 1):
        assert not last.done()
        clock.advance(0.1)
        await turns()
    assert last.done()


async def test_requests_go_in_the_order_in_which_they_came() -> None:
    clock = ManualClock()
    pace, gone = Pace(clock, qps=10, burst=2), list[int]()

    async def go(number: int) -> None:
        await pace.wait()
        gone.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(go(number))
        await turns()
        for passed in (2, 3, 4):
            assert gone == list(range(passed))
            clock.advance(0.1)
            await turns()
    assert gone == list(range(5))


async def test_a_request_that_its_own_pace_holds_up_in_vain_blames_no_api_server() -> None:
    async with talking(says(config_map("a")), qps=0.001, burst=1) as (client, server):
        await client.get(CONFIGMAPS, "a", "n")
        with pytest.raises(ConnectionFailed, match=r"n/a: no turn by its own qps to ask http.* within 0\.1 s"):
            await client.get(CONFIGMAPS, "a", "n", timeout_seconds=0.1)
        assert len(server.seen) == 1
