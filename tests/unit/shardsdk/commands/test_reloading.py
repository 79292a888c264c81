"""`--dev`: a program starts again when a file is saved, also after it has failed; events are awaited, not time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from shardsdk.cli import main
from shardsdk.commands import reloading
from shardsdk.commands.reloading import SUPERVISED, UNLOADABLE, WORKED_SECONDS, folder_of, saved_files, supervise
from shardsdk.errors import ConfigurationError

#: Writes that it has started into a pipe, and ends as it is told.
PROGRAM = """
import os, signal, sys
pipe, how = int(sys.argv[1]), sys.argv[2]
if how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(pipe, b"started\\n")
if how == "fails":
    sys.exit(3)
if how == "broken":
    sys.exit(65)
if how == "stops":
    sys.exit(0)
signal.pause()
"""


GOOD = """
from shardsdk import Context, Operator
from shardsdk.kinds import Secret

operator = Operator("good")


@operator.reconcile(Secret)
async def keep(ctx: Context[Secret]) -> None:
    pass
"""


class HandClock:
    """Time goes by when the test says so; each time that it is asked for, `runs_seconds` have passed."""

    def __init__(self, runs_seconds: float = 0.0) -> None:
        self._now = 0.0
        self._runs_seconds = runs_seconds
        self.slept: asyncio.Queue[tuple[float, asyncio.Event]] = asyncio.Queue()

    def monotonic(self) -> float:
        self._now += self._runs_seconds
        return self._now

    def now(self) -> datetime:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self.slept.put_nowait((seconds, over))
        await over.wait()

    async def pass_pause(self, seconds: float) -> None:
        """Let the pause that is made go by, which is so long."""
        asked, over = await self.slept.get()
        assert asked == seconds
        over.set()


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

    def is_left(self) -> bool:
        """Whether no program has the pipe."""
        os.close(self._write)
        self._write = os.dup(self._read)
        os.set_blocking(self._read, False)
        try:
            return os.read(self._read, 1) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture(params=["obeys"])
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(request.param)
    real = asyncio.create_subprocess_exec

    async def start(*command: str, **options: Any) -> asyncio.subprocess.Process:
        return await real(*command, close_fds=False, **options)

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


@pytest.mark.parametrize(("stage", "said"), [("broken", "not started"), ("stops", "ended")], indirect=["stage"])
async def test_what_only_another_file_starts_waits_for_the_next_change(stage: Stage, said: str) -> None:
    clock = HandClock()
    supervising = asyncio.create_task(supervise(stage.command, stage.changes(), stage.told.put_nowait, clock))
    await stage.started()
    assert await stage.told.get() == f"{said}; waiting for a file to be saved"
    stage.changed.put_nowait(["a.py", "b.py"])
    await stage.started()
    assert await stage.told.get() == "a.py, b.py changed; starting again"
    assert await stage.told.get() == f"{said}; waiting for a file to be saved"
    stage.changed.put_nowait(["a.py", "b.py", "c.py", "d.py"])
    await stage.started()
    assert await stage.told.get() == "4 files changed; starting again"
    stage.changed.put_nowait(None)
    assert await supervising == (UNLOADABLE if said == "not started" else 0)
    assert clock.slept.empty()


def again(seconds: float) -> str:
    return f"ended with 3; starting again in {seconds:g} s, or when a file is saved"


@pytest.mark.parametrize("stage", ["fails"], indirect=True)
async def test_a_program_that_fails_is_started_again_after_pauses_that_grow(stage: Stage) -> None:
    clock = HandClock()
    supervising = asyncio.create_task(supervise(stage.command, stage.changes(), stage.told.put_nowait, clock))
    for seconds in (1, 2, 4, 8, 16, 30, 30):
        await stage.started()
        assert await stage.told.get() == again(seconds)
        await clock.pass_pause(seconds)
    await stage.started()
    assert await stage.told.get() == again(30)
    stage.changed.put_nowait(["a.py"])
    assert await stage.told.get() == "a.py changed; starting again"
    await stage.started()
    assert await stage.told.get() == again(1)
    supervising.cancel()
    assert await supervising == 3


@pytest.mark.parametrize("stage", ["fails"], indirect=True)
async def test_what_worked_for_a_while_is_started_again_soon(stage: Stage) -> None:
    clock = HandClock(runs_seconds=WORKED_SECONDS)
    supervising = asyncio.create_task(supervise(stage.command, stage.changes(), stage.told.put_nowait, clock))
    for _ in range(3):
        await stage.started()
        assert await stage.told.get() == again(1)
        await clock.pass_pause(1)
    supervising.cancel()
    await supervising


def test_a_file_that_cannot_be_loaded_is_told_from_a_cluster_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shardsdk.commands.run.end_with_supervisor", lambda _: None)  # it would end this process
    (tmp_path / "broken.py").write_text("operator = Operator(")
    assert main(["run", "broken.py", f"{SUPERVISED}=1"]) == UNLOADABLE
    assert "broken.py, line 1: " in capsys.readouterr().err
    assert main(["run", "broken.py"]) == 2
    assert main(["run", "broken.py", "--log-format=json", f"{SUPERVISED}=1"]) == UNLOADABLE
    assert "broken.py, line 1: " in capsys.readouterr().err
    assert main(["run", "broken.py", "--log-format=json"]) == 2
    (tmp_path / "config").write_text("")
    (tmp_path / "good.py").write_text(GOOD)
    assert main(["run", "good.py", "--kubeconfig", "config", f"{SUPERVISED}=1"]) == 2


@pytest.mark.parametrize("stage", ["stubborn"], indirect=True)
async def test_a_program_that_does_not_stop_is_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloading, "STOP_SECONDS", 0.05)
    supervising = asyncio.create_task(supervise(stage.command, stage.changes(), stage.told.put_nowait))
    await stage.started()
    stage.changed.put_nowait(["a.py"])
    await stage.started()
    supervising.cancel()
    assert await supervising == -signal.SIGKILL


@pytest.mark.parametrize("stage", ["stubborn"], indirect=True)
async def test_a_second_interrupt_ends_a_program_at_once(stage: Stage) -> None:
    supervising = asyncio.create_task(supervise(stage.command, stage.changes(), stage.told.put_nowait))
    await stage.started()
    supervising.cancel()
    await asyncio.sleep(0)
    supervising.cancel()
    assert await supervising == -signal.SIGKILL


async def test_a_program_ends_with_what_watches_its_files(stage: Stage) -> None:
    async def changes() -> AsyncIterator[Sequence[str]]:
        async for saved in stage.changes():
            if "a.py" in saved:
                raise OSError("the next one cannot be watched")
            yield saved

    supervising = asyncio.create_task(supervise(stage.command, changes(), stage.told.put_nowait))
    await stage.started()
    stage.changed.put_nowait(["a.py"])
    with pytest.raises(OSError, match="cannot be watched"):
        await supervising
    assert stage.is_left()


async def test_what_cannot_be_watched_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone cannot be watched: .*without --dev.*max_user_watches"):
        await anext(saved_files(tmp_path / "gone"))


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


#: What is supervised, and one that supervises it, which has written the other's number when it is told to go on.
WATCHED = """
import os, signal, sys, time
from shardsdk.commands import reloading
reloading.LOOK_SECONDS = reloading.STOP_SECONDS = 0.01
if sys.argv[1] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
supervisor = os.getppid()
if sys.argv[1] == "starts":
    print("started", flush=True)
    while os.getppid() == supervisor:
        time.sleep(0.01)
reloading.end_with_supervisor(supervisor)
print("started", flush=True)
time.sleep(600)
"""
WATCHER = """
import subprocess, sys
subprocess.run([sys.executable, "-c", *sys.argv[1:]])
"""


@pytest.mark.parametrize("how", ["obeys", "stubborn", "starts"])
async def test_a_program_ends_once_what_supervises_it_was_killed(how: str) -> None:
    command = [sys.executable, "-c", WATCHER, WATCHED, how]
    leader = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert leader.stdout is not None
    assert await leader.stdout.readline() == b"started\n"
    leader.kill()
    assert await leader.stdout.read() in (b"", b"started\n")  # nobody has the other end any more
    await leader.wait()
