"""Where Helm comes from, in which order, and what is said about it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from localcluster import BinariesMissing, helm
from localcluster.build import Say
from localcluster.helm import HELM_VERSION, Helm, build_helm, cached_helm, find_helm
from tests.unit.localcluster.programs import write_script


class _Machine:
    """An environment with a PATH, a cache and a builder of its own; `said` is what the user was told."""

    def __init__(self, folder: Path) -> None:
        self.environment = {"PATH": str(folder / "path"), "XDG_CACHE_HOME": str(folder / "cache")}
        self.said: list[str] = []
        self.builds = 0

    def build(self, target: Path, environment: Mapping[str, str], tell: Say) -> None:
        self.builds += 1
        target.parent.mkdir(parents=True)
        target.touch()

    def find(self) -> Helm:
        return find_helm(self.environment, build=self.build, tell=self.said.append)


@pytest.fixture
def machine(tmp_path: Path) -> _Machine:
    return _Machine(tmp_path)


def test_the_path_wins_then_the_cache_then_a_build(machine: _Machine, tmp_path: Path) -> None:
    first = machine.find()
    assert (first.program, machine.builds) == (cached_helm(machine.environment), 1)
    assert first.source.startswith("built")

    assert machine.find().source.startswith("cache")
    assert machine.builds == 1, "what is cached is not built again"

    on_path = write_script(tmp_path / "path" / "helm", "echo v3.17.0")
    assert machine.find().program == on_path
    assert "v3.17.0" in machine.find().source


@pytest.mark.parametrize("script", ["echo v4.0.1", "echo v2.17.0", "exit 1", "echo v3.19.2; exit 1"])
def test_another_helm_is_passed_over_with_a_word(machine: _Machine, tmp_path: Path, script: str) -> None:
    write_script(tmp_path / "path" / "helm", script)

    assert machine.find().source.startswith("built")
    assert [line for line in machine.said if "not 3; not used" in line]


def _go(folder: Path, install: str) -> dict[str, str]:
    write_script(
        folder / "go",
        f"""
case $1 in
  version) echo go version go1.26.1 linux/amd64 ;;
  env) echo "{folder}/none" ;;
  install) {install} ;;
esac""",
    )
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "GOFLAGS": "-mod=vendor"}


def test_a_helm_that_was_built_for_another_kubernetes_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"PATH": str(tmp_path / "path"), "XDG_CACHE_HOME": str(tmp_path)}
    now = cached_helm(environment)
    monkeypatch.setattr(helm, "KUBERNETES_VERSION", "v1.36.99")
    assert cached_helm(environment) == now, "a patch release has the same APIs"
    monkeypatch.setattr(helm, "KUBERNETES_VERSION", "v1.37.0")
    assert cached_helm(environment) != now


def _leftovers(target: Path) -> list[str]:
    return sorted(entry.name for entry in target.parent.parent.iterdir())


def test_the_build_asks_for_one_version_and_leaves_only_the_program(tmp_path: Path) -> None:
    environment = _go(tmp_path, 'echo "$@" "flags=$GOFLAGS" > "$GOBIN/helm"; mkdir -p "$GOMODCACHE"')
    target = tmp_path / "cache" / "helm-v3" / "helm"

    build_helm(target, environment, print)

    said = target.read_text()
    assert said.rstrip().endswith(f"helm.sh/helm/v3/cmd/helm@{HELM_VERSION} flags=")
    assert "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36" in said
    assert _leftovers(target) == ["helm-v3", "helm.lock"]


def test_leftovers_of_a_killed_build_are_deleted(tmp_path: Path) -> None:
    target = tmp_path / "cache" / "helm-v3" / "helm"
    (target.parent.parent / ".helm-killed" / "cache").mkdir(parents=True)

    build_helm(target, _go(tmp_path, 'echo > "$GOBIN/helm"'), print)

    assert _leftovers(target) == ["helm-v3", "helm.lock"]


def test_a_failed_build_says_what_to_do_and_leaves_nothing(tmp_path: Path) -> None:
    environment = _go(tmp_path, "echo 'no such module' >&2; exit 1")
    target = tmp_path / "cache" / "helm-v3" / "helm"

    with pytest.raises(BinariesMissing, match=r"GOPROXY.*put helm on the PATH"):
        build_helm(target, environment, print)
    assert _leftovers(target) == ["helm.lock"]


def test_too_little_disk_is_said_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _go(tmp_path, 'echo > "$GOBIN/helm"')
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))

    with pytest.raises(BinariesMissing, match=r"1\.0 GiB are free .*put helm on the PATH"):
        build_helm(tmp_path / "cache" / "helm-v3" / "helm", environment, print)
