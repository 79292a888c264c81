"""Which of several interpreters `.venv` is made of."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENT: dict[str, Any] = runpy.run_path(".ci/environment.py")
NAME = f"python{sys.version_info[0]}.{sys.version_info[1]}"
Interpreters = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Interpreters:
    """Puts a program onto the PATH, in a folder of its own, that says what an interpreter says of itself."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", "")

    def interpreter(folder: str, seconds: float, version: str = f"{sys.version_info[0]} {sys.version_info[1]}") -> Path:
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / NAME
        program.write_text(f"#!/bin/sh\necho {version} {seconds}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / folder}", prepend=":")
        return program

    return interpreter


def fastest(mine: Path | str) -> str:
    found: str = ENVIRONMENT["fastest"](str(mine))
    return found


def test_one_that_is_clearly_faster_is_taken(make: Interpreters) -> None:
    mine, _, best = make("mine", 0.040), make("slow", 0.050), make("fast", 0.030)
    assert fastest(mine) == str(best)


def test_one_that_is_hardly_faster_is_not(make: Interpreters) -> None:
    mine = make("mine", 0.031)
    make("other", 0.030)
    assert fastest(mine) == str(mine)


def test_one_of_another_version_is_not(make: Interpreters) -> None:
    mine = make("mine", 0.040)
    make("other", 0.020, "3 99")
    assert fastest(mine) == str(mine)


def test_one_that_does_not_run_is_left_alone(make: Interpreters) -> None:
    mine, broken = make("mine", 0.040), make("broken", 0.020)
    broken.write_text("#!/bin/sh\nexit 1\n")
    assert fastest(mine) == str(mine)


def test_whoever_has_entered_an_environment_has_chosen(make: Interpreters, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = make("mine", 0.040)
    make("fast", 0.020)
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    assert fastest(mine) == str(mine)


def test_this_interpreter_says_what_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    asked: list[list[str]] = []
    run = ENVIRONMENT["subprocess"].run

    def note(argv: list[str], **rest: Any) -> Any:
        asked.append(argv)
        return run(argv, **rest)

    monkeypatch.setattr(ENVIRONMENT["subprocess"], "run", note)
    assert fastest(sys.executable) == sys.executable
    assert asked[0][0] == sys.executable
    said = run(asked[0], capture_output=True, check=True).stdout.split()
    assert tuple(map(int, said[:2])) == sys.version_info[:2]
    assert float(said[2]) > 0
