"""Shards that come back under their names, and machines whose clocks are wrong: nothing moves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from shardsdk.kube.clock import SystemClock
from shardsdk.process.process import ExitCode
from tests.integration.chronicle import Chronicle
from tests.integration.harness import Stage
from tests.integration.programs import Program, Programs, overlaps, programs_on, read_spans
from tests.integration.test_leases import chronicle
from tests.integration.world import Ring

NAMES: Final = ("op-0", "op-1", "op-2")
LEASES: Final = "coordination.k8s.io/v1/leases"


@dataclass
class Shards:
    """The shards of a test in processes of their own; each may be started again under its name.

    `where`: outside a pod, in its pod (whose containers restart), or in a new pod each time.
    """

    programs: Programs
    ring: Ring
    where: str
    lease_seconds: int = 5
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    running: dict[str, Program] = field(default_factory=dict)

    @property
    def notes(self) -> Path:
        """Where their reconciles are written down."""
        return self.programs.folder / "chronicle"

    async def start(self, names: Sequence[str] = NAMES, **ahead: int) -> None:
        """Start those; they work on return."""
        await self._launch(names, ahead=ahead)
        await self._until_they_work(names)

    async def _launch(self, names: Sequence[str], *more: str, ahead: Mapping[str, int] | None = None) -> None:
        self.notes.touch()
        for name in names:
            options = ["--ring", self.ring.name, "--name", name, "--namespace", self.programs.namespace]
            options += ["--chronicle", str(self.notes), "--restart-grace", "60"]
            options += ["--lease-seconds", str(self.lease_seconds)]
            options += ["--ahead", str((ahead or {}).get(name.replace("-", "_"), 0)), *more]
            uid = {"outside a pod": "", "in its pod": name, "in a new pod": f"{name}-{next(self.numbers)}"}[self.where]
            self.running[name] = await self.programs.start(
                name, "-m", "tests.integration.noting_shard", "async", *options, environment={"POD_UID": uid}
            )

    async def _until_they_work(self, names: Sequence[str]) -> None:
        for name in names:
            await self.running[name].until_it_says("Shard is working")

    async def end(self, name: str) -> None:
        """Stop one in order."""
        assert await self.running[name].stop() == ExitCode.OK

    async def kill_and_replace(self) -> None:
        """Kill all of them at once, with a successor of each that begins at that moment; those work on return.

        The successors are loaded before: how fast a machine starts programs is not what is tried.
        """
        killed, begin = list(self.running.values()), self.programs.folder / "begin"
        await self._launch(NAMES, "--after", str(begin))
        for name in NAMES:
            await self.running[name].until_it_says("Ready to begin")
        for program in killed:
            program.process.kill()
        for program in killed:
            await program.process.wait()
        begin.touch()
        await self._until_they_work(NAMES)


async def renewed(seen: Chronicle, times: int = 10) -> None:
    """Wait until each shard has renewed its lease so many times; ten take longer than a lease lasts."""
    before = {name: len(seen.lease(name)) for name in NAMES}
    await seen.until(lambda: all(len(seen.lease(name)) >= before[name] + times for name in NAMES))


def nothing_moved(seen: Chronicle) -> None:
    """No object has changed hands, or was about to, and no lease either."""
    assert [(before.name, before.shard, after.shard) for before, after in seen.moves()] == []
    assert [each for each in seen.versions if each.resource != LEASES and each.draining] == []
    assert not any(each.ours for name in NAMES for each in seen.lease(name))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["outside a pod", "in its pod", "in a new pod"])
async def test_shards_that_come_back_under_their_names_keep_all_that_they_have(
    stage: Stage, tmp_path: Path, where: str
) -> None:
    """One after the other in order, as a rolling restart has it; then all at once without any.

    A new pod cannot know that the last process of its name is dead, so it is not asked to be as fast.
    """
    ring = await stage.ring()
    async with programs_on(stage, tmp_path) as programs:
        shards = Shards(programs, ring, where, lease_seconds=15)
        await shards.start()
        await stage.sharder()
        await ring.in_place(set(NAMES))
        await ring.create_families(3, NAMES, children=0)
        await ring.in_place(set(NAMES))
        async with chronicle(stage, ring) as seen:
            for name in NAMES:
                await shards.end(name)
                await shards.start([name])
            await renewed(seen, times=2)
            nothing_moved(seen)
            if where != "in a new pod":
                await shards.kill_and_replace()
                await renewed(seen)
                nothing_moved(seen)
        await ring.in_place(set(NAMES))
    assert overlaps(read_spans(shards.notes)) == []


class WrongClock(SystemClock):
    """The machine's clock, an hour ahead."""

    __slots__ = ()

    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_clocks_that_are_an_hour_wrong_move_nothing(stage: Stage, tmp_path: Path) -> None:
    """Those of two shards, in either direction, and the sharder's."""
    ring = await stage.ring()
    async with programs_on(stage, tmp_path) as programs:
        shards = Shards(programs, ring, "in its pod")
        await shards.start(op_0=3600, op_1=-3600)
        await stage.sharder(clock=WrongClock())
        await ring.in_place(set(NAMES))
        await ring.create_families(3, NAMES, children=0)
        await ring.in_place(set(NAMES))
        async with chronicle(stage, ring) as seen:
            await renewed(seen)
            nothing_moved(seen)
