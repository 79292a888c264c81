"""What `shardsdk` refuses of its arguments, and what it says where it cannot print, write or ask."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from shardsdk.cli import main
from tests.printed_manifests import complaint, folder, write

__all__ = ["folder"]  # applies to all tests of this file


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["rbac", "--ring=a", "--main=secrets"]])
@pytest.mark.parametrize(("stdout", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
def test_output_that_goes_nowhere_is_one_line(arguments: list[str], stdout: str, why: str) -> None:
    command = shlex.join([sys.executable, "-m", "shardsdk", *arguments])
    done = subprocess.run(f"{command} {stdout}", shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"shardsdk: {why}: standard output\n")


@pytest.mark.parametrize("command", [["crd"], ["manifests", "--image=i:1"]])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_is_for_kubectl_is_utf_8_whatever_the_terminal_has(command: list[str], encoding: str) -> None:
    write()
    Path("sites.py").write_text(
        Path("sites.py").read_text().replace("What somebody wants.", "Was für ein Gerät — 网站")
    )
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    arguments = [sys.executable, "-m", "shardsdk", *command, "sites.py"]
    done = subprocess.run(arguments, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Was für ein Gerät — 网站" in done.stdout.decode("utf-8")


def test_what_an_operator_prints_is_no_error_where_nobody_has_opened_an_output() -> None:
    Path("sites.py").write_text("print('hello', flush=True)\nraise SystemExit('loaded')\n")
    command = shlex.join([sys.executable, "-m", "shardsdk", "run", "sites.py"])
    done = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert "Bad file descriptor" not in done.stderr
    assert "loaded" in done.stderr


@pytest.mark.parametrize("further", [[], ["--helm", "chart"]])
@pytest.mark.parametrize("image", ["", "a b", " a", "a\n"])
def test_what_is_no_image_is_refused(image: str, further: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write()
    said = complaint("manifests", "sites.py", "--image", image, *further, capsys=capsys)
    assert f"--image {image!r} is no image: name it as in registry.example.com/websites:1" in said
    assert not Path("chart").exists()


@pytest.mark.parametrize("account", ["sharder", "A B/c", "a/b c", "a/b/c"])
def test_what_is_no_account_is_refused(account: str, capsys: pytest.CaptureFixture[str]) -> None:
    write()
    said = complaint("manifests", "sites.py", "--image", "i:1", "--sharder", account, capsys=capsys)
    assert f"--sharder {account!r} is not NAMESPACE/NAME, as in sharding-system/sharder" in said


def test_a_chart_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    write()
    said = complaint("manifests", "sites.py", "--image", "i:1", "--helm", "sites.py/sub", capsys=capsys)
    assert "cannot be written: Not a directory; name another folder by --helm" in said


@pytest.mark.parametrize("command", ["crd", "run", "explain"])
def test_a_file_of_another_kind_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("README.md").touch()
    further = ["Site/a"] if command == "explain" else []
    said = complaint(command, "README.md", *further, capsys=capsys)
    assert "README.md is no file of Python; name the file with the Operator, as in websites.py" in said


def test_an_api_server_that_is_away_is_told_with_where_it_was_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("config").write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    assert main(["models", "v1", "--kubeconfig", "config"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("shardsdk: no API server answers at http://127.0.0.1:1 (kubeconfig config): GET /openapi")
    assert line.endswith("start that cluster, or name another by --kubeconfig or --context")
