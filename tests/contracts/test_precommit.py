"""The checks before a commit are those of `make check`, and need nothing but .venv."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

FILE = ".pre-commit-config.yaml"
ROOT = Path(__file__).parents[2]
CONFIG = yaml.safe_load((ROOT / FILE).read_text())
HOOKS: list[dict[str, Any]] = [hook for repository in CONFIG["repos"] for hook in repository["hooks"]]


def pre_commit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PRE_COMMIT_HOME": str(folder / "cache"), "PRE_COMMIT_COLOR": "never"}
    command = [sys.executable, "-m", "pre_commit", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_nothing_is_fetched() -> None:
    assert {repository["repo"] for repository in CONFIG["repos"]} == {"local"}
    assert {hook["language"] for hook in HOOKS} == {"system"}


def test_every_tool_of_make_check_is_asked() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^check:.*\n\t@\$\(CHECK\)$", makefile, re.MULTILINE), "the recipe is the variable CHECK"
    recipe = re.search(r"^CHECK\b(?:[^\n]*\\\n)*[^\n]*", makefile, re.MULTILINE)
    assert recipe is not None
    entries = " ".join(hook["entry"] for hook in HOOKS)
    for tool in ("ruff check", "ruff format", "mypy", "lint-imports"):
        assert tool in recipe[0]
        assert tool in entries


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the configuration, the linter's settings and this environment."""
    for name in (FILE, "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def test_the_configuration_is_valid(repository: Path) -> None:
    done = pre_commit(repository, "validate-config", FILE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("text", "fails"), [('"""A module."""\n', False), ('"""A module."""\nimport os\nimport time\n', True)]
)
def test_a_bad_file_stops_the_commit(text: str, fails: bool, repository: Path) -> None:
    (repository / "module.py").write_text(text)
    subprocess.run(["git", "add", "module.py", FILE], cwd=repository, check=True)

    done = pre_commit(repository, "run", "ruff", "--files", "module.py")

    assert (done.returncode != 0) is fails, done.stdout
