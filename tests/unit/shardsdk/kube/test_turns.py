"""Turns at a lane's connections: in order, shared between flows, lost by no cancellation."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardsdk.errors import ConnectionFailed
from shardsdk.kube import sessions
from shardsdk.kube.sessions import Lane
from shardsdk.kube.turns import FLOW, SHARE_OF_FREE, Turns
from tests.kube_fakes import CONFIGMAPS, FakeFence
from tests.kube_server import config_map, says, talking


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def queueing(turns: Turns, *flows: str) -> AsyncIterator[tuple[list[str], list[asyncio.Task[None]]]]:
    """Somebody of each flow who waits, in this order; which flows got a turn, in the order that they did."""
    came: list[str] = []

    async def queue(flow: str) -> None:
        await turns.take(flow)
        came.append(flow)

    tasks = [asyncio.create_task(queue(flow)) for flow in flows]
    await settle()
    try:
        yield came, tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def test_a_turn_that_is_given_back_goes_to_whoever_waits_and_not_to_whoever_asks_just_then() -> None:
    async def run() -> None:
        turns = Turns(1)
        await turns.take("")
        async with queueing(turns, "") as (came, _):
            turns.give_back("")
            again = asyncio.ensure_future(turns.take(""))
            await settle()
            assert came == [""]
            assert not again.done()
            again.cancel()
            await asyncio.wait([again])

    asyncio.run(run())


async def test_flows_take_turns_and_keep_their_own_order() -> None:
    turns = Turns(1)
    await turns.take("a")
    async with queueing(turns, "a", "a", "a", "b", "b", "c") as (came, tasks):
        for held in "aabcab":
            turns.give_back(held)
            await settle()
        assert came == ["a", "b", "c", "a", "b", "a"]
        assert [task.done() for task in tasks] == [True] * 6


async def test_a_flow_whose_turns_never_end_leaves_some_to_others() -> None:
    turns = Turns(64)
    async with queueing(turns, *["hangs"] * 100, "other") as (came, _):
        assert came.count("hangs") == 48
        assert came[-1] == "other"
    assert turns.held == 49


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_few_turns_are_all_given(limit: int) -> None:
    turns = Turns(limit)
    async with queueing(turns, *[""] * 5) as (came, _):
        assert len(came) == min(limit, max(1, limit * SHARE_OF_FREE // (SHARE_OF_FREE + 1) + 1))


async def test_whoever_is_cancelled_while_waiting_is_passed_over() -> None:
    turns = Turns(1)
    await turns.take("")
    async with queueing(turns, "a", "b") as (came, tasks):
        tasks[0].cancel()
        await settle()
        turns.give_back("")
        await settle()
        assert came == ["b"]


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_a_turn_whose_owner_is_cancelled_just_then_goes_to_the_next(cancelled_first: bool) -> None:
    turns = Turns(1)
    await turns.take("")
    async with queueing(turns, "a", "b") as (came, tasks):
        if cancelled_first:
            tasks[0].cancel()
        turns.give_back("")
        tasks[0].cancel()
        await settle()
        assert came == ["b"]
        assert turns.held == 1


@given(
    st.integers(1, 8), st.lists(st.tuples(st.sampled_from(["take", "back", "cancel"]), st.integers(0, 2)), max_size=80)
)
@settings(max_examples=200, deadline=None)
def test_no_turn_is_lost_or_given_twice(limit: int, steps: list[tuple[str, int]]) -> None:
    async def run() -> None:
        turns = Turns(limit)
        holding: list[str] = []
        waiting: list[tuple[str, asyncio.Task[None]]] = []

        async def queue(flow: str) -> None:
            await turns.take(flow)
            holding.append(flow)

        for what, number in steps:
            match what:
                case "take":
                    waiting.append((f"flow-{number}", asyncio.create_task(queue(f"flow-{number}"))))
                case "back" if holding:
                    turns.give_back(holding.pop(number % len(holding)))
                case "cancel" if waiting:
                    waiting.pop(number % len(waiting))[1].cancel()
                case _:
                    continue
            if number:
                await settle()
                waiting = [(flow, task) for flow, task in waiting if not task.done()]
        await settle()
        assert turns.held == len(holding) <= limit
        while holding:
            turns.give_back(holding.pop())
            await settle()
        assert all(task.done() for _, task in waiting), "whoever waits has had a turn"
        assert turns.held == 0

    asyncio.run(run())


async def test_with_more_writers_than_connections_nobody_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp's pool alone gives a connection to the writer that has just given it back, again and again."""
    connections, writers, writes = 3, 24, 12
    monkeypatch.setattr(sessions, "CONNECTIONS", dict.fromkeys(Lane, connections))
    async with talking(says(config_map("a"))) as (client, server):

        async def write(number: int) -> None:
            for _ in range(writes):
                await client.patch(CONFIGMAPS, f"writer-{number}", "default", {})

        async with asyncio.TaskGroup() as tasks:
            for number in range(writers):
                tasks.create_task(write(number))
        arrived = [each.path for each in server.seen]
    for path in set(arrived):
        mine = [index for index, each in enumerate(arrived) if each == path]
        assert len(mine) == writes
        # At first, and after each of its own: everybody else once, and who is under way beside it.
        waited = [after - before for before, after in itertools.pairwise([-1, *mine])]
        assert max(waited) <= writers + 2 * connections


async def test_a_ring_whose_writes_hang_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CONNECTIONS", dict.fromkeys(Lane, 8))
    hung = asyncio.Event()

    async def answer(request: Any) -> Any:
        if "hangs" in request.path:
            await hung.wait()
        return await says(config_map("a"))(request)

    async with talking(answer) as (client, server):

        async def write(ring: str) -> None:
            FLOW.set(ring)
            await client.patch(CONFIGMAPS, ring, "default", {})

        hanging = [asyncio.create_task(write("hangs")) for _ in range(20)]
        while len(server.seen) < 6:
            await asyncio.sleep(0.001)
        for _ in range(10):
            await asyncio.create_task(write("other"))
        assert [each.path.rpartition("/")[2] for each in server.seen[6:]] == ["other"] * 10
        hung.set()
        await asyncio.gather(*hanging)


async def test_who_waits_in_vain_is_told_that_no_connection_was_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CONNECTIONS", dict.fromkeys(Lane, 1))
    hung = asyncio.Event()

    async def never(request: Any) -> Any:
        await hung.wait()
        return await says(config_map("a"))(request)

    async with talking(never) as (client, server):
        first = asyncio.ensure_future(client.patch(CONFIGMAPS, "a", "default", {}))
        await server.arrived.wait()
        with pytest.raises(ConnectionFailed, match=r"patch configmaps default/b: no connection was free to .* within"):
            await client.patch(CONFIGMAPS, "b", "default", {}, fences=[FakeFence(left=0.2)])
        assert len(server.seen) == 1
        hung.set()
        await first
        await client.patch(CONFIGMAPS, "c", "default", {})
