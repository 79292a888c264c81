"""What a leader is told of its renewals: the moments that each lies between."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from shardsdk.errors import ConnectionFailed
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.election_rig import Candidates, running
from tests.simulation.machines import MachineClock


@in_virtual_time
async def test_each_confirmed_write_is_told_with_its_times(clock: VirtualClock) -> None:
    world = Candidates(clock)
    renewals: list[tuple[float, float]] = []
    elector, api = world.make("a", on_renewed=lambda sent, answered: renewals.append((sent, answered)))
    api.delay = lambda: 0.25
    await elector.run(world.lead("a", 21))
    assert len(renewals) >= 9
    assert all(answered - sent == pytest.approx(0.5) for sent, answered in renewals)
    assert all(2 <= later[0] - sooner[0] <= 2.4 for sooner, later in pairwise(renewals))


@in_virtual_time
async def test_a_write_is_told_as_sent_earlier_by_what_the_clock_was_found_to_have_missed_meanwhile(
    clock: VirtualClock,
) -> None:
    machine = MachineClock(clock)
    world = Candidates(clock)
    renewals: list[tuple[float, float]] = []
    elector, api = world.make("a", clock=machine, on_renewed=lambda *moments: renewals.append(moments))
    api.delay = lambda: 0.25
    async with running(elector.run(world.lead("a"))):
        await world.until(lambda: len(renewals) == 1)
        await asyncio.sleep(1.0)
        machine.lapses.note(5.0)  # which is known before the renewal that is due at once
        await asyncio.sleep(0.3)
        machine.lapses.note(3.0)  # while that is under way
        await world.until(lambda: len(renewals) == 2)
    assert renewals[1][1] - renewals[1][0] == pytest.approx(3.5)


@in_virtual_time
async def test_a_renewal_whose_connection_breaks_is_made_again_at_once(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was executed, which a read shows: it counts from when it was sent, and no write is refused."""
    world = Candidates(clock)
    sent: list[float] = []
    elector, api = world.make("a", on_renewed=lambda began, _: sent.append(began))
    patch = api.patch

    async def breaking(*arguments: Any, **options: Any) -> Any:
        await patch(*arguments, **options)
        monkeypatch.setattr(api, "patch", patch)
        raise ConnectionFailed("the connection broke before the answer") from ConnectionResetError()

    async with running(elector.run(world.lead("a"))):
        await world.until(lambda: len(sent) == 2)
        monkeypatch.setattr(api, "patch", breaking)
        await world.until(lambda: len(sent) >= 4)
    assert 2 <= sent[2] - sent[1] <= 2.4
    assert 0 <= sent[3] - sent[2] <= 0.4
