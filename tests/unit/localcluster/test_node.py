"""What a node is made of, as far as it shows without root: programs, files, addresses, what is left behind."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import socket
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from localcluster import BinariesMissing, LocalClusterError
from localcluster.binaries import cache_folder
from localcluster.build import Product, Say, build_products
from localcluster.images import build_images
from localcluster.node import addresses, is_ready, read_pid
from localcluster.node_files import cni_config, containerd_config, containerd_socket, kubelet_config, proxy_config
from localcluster.node_programs import NODE_MODULE, find_node_programs, find_tools
from localcluster.pause import write_pause_archive
from localcluster.supervisor import delete, remove_cgroups, remove_links
from tests.unit.localcluster.programs import write_go, write_programs, write_script

TOOLS = ("catatonit", "containerd", "ctr", "ip", "iptables", "mount", "nsenter", "runc", "unshare")


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(platform, "system", lambda: "Linux")


@pytest.fixture
def tools(tmp_path: Path) -> str:
    for tool in TOOLS:
        write_script(tmp_path / "tools" / tool, "true")
    return str(tmp_path / "tools")


class Builder:
    """Builds nothing, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.built: list[str] = []

    def __call__(self, products: Sequence[Product], version: str, environment: Mapping[str, str], tell: Say) -> None:
        for product in products:
            self.built.append(product.target.name)
            product.target.parent.mkdir(parents=True)
            product.target.touch()


@pytest.mark.usefixtures("root")
def test_both_programs_are_built_at_a_time_and_once(tmp_path: Path, tools: str) -> None:
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    build = Builder()

    assert find_node_programs(environment, build=build, search=tools).source.startswith("built")
    assert build.built == ["controlplane", "kubenode"]
    assert (cache_folder(environment) / "controlplane").exists()
    assert find_node_programs(environment, build=build, search=tools).source.startswith("cache")
    assert build.built == ["controlplane", "kubenode"]


@pytest.mark.usefixtures("root")
def test_a_control_plane_that_is_there_is_not_built_along(tmp_path: Path, tools: str) -> None:
    environment = {"PATH": str(write_programs(tmp_path / "path")), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    build = Builder()

    find_node_programs(environment, build=build, search=tools)

    assert build.built == ["kubenode"]


@pytest.mark.usefixtures("root")
def test_missing_packages_are_named_with_what_installs_them(tmp_path: Path, tools: str) -> None:
    (Path(tools) / "runc").unlink()
    with pytest.raises(BinariesMissing, match=r"needs runc; install them: make node-deps"):
        find_tools(tools)


def test_without_root_it_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BinariesMissing, match=r"root.*KUBECONFIG=… IMAGE=… make e2e-node"):
        find_tools()
    with pytest.raises(BinariesMissing, match=r"root.*make node-deps"):
        build_images({"PATH": ""})


def test_products_share_one_build(tmp_path: Path) -> None:
    write_go(tmp_path)
    products = [Product(NODE_MODULE, tmp_path / "cache" / name / "program") for name in ("a", "b")]

    for _ in range(2):
        build_products(products, "v1.36.3", {"PATH": f"{tmp_path}:{os.environ['PATH']}"}, lambda _: None)

    assert [product.target.read_text() for product in products] == ["program\n"] * 2
    assert (tmp_path / "builds").read_text() == "built\n" * 2
    assert sorted(entry.name for entry in (tmp_path / "cache").iterdir()) == ["a", "b", "build.lock"]


def test_the_pause_image_is_its_one_program(tmp_path: Path) -> None:
    program = write_script(tmp_path / "catatonit", "true")
    write_pause_archive(program, "localhost/pause:1", tmp_path / "first.tar")
    write_pause_archive(program, "localhost/pause:1", tmp_path / "second.tar")

    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()
    with tarfile.open(tmp_path / "first.tar") as archive:
        [manifest] = json.loads(read(archive, "manifest.json"))
        config = json.loads(read(archive, manifest["Config"]))
        layer = read(archive, manifest["Layers"][0])
    assert manifest["RepoTags"] == ["localhost/pause:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        assert read(files, "pause") == program.read_bytes()
        assert files.getmember("pause").mode == 0o755


def read(archive: tarfile.TarFile, name: str) -> bytes:
    content = archive.extractfile(name)
    assert content is not None
    return content.read()


def test_everything_of_a_node_lies_in_its_folder(tmp_path: Path) -> None:
    toml = containerd_config(tmp_path, "overlayfs")
    kubelet = json.loads(kubelet_config(tmp_path, tmp_path / "ca.crt", tmp_path / "pods", "group"))

    assert f'root = "{tmp_path}/containerd"' in toml
    assert f'address = "{containerd_socket(tmp_path)}"' in toml
    assert kubelet["containerRuntimeEndpoint"] == f"unix://{containerd_socket(tmp_path)}"
    assert kubelet["cgroupRoot"] == "/group"
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}
    assert json.loads(proxy_config(tmp_path / "kubeconfig"))["clusterCIDR"] == subnet()


def subnet() -> Any:
    [bridge] = json.loads(cni_config())["plugins"]
    return bridge["ipam"]["ranges"][0][0]["subnet"]


def test_nodes_have_networks_of_their_own() -> None:
    assert addresses(0) == ("198.18.0.1", "198.18.0.2")
    assert addresses(1) == ("198.18.0.5", "198.18.0.6")
    assert addresses(1023) == ("198.18.15.253", "198.18.15.254")


def test_a_control_plane_without_a_node_says_so(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="up --node"):
        read_pid(tmp_path)


def test_ready_is_what_the_condition_says() -> None:
    assert is_ready({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    assert not is_ready({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    assert not is_ready({})


def test_control_groups_go_from_the_leaves_up(tmp_path: Path) -> None:
    for path in ("one/pods/a", "one/pods/b", "two"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "cgroups").write_text(f"{tmp_path / 'one'}\n{tmp_path / 'two'}\n{tmp_path / 'three'}\n")

    remove_cgroups(tmp_path)

    assert [entry.name for entry in tmp_path.iterdir()] == ["cgroups"]


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with two interfaces, on which `ip` writes down what it is told."""
    write_script(tmp_path / "bin" / "ip", f'echo "$@" >>{tmp_path}/told')

    def index(name: str) -> int:
        try:
            return {"eth0": 2, "localcluster0": 7}[name]
        except KeyError:
            raise OSError("no interface with this name") from None

    monkeypatch.setattr("localcluster.supervisor._PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(socket, "if_nametoindex", index)
    return tmp_path


def told(folder: Path) -> list[str]:
    path = folder / "told"
    return path.read_text().splitlines() if path.exists() else []


def test_a_link_goes_by_its_number(links: Path) -> None:
    (links / "links").write_text("localcluster0 7\n")
    remove_links(links)
    assert told(links) == ["link delete dev if7"]


@pytest.mark.parametrize("line", ["localcluster0 6", "localcluster1 7", "eth0 7", "localcluster0", ""])
def test_a_link_that_is_gone_or_anothers_is_left_alone(links: Path, line: str) -> None:
    (links / "links").write_text(f"{line}\n")
    remove_links(links)
    assert told(links) == []


def test_a_folder_goes_with_all_that_it_names_and_again_when_something_stayed(links: Path) -> None:
    folder, group = links / "localcluster-x", links / "groups" / "localcluster-x"
    for path in (folder / "logs", folder / "node" / "layers", group / "pods"):
        path.mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "links").write_text("localcluster0 7\n")
    (folder / "cgroups").write_text(f"{group}\n")

    delete(folder, keep_logs=True)
    assert told(links) == ["link delete dev if7"]
    assert not group.exists()
    assert [entry.name for entry in folder.iterdir()] == ["logs"]

    delete(folder)
    assert not folder.exists()


def test_a_folder_that_could_not_be_deleted_is_still_found_by_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "lock").touch()

    with monkeypatch.context() as patched:
        patched.setattr("localcluster.supervisor.shutil.rmtree", lambda *_, **__: None)
        delete(tmp_path)
    assert (tmp_path / "lock").exists()

    delete(tmp_path)
    assert not tmp_path.exists()
