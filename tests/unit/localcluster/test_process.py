"""Processes under a supervisor: one that ended is not taken for ready, and what a folder names goes with it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster import ComponentFailed
from localcluster.admin import AdminClient
from localcluster.components import Component
from localcluster.ports import LOOPBACK
from localcluster.process import Supervisor

PATIENCE_SECONDS = 60.0


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    found = Supervisor()
    yield found
    found.close()


async def test_a_component_that_dies_at_its_start_is_not_ready(supervisor: Supervisor) -> None:
    async def is_ready() -> bool:
        await supervisor.ended("one", PATIENCE_SECONDS)
        return True

    argv = [sys.executable, "-c", "import sys; sys.exit('unknown flag: --x')"]
    component = Component("one", argv, supervisor, is_ready)

    with pytest.raises(ComponentFailed, match=r"one ended with 1(.|\n)*unknown flag: --x"):
        await component.start()


async def test_what_a_component_said_at_an_earlier_start_does_not_count(supervisor: Supervisor) -> None:
    async def is_ready() -> bool:
        return "ready" in component.said()

    marker = supervisor.folder / "started"
    program = (
        "import pathlib, sys, time\n"
        f"marker = pathlib.Path({str(marker)!r})\n"
        "if marker.exists(): sys.exit('no')\n"
        "marker.touch(); print('ready', flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", program]
    component = Component("one", argv, supervisor, is_ready)
    await component.start()

    with pytest.raises(ComponentFailed, match=r"one ended with 1"):
        await component.restart()


def test_what_a_killed_supervisor_leaves_is_removed_by_its_owner(supervisor: Supervisor, tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    (supervisor.folder / "cgroups").write_text(f"{group}\n")
    os.kill(supervisor.pid, signal.SIGKILL)

    supervisor.close()

    assert not group.exists()
    assert not supervisor.folder.exists()


async def test_whoever_waits_in_vain_is_told_why_nothing_was_read() -> None:
    async with AdminClient(f"https://{LOOPBACK}:1", b"", "t") as admin:
        with pytest.raises(TimeoutError, match=f"0 objects.*; the last request failed: .*{LOOPBACK}:1"):
            await admin.eventually("v1/secrets", bool, timeout_seconds=1.5)
