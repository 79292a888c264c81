"""`python -m localcluster`: what it says when it cannot do as it is told, and what it calls images."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcluster import cli, images
from localcluster.cli import main
from localcluster.components import feature_gate_flags, parse_feature_gates
from localcluster.errors import LocalClusterError
from localcluster.images import Image, full_name
from localcluster.running import DEFAULT_NAME, Running
from shardsdk.version import VERSION


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("checksum:1.0.0", "docker.io/library/checksum:1.0.0"),
        ("team/checksum:1", "docker.io/team/checksum:1"),
        ("localhost/checksum:1", "localhost/checksum:1"),
        ("registry.example.com/checksum:1", "registry.example.com/checksum:1"),
        ("registry:5000/checksum:1", "registry:5000/checksum:1"),
    ],
)
def test_images_have_the_names_by_which_a_node_looks_for_them(name: str, full: str) -> None:
    assert full_name(name) == full


@pytest.mark.parametrize("name", ["checksum", "registry:5000/checksum", ""])
def test_an_image_needs_a_tag(name: str) -> None:
    with pytest.raises(LocalClusterError, match="write repository:tag"):
        full_name(name)


def test_the_projects_images_are_called_as_the_charts_call_them() -> None:
    assert Image("localhost/controller-sharding", "0123", Path()).released == f"controller-sharding:{VERSION}"


@pytest.fixture
def without_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A control plane is running, and no node."""
    running = Running(DEFAULT_NAME, tmp_path, "https://127.0.0.1:1")
    monkeypatch.setattr(cli, "find_running", lambda _: running)


@pytest.mark.usefixtures("without_node")
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["up", "--node"], "end it first: python -m localcluster down --name default"),
        (["images", "--load"], "start it: python -m localcluster up --node"),
        (["build", "--tag", "checksum:1", "."], "start it: python -m localcluster up --node"),
    ],
)
def test_where_no_pod_would_run_it_says_so(
    arguments: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert remedy in capsys.readouterr().err


def test_a_folder_without_dockerfile_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(images, "_check_tools", lambda: None)
    with pytest.raises(LocalClusterError, match=f"no Dockerfile in {tmp_path}"):
        images.build_folder(tmp_path, "checksum:1")


def test_feature_gates_become_one_flag_of_the_api_server() -> None:
    gates = parse_feature_gates("WatchList=false, ShardedListAndWatch=true,")
    assert gates == {"WatchList": False, "ShardedListAndWatch": True}
    assert feature_gate_flags(gates) == ["--feature-gates=ShardedListAndWatch=true,WatchList=false"]
    assert feature_gate_flags(parse_feature_gates("")) == [], "the server's own defaults"


@pytest.mark.parametrize("text", ["WatchList", "WatchList=yes", "=true", "Watch List=true", "A=true;B=true"])
def test_a_feature_gate_is_a_name_with_true_or_false(text: str) -> None:
    with pytest.raises(LocalClusterError, match="write NAME=true or NAME=false"):
        parse_feature_gates(text)


def test_a_feature_is_not_both_on_and_off() -> None:
    with pytest.raises(LocalClusterError, match="WatchList is both true and false"):
        parse_feature_gates("WatchList=true,WatchList=false")


def test_one_that_runs_with_other_feature_gates_is_not_handed_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = Running(DEFAULT_NAME, tmp_path, "https://127.0.0.1:1", {"WatchList": False})
    monkeypatch.setattr(cli, "find_running", lambda _: running)
    assert main(["up", "--feature-gates", "WatchList=true"]) == 1
    assert "runs with --feature-gates WatchList=false; end it first" in capsys.readouterr().err
    assert main(["up", "--feature-gates", "WatchList=false"]) == 0
    assert main(["up"]) == 0
    assert main(["up", "--feature-gates", "WatchList"]) == 1
    assert "write NAME=true" in capsys.readouterr().err
