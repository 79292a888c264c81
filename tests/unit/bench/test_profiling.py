"""Stacks counted by layer."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bench import profiling
from bench.profiling import LAYERS, LOOP, NoProfiler, Profile, layer_of, profiled

RUNNER = "Runner.run (asyncio/runners.py)"


@pytest.mark.parametrize(
    ("stack", "layer", "function"),
    [
        (f"{RUNNER};plan (sharder/core/admission.py)", "decision", "plan (sharder/core/admission.py)"),
        (
            f"{RUNNER};plan (sharder/core/admission.py);loads (json/__init__.py)",
            "decision",
            "plan (sharder/core/admission.py)",
        ),
        (
            f"{RUNNER};Sessions._send (shardsdk/kube/sessions.py:120);request (aiohttp/client.py:7)",
            "HTTP client",
            "request (aiohttp/client.py)",
        ),
        (f"{RUNNER};SSLObject.read (ssl.py)", LOOP, "SSLObject.read (ssl.py)"),
        ("<module> (somewhere.py)", LOOP, ""),
    ],
)
def test_a_stack_counts_for_the_innermost_frame_that_has_a_layer(stack: str, layer: str, function: str) -> None:
    profile = Profile()
    profile.add(f"{stack} 3")
    profile.add(f"{RUNNER} 1")
    assert profile.samples == 4
    assert profile.shares() == ({LOOP: 100.0} if layer == LOOP else {layer: 75.0, LOOP: 25.0})
    assert profile.functions[function] == (3 if function else 0)


def test_every_file_of_ours_that_a_sharder_runs_has_a_layer() -> None:
    files = [*Path("sharder").rglob("*.py"), *Path("shardsdk").rglob("*.py")]
    assert files
    assert {layer_of(str(each)) for each in files} <= {layer for layer, _ in LAYERS}
    assert layer_of("json/__init__.py") is None


async def test_a_process_that_cannot_be_looked_into_is_told(tmp_path: Path) -> None:
    async def gone() -> None:
        await asyncio.sleep(0)

    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    with pytest.raises(NoProfiler, match=f"nothing of process {process.pid} .it may need root.: "):
        await profiled(process.pid, gone)


async def test_without_the_profiler_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> None:
        raise AssertionError

    monkeypatch.setattr(profiling, "PY_SPY", tmp_path / "py-spy")
    with pytest.raises(NoProfiler, match="py-spy is not there: make setup"):
        await profiled(os.getpid(), never)
