"""`--dev`: a program starts again when a file is saved, also after it has failed; events are awaited, not time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from shardsdk.commands import reloading
from shardsdk.commands.reloading import folder_of, saved_files, supervise

#: Writes that it has started into a pipe, and ends as it is told.
PROGRAM = """
import os, signal, sys
pipe, how = int(sys.argv[1]), sys.argv[2]
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(pipe, b"started\\n")
if how == "fails":
    sys.exit(3)
signal.pause()
"""


class Stage:
    """Programs that tell when they start, and changes that come when the test says so."""

    def __init__(self, how: str) -> None:
        self._read, self._write = os.pipe()
        os.set_inheritable(self._write, True)
        self.changed: asyncio.Queue[Sequence[str] | None] = asyncio.Queue()
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.command = [sys.executable, "-c", PROGRAM, str(self._write), how]

    async def changes(self) -> AsyncIterator[Sequence[str]]:
        while (saved := await self.changed.get()) is not None:
            yield saved

    async def started(self) -> None:
        line = await asyncio.get_running_loop().run_in_executor(None, os.read, self._read, 100)
        assert line == b"started\n"

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture(params=["obeys"])
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(request.param)
    real = asyncio.create_subprocess_exec

    async def start(*command: str) -> asyncio.subprocess.Process:
        return await real(*command, close_fds=False)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    yield made
    made.close()


async def test_a_saved_file_starts_the_program_again(stage: Stage) -> None:
    supervising = asyncio.create_task(supervise(stage.command, stage.changes(), stage.told.put_nowait))
    await stage.started()
    for _ in range(2):
        stage.changed.put_nowait(["/app/websites.py"])
        await stage.started()
        assert await stage.told.get() == "websites.py changed; starting again"
    supervising.cancel()
    assert await supervising == -signal.SIGTERM


@pytest.mark.parametrize("stage", ["fails"], indirect=True)
async def test_a_program_that_fails_waits_for_the_next_change(stage: Stage) -> None:
    supervising = asyncio.create_task(supervise(stage.command, stage.changes(), stage.told.put_nowait))
    await stage.started()
    assert await stage.told.get() == "ended with 3; waiting for a file to be saved"
    stage.changed.put_nowait(["a.py", "b.py"])
    await stage.started()
    assert await stage.told.get() == "a.py, b.py changed; starting again"
    assert await stage.told.get() == "ended with 3; waiting for a file to be saved"
    stage.changed.put_nowait(["a.py", "b.py", "c.py", "d.py"])
    await stage.started()
    assert await stage.told.get() == "4 files changed; starting again"
    stage.changed.put_nowait(None)
    assert await supervising == 3


@pytest.mark.parametrize("stage", ["stubborn"], indirect=True)
async def test_a_program_that_does_not_stop_is_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "STOP_SECONDS", 0.05)
    supervising = asyncio.create_task(supervise(stage.command, stage.changes(), stage.told.put_nowait))
    await stage.started()
    stage.changed.put_nowait(["a.py"])
    await stage.started()
    supervising.cancel()
    assert await supervising == -signal.SIGKILL


async def test_files_of_python_are_watched_and_no_others(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    changes = saved_files(tmp_path)
    first = asyncio.ensure_future(anext(changes))
    # Whether it watches already nobody tells, so the file is saved until it is seen.
    while not first.done():
        for name in ("notes.txt", ".venv/other.py", "websites.py"):
            (tmp_path / name).write_text(os.urandom(4).hex())
        await asyncio.wait({first}, timeout=0.2)
    assert first.result() == [str(tmp_path / "websites.py")]
    await changes.aclose()  # type: ignore[attr-defined]


def test_the_folder_is_the_files_or_where_modules_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_of("app/websites.py:operator") == tmp_path / "app"
    assert folder_of("websites:operator") == tmp_path
