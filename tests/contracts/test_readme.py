"""Every command in the README works: a shell walks through them, in order, on a real control plane.

A block whose first line is `# NAME.yaml` or `# NAME.py` becomes that file; a
`sh` block is run line by line.  A command that cannot run inside a test run is
in ELSEWHERE, with the file that runs it; those that need pods are run by
tests/node/test_readme.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.walking import section_of, walk

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

#: Command -> the file that runs it, and the words there that show it.
ELSEWHERE = {
    "make demo": ("tests/e2e/test_demo.py", "make demo"),
    "make demo ASSIGNMENT=Ranges": ("tests/e2e/test_demo.py", "make demo ASSIGNMENT=Ranges"),
    "make test": (".ci/run", "make test"),
    "make setup": ("Makefile", "$(READY): "),
    ". .venv/bin/activate": (".ci/environment.py", '"venv"'),
    "make node-deps": ("Makefile", "node-deps: "),
}
#: The heading of what takes a cluster with nodes.
WITH_PODS = "## On a cluster"
#: A few seconds where nothing else runs; busy machines take their time.
SECONDS = 420


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that it becomes; empty for one that is shown or run."""
        first = re.match(r"# (\S+\.(?:yaml|py))\n", self.text)
        return first[1] if first else ""

    @property
    def commands(self) -> list[str]:
        """The commands of a `sh` block."""
        lines = self.text.replace("\\\n", " ").splitlines() if self.language == "sh" else []
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [Block(language, text) for language, text in FENCED.findall(README)]
COMMANDS = [command for block in BLOCKS for command in block.commands]
ON_PODS = section_of(README, WITH_PODS)
HERE = [Block(language, text) for language, text in FENCED.findall(README.replace(ON_PODS, ""))]


def test_every_block_is_shown_kept_or_run() -> None:
    assert not [block for block in BLOCKS if not (block.file or block.commands or block.language == "text")]


@pytest.mark.parametrize("command", [command for command in ELSEWHERE if command in COMMANDS])
def test_command_that_is_not_run_here_is_run_elsewhere(command: str) -> None:
    file, words = ELSEWHERE[command]
    assert words in (ROOT / file).read_text()


def test_commands_that_need_pods_are_run_on_pods() -> None:
    test = (ROOT / "tests/node/test_readme.py").read_text()
    assert f'section_of(README.read_text(), "{WITH_PODS}")' in test
    assert "helm install sharder" in ON_PODS
    assert not [block for block in HERE if "helm " in block.text]


def test_a_ring_and_a_shard_take_25_lines() -> None:
    files = {block.file: block.text for block in BLOCKS}
    lines = [line for name in ("ring.yaml", "shard.py") for line in files[name].splitlines()]
    assert len([line for line in lines if line.strip() and not line.startswith("#")]) <= 25


def test_links_point_to_files() -> None:
    targets = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert [target for target in targets if not (ROOT / target.partition("#")[0]).exists()] == []


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
async def test_commands_work_one_after_the_other(tmp_path: Path) -> None:
    files = {block.file: block.text for block in BLOCKS if block.file}
    commands = [command for block in HERE for command in block.commands if command not in ELSEWHERE]

    code, output = await walk(tmp_path, files, commands, SECONDS)

    assert code == 0, output
