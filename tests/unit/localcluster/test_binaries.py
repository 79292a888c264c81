"""Where the Kubernetes programs come from, in which order, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from localcluster.binaries import Binaries, cache_folder, find_binaries, minor_of
from localcluster.build import Say
from tests.unit.localcluster.programs import write_programs


class _Machine:
    """An environment with a PATH, a cache and a builder of its own; `said` is what the user was told."""

    def __init__(self, folder: Path) -> None:
        self.environment = {"PATH": str(folder / "path"), "XDG_CACHE_HOME": str(folder / "cache")}
        self.said: list[str] = []
        self.builds = 0

    def build(self, module: Path, version: str, target: Path, environment: Mapping[str, str], tell: Say) -> None:
        assert (module / "go.mod").exists()
        assert version.startswith("v1.")
        self.builds += 1
        target.parent.mkdir(parents=True)
        target.touch()

    def find(self) -> Binaries:
        return find_binaries(self.environment, build=self.build, tell=self.said.append)


@pytest.fixture
def machine(tmp_path: Path) -> _Machine:
    return _Machine(tmp_path)


def test_kubebuilder_assets_win(machine: _Machine, tmp_path: Path) -> None:
    machine.environment["KUBEBUILDER_ASSETS"] = str(write_programs(tmp_path / "assets"))
    write_programs(tmp_path / "path")
    found = machine.find()
    assert found.etcd == (str(tmp_path / "assets" / "etcd"),)
    assert found.kubectl == (str(tmp_path / "assets" / "kubectl"),)
    assert "KUBEBUILDER_ASSETS" in found.source


def test_the_path_comes_next_and_the_cache_after_it(machine: _Machine, tmp_path: Path) -> None:
    first = machine.find()
    assert machine.builds == 1
    assert first.source.startswith("built from Go modules")

    again = machine.find()
    assert machine.builds == 1, "what is cached is not built again"
    assert again.source.startswith("cache")
    assert again.etcd == (str(cache_folder(machine.environment) / "controlplane"), "etcd")

    write_programs(tmp_path / "path")
    assert machine.find().source == "PATH"


@pytest.mark.parametrize("missing", ["etcd", "kube-apiserver", "kube-controller-manager"])
def test_an_incomplete_folder_is_passed_over_with_a_word(machine: _Machine, tmp_path: Path, missing: str) -> None:
    machine.environment["KUBEBUILDER_ASSETS"] = str(write_programs(tmp_path / "assets", without=missing))
    assert machine.find().source.startswith("built")
    assert any(f"no {missing}" in line for line in machine.said)


def test_kubectl_may_come_from_the_path(machine: _Machine, tmp_path: Path) -> None:
    machine.environment["KUBEBUILDER_ASSETS"] = str(write_programs(tmp_path / "assets", without="kubectl"))
    write_programs(tmp_path / "path", without="etcd")
    found = machine.find()
    assert found.kube_apiserver == (str(tmp_path / "assets" / "kube-apiserver"),)
    assert found.kubectl == (str(tmp_path / "path" / "kubectl"),)


def test_kubectl_alone_on_the_path_is_not_worth_a_word(machine: _Machine, tmp_path: Path) -> None:
    write_programs(tmp_path / "path")
    for program in ("etcd", "kube-apiserver", "kube-controller-manager"):
        (tmp_path / "path" / program).unlink()
    assert machine.find().source.startswith("built")
    assert machine.said == []


@pytest.mark.parametrize("version", ["v1.28.3", "v2.35.0", "(devel)"])
def test_another_version_is_passed_over_with_a_word(machine: _Machine, tmp_path: Path, version: str) -> None:
    write_programs(tmp_path / "path", version)
    assert machine.find().source.startswith("built")
    assert any("not used" in line for line in machine.said)


def test_the_cache_is_per_user_and_version_and_outside_the_checkout() -> None:
    folder = cache_folder({"HOME": "/home/someone"})
    assert folder.is_relative_to("/home/someone/.cache/controller-sharding/localcluster")
    assert folder.name.startswith("v1.36.")
    assert cache_folder({"HOME": "/home/someone", "XDG_CACHE_HOME": "/x"}).is_relative_to("/x")


def test_the_programs_tell_their_minor_version(machine: _Machine, tmp_path: Path) -> None:
    write_programs(tmp_path / "path", "v1.35.2")
    assert minor_of(machine.find()) == 35
    (tmp_path / "path" / "kube-apiserver").unlink()
    assert minor_of(machine.find()) is None, "an empty file, which is what is built here, says nothing"
