"""`python -m localcluster`: what it says when it cannot do as it is told, and what it calls images."""

from __future__ import annotations

import http.client
import os
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from localcluster import cli, images
from localcluster.binaries import cache_home
from localcluster.cli import main
from localcluster.components import feature_gate_flags, parse_feature_gates
from localcluster.errors import LocalClusterError
from localcluster.images import Image, full_name
from localcluster.kubeconfig import Cluster, token_credentials, write_kubeconfig
from localcluster.ports import LOOPBACK
from localcluster.running import DEFAULT_NAME, Running
from shardsdk.serving.x509 import make_authority
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
    monkeypatch.setattr(Running, "answers", lambda _: True)
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


@pytest.mark.parametrize("command", ["up", "status"])
def test_one_without_an_api_server_is_not_said_to_run(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"https://{LOOPBACK}:1"
    authority = make_authority(datetime.now(UTC), timedelta(days=1)).certificate.pem
    running = Running(DEFAULT_NAME, tmp_path, url)
    write_kubeconfig(running.kubeconfig, Cluster(url, authority), "admin", token_credentials("t"))
    monkeypatch.setattr(cli, "find_running", lambda _: running)

    assert main([command]) == 1

    said = capsys.readouterr()
    assert said.out == ""
    assert f"is not ready; logs: {tmp_path}/logs; end it: python -m localcluster down --name default" in said.err


@pytest.mark.parametrize("failure", [http.client.BadStatusLine(""), FileNotFoundError()])
def test_one_that_breaks_off_or_goes_away_meanwhile_does_not_answer(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise failure

    url = f"https://{LOOPBACK}:1"
    running = Running(DEFAULT_NAME, tmp_path, url)
    if isinstance(failure, http.client.HTTPException):
        authority = make_authority(datetime.now(UTC), timedelta(days=1)).certificate.pem
        write_kubeconfig(running.kubeconfig, Cluster(url, authority), "admin", token_credentials("t"))
        monkeypatch.setattr(urllib.request.OpenerDirector, "open", fails)

    assert not running.answers()


class _Builder:
    """Builds what is asked for, as buildah."""

    environment: Mapping[str, str] = {}

    def has(self, image: str) -> bool:
        return True

    def run(self, *arguments: str) -> str:
        if arguments[0] == "push":
            Path(arguments[-1].split(":")[1]).touch()
        return "id"


def test_of_archives_that_were_built_from_a_folder_old_ones_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(images, "_check_tools", lambda: None)
    monkeypatch.setattr(images, "_arguments", lambda *_: [])
    monkeypatch.setattr(images._Buildah, "of", lambda *_: _Builder())
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    own = cache_home(environment) / "images"
    own.mkdir(parents=True)
    for name in ("docker.io_library_old_1.tar", "docker.io_library_new_1.tar", "controller-sharding-0123456789ab.tar"):
        (own / name).touch()
        if "new" not in name:
            os.utime(own / name, (0, 0))
    (tmp_path / "Dockerfile").touch()

    _, archive = images.build_folder(tmp_path, "mine:1", environment, tell=print)

    assert {each.name for each in own.glob("*.tar")} == {
        archive.name,
        "docker.io_library_new_1.tar",
        "controller-sharding-0123456789ab.tar",
    }


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
    monkeypatch.setattr(Running, "answers", lambda _: True)
    assert main(["up", "--feature-gates", "WatchList=true"]) == 1
    assert "runs with --feature-gates WatchList=false; end it first" in capsys.readouterr().err
    assert main(["up", "--feature-gates", "WatchList=false"]) == 0
    assert main(["up"]) == 0
    assert main(["up", "--feature-gates", "WatchList"]) == 1
    assert "write NAME=true" in capsys.readouterr().err
