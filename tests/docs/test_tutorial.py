"""The tutorial works as it is written: a shell walks through it on a real control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from docsite.pages import blocks_of, read_pages
from tests.walking import section_of, walk

TUTORIAL = read_pages()["tutorial.md"]
#: What takes a cluster with nodes: tests/node/test_tutorial.py walks through it.
WITH_PODS = section_of(TUTORIAL, "## 8. On a cluster")
BLOCKS = blocks_of("tutorial.md", TUTORIAL.replace(WITH_PODS, ""))
#: What the README's test runs.
ELSEWHERE = ("make setup", ". .venv/bin/activate")
SECONDS = 420


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
async def test_the_tutorial_works_step_by_step(tmp_path: Path) -> None:
    files = {block.file: block.text for block in BLOCKS if block.file}
    commands = [command for block in BLOCKS for command in block.commands if not command.startswith(ELSEWHERE)]

    code, output = await walk(tmp_path, files, commands, SECONDS)

    assert code == 0, output
