"""Reconcilers that are never idle hand over all the same, and nobody begins before they have ended.

Real shards in processes, a real sharder; each reconcile is written down.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shardsdk.process.process import ExitCode
from tests.integration.harness import Stage
from tests.integration.programs import Program, Programs, overlaps, programs_on, read_spans, until
from tests.integration.world import Ring

SECRETS = "v1/secrets"
CONFIGMAPS = "v1/configmaps"


async def start(programs: Programs, ring: Ring, behaviour: str, name: str) -> Program:
    options = ("--ring", ring.name, "--name", name, "--namespace", programs.namespace)
    chronicle = programs.folder / "chronicle"
    chronicle.touch()
    return await programs.start(
        name, "-m", "tests.integration.noting_shard", behaviour, *options, "--chronicle", str(chronicle)
    )


@asynccontextmanager
async def never_idle(stage: Stage, names: Iterable[str]) -> AsyncIterator[None]:
    """Change the objects all the time, so that each is reconciled over and over."""

    async def change() -> None:
        number = 0
        while True:
            number += 1
            for name in names:
                patch = {"metadata": {"annotations": {"test/number": str(number)}}}
                await stage.admin.patch(SECRETS, name, patch, stage.namespace)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(change())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("behaviour", ["async", "thread"])
async def test_busy_shards_come_and_go_and_no_object_is_worked_on_by_two(
    stage: Stage, tmp_path: Path, behaviour: str
) -> None:
    ring = await stage.ring()
    async with programs_on(stage, tmp_path) as programs:
        chronicle = tmp_path / "chronicle"
        one = await start(programs, ring, behaviour, "one")
        two = await start(programs, ring, behaviour, "two")
        await stage.sharder()
        await ring.in_place({"one", "two"}, timeout=60)
        names = ring.pick_names(2, {"one", "two", "three"})
        for name in names:
            await ring.create(name=name)

        async def until_all_are_worked_on() -> None:
            """Each object's present shard has worked on it."""
            for name, shard in (await ring.shards_of()).items():
                await until(lambda n=name, s=shard: any((e.thing, e.shard) == (n, s) for e in read_spans(chronicle)))  # type: ignore[misc]

        async with never_idle(stage, names):
            await until_all_are_worked_on()
            await start(programs, ring, behaviour, "three")
            await ring.in_place({"one", "two", "three"}, timeout=90)
            await until_all_are_worked_on()
            assert await one.stop() == ExitCode.OK
            await ring.in_place({"two", "three"}, timeout=90)
            await until_all_are_worked_on()
            two.process.kill()
            await ring.in_place({"three"}, timeout=90)
            await until_all_are_worked_on()
        assert {each.shard for each in read_spans(chronicle)} == {"one", "two", "three"}
        assert overlaps(read_spans(chronicle)) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_busy_shard_that_sleeps_through_the_takeover_writes_nothing_when_it_wakes(
    stage: Stage, tmp_path: Path
) -> None:
    ring = await stage.ring()
    async with programs_on(stage, tmp_path) as programs:
        one = await start(programs, ring, "async", "one")
        await start(programs, ring, "async", "two")
        await stage.sharder()
        await ring.in_place({"one", "two"}, timeout=60)
        places = ring.pick_names(2, {"one", "two"})
        for name in places:
            await ring.create(name=name)
        async with never_idle(stage, places):
            for name, shard in places.items():
                await ring.until(f"{name}-by", lambda made, by=shard: made["data"]["by"] == by, CONFIGMAPS)  # type: ignore[misc]
            await one.suspend()
            await ring.in_place({"two"}, timeout=90)
            for name in places:
                await ring.until(f"{name}-by", lambda made: made["data"]["by"] == "two", CONFIGMAPS)
        # Nothing changes any more, so a write of the one that wakes up would be the last.
        one.send(signal.SIGCONT)
        assert await one.exit_code() == ExitCode.LEASE_LOST
        for made in await stage.admin.list(CONFIGMAPS, stage.namespace):
            if made["metadata"]["name"].endswith("-by"):
                assert made["data"]["by"] == "two"
