"""The demo tells its story and checks it, in a pipe as `make demo` runs it and on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: `make demo` has to end within 120 s once everything is built; a busy machine gets more here.
SECONDS = 240
STEPS = ("Three shards", "A fourth shard joins", "leaves gracefully", "is killed", "The leading sharder is killed")


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
async def test_make_demo_in_a_pipe() -> None:
    """`make demo` itself, but for the environment: the one that runs this test serves."""
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo: ")[2].splitlines()[1]
    assert "examples.demo" in recipe, "make demo runs something else than what is tested here"
    code, output = await run([sys.executable, "-m", "examples.demo"])
    assert code == 0, output
    assert [step for step in STEPS if step not in output] == []
    assert output.count("ok: all 3") == len(STEPS), output
    assert "nothing moved because of the failover" in output
    assert "\x1b[" not in output


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
async def test_on_a_terminal() -> None:
    leader, follower = pty.openpty()
    screen: list[bytes] = []
    loop = asyncio.get_running_loop()
    loop.add_reader(leader, lambda: screen.append(_read(leader)))
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "examples.demo", "--secrets", "60",
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
        )  # fmt: skip
        os.close(follower)
        async with asyncio.timeout(SECONDS):
            code = await process.wait()
    finally:
        loop.remove_reader(leader)
        os.close(leader)
    output = b"".join(screen).decode(errors="replace")
    assert code == 0, output
    assert "✓" in output
    assert "\x1b[" in output


def _read(terminal: int) -> bytes:
    with contextlib.suppress(OSError):  # the other side has been closed
        return os.read(terminal, 65536)
    return b""


async def run(argv: list[str]) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()
