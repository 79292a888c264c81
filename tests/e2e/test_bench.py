"""The benchmark of the sharder measures all that it should; its figures are for people, on a machine at rest."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 420
FIGURES = {
    "raw creates",
    "raw patches",
    "creates",
    "creates p99",
    "CPU per placement (webhook)",
    "generateName: all placed after",
    "scale-out: rate",
    "graceful exit: rate",
    "graceful exit: CPU per move",
    "fenced crash: last renewal to last object",
    "fenced crash: rate once it moves",
    "unfenced crash: last renewal to last object",
    "resident memory",
    "CPU at rest",
}


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 30)
async def test_every_figure_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench", "--objects", "40", "--lease-seconds", "3", "--rest-seconds", "1",
        "--json", str(path), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()
    report = json.loads(path.read_text())
    assert report.keys() >= FIGURES
    assert min(report.values()) >= 0
    assert b" raw" in output
