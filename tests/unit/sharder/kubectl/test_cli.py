"""The command line of the plugin: how it ends, and one clear line for what a user can mend."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sharder.core.ringspec import InvalidRing
from sharder.kubectl.cli import complain, main
from sharder.kubectl.outcomes import ExitCode, exit_code
from shardsdk.errors import ConfigurationError, ConnectionFailed, Forbidden
from shardsdk.version import VERSION

RING = """
apiVersion: sharding.timebertt.dev/v1alpha1
kind: ClusterRing
metadata: {name: example}
spec: {resources: [{resource: secrets, controlledResources: [{resource: configmaps}]}]}
"""


def away(folder: Path) -> str:
    """The kubeconfig of an API server that nobody reaches."""
    path = folder / "config"
    path.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    return str(path)


def test_version_is_the_projects(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"kubectl-sharding {VERSION} (Python 3.")


def test_without_a_command_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("Usage: kubectl sharding", "status", "rbac", "Exit codes: 0 all in order"))


@pytest.mark.parametrize(
    "arguments",
    [["frob"], ["status", "a", "b"], ["status", "-o", "xml"], ["status", "--interval", "0"], ["rbac"],
     ["rbac", "a", "-f", "b"], ["rbac", "a", "--service-account", "x"], ["status", "--interval", "soon"],
     ["status", "--wat"]],
)  # fmt: skip
def test_wrong_arguments_end_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: kubectl sharding" in capsys.readouterr().err


def test_no_cluster_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--kubeconfig", str(tmp_path / "none")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kubectl-sharding: kubeconfig ")


def test_options_may_stand_before_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kubeconfig", str(tmp_path / "none"), "status"]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigurationError("say it otherwise"), 2, "say it otherwise"),
        (ConnectionFailed("refused"), 3, "refused"),
        (Forbidden("no"), 3, "no"),
        (OSError(2, "No such file", "/x"), 3, "No such file: /x"),
        (ExceptionGroup("both", [ConnectionFailed("refused"), ConnectionFailed("refused")]), 3, "refused"),
        (ModuleNotFoundError(name="xxhash"), 2, "xxhash is not installed; install `pip install 'contr"),
        (InvalidRing("a", ()), 2, "ring 'a' is not used"),
    ],
)
def test_errors_are_one_line(error: Exception, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert complain(error, sys.stderr) == code
    (printed,) = capsys.readouterr().err.splitlines()
    assert printed.startswith(f"kubectl-sharding: {line}")


def test_a_fault_of_the_program_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        complain(ZeroDivisionError(), sys.stderr)


def test_wrong_outweighs_unknown() -> None:
    assert exit_code(wrong=True, unknown=True) is ExitCode.WRONG
    assert exit_code(wrong=False, unknown=True) is ExitCode.UNKNOWN
    assert exit_code(wrong=False, unknown=False) is ExitCode.IN_ORDER


def test_roles_of_a_manifest_need_no_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ring.yaml"
    path.write_text(RING)
    assert main(["rbac", "-f", str(path), "--service-account", "system/mine"]) == 0
    role, binding = yaml.safe_load_all(capsys.readouterr().out)
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["list", "watch", "patch"]}
    ]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "mine", "namespace": "system"}]
    assert main(["rbac", "-f", str(path), "-o", "json"]) == 0
    assert [each["kind"] for each in json.loads(capsys.readouterr().out)["items"]] == [
        "ClusterRole",
        "ClusterRoleBinding",
    ]


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    kubeconfig = away(tmp_path)
    blocked = "import sys; sys.modules.update(dict.fromkeys(['xxhash', 'cryptography']));"
    for command in ("status", "check"):
        done = subprocess.run(
            [sys.executable, "-c", f"{blocked}from sharder.kubectl.cli import main; sys.exit(main(['{command}']))"],
            env={"KUBECONFIG": kubeconfig, "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert line.endswith("is not installed; install `pip install 'controller-sharding[kubectl]'`")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_does_not_know_the_signs_gets_others(tmp_path: Path, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from sharder.kubectl.cli import main; main(['status']); print('✓ ✗ → ? … ▌█ 節')"],
        env={"PYTHONIOENCODING": encoding, "KUBECONFIG": str(tmp_path / "none"), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ok X -> ? ... ## ?\n"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["status", "--help"], ["rbac", "-f", "{}"]])
@pytest.mark.parametrize(("stdout", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
def test_output_that_goes_nowhere_is_one_line(arguments: list[str], stdout: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "ring.yaml"
    path.write_text(RING)
    command = shlex.join([sys.executable, "-m", "sharder.kubectl", *(each.format(path) for each in arguments)])
    done = subprocess.run(f"{command} {stdout}", shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, f"kubectl-sharding: {why}: standard output\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-n", "a/b", "status"], "'a/b' cannot be a name; use up to 63"),
        (["status", "\udcff"], r"'\udcff' cannot be a name; use up to 253"),
        (["cleanup", "A B"], "'A B' cannot be a name"),
        (["rbac", "a", "--service-account", "A B/c"], "'A B' cannot be a name"),
        (["check", "--lease", "a/b c"], "'b c' cannot be a name"),
    ],
)
def test_what_cannot_be_a_name_is_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["secret", ""], ["secret", "a/b"], ["secret/.."], ["secret", "a%2fb"]])
def test_what_no_object_can_be_called_is_not_asked_for(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments, "--kubeconfig", away(tmp_path)]) == 2
    assert "cannot be the name of an object: `explain RESOURCE NAME`" in capsys.readouterr().err


def test_output_that_nobody_reads_leaves_open_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "ring.yaml"
    path.write_text(RING)
    command = [sys.executable, "-c", "from sharder.kubectl.cli import main; import sys; sys.stdout.reconfigure("
               "line_buffering=True); sys.exit(main(sys.argv[1:]))", "rbac", "-f", str(path)]  # fmt: skip
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (3, "")


def test_an_api_server_that_is_away_is_told_with_where_it_was_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = away(tmp_path)
    assert main(["status", "--kubeconfig", path]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"kubectl-sharding: no API server answers at http://127.0.0.1:1 (kubeconfig {path}): list cl"
    )
    assert line.endswith("start that cluster, or name another by --kubeconfig or --context")


def test_it_runs_without_the_service_and_what_that_needs() -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(['fastapi', 'uvicorn', 'uvloop', 'httptools']));"
    modules = "import sharder.kubectl.status.command, sharder.kubectl.rbac, sharder.kubectl.completion"
    done = subprocess.run(
        [sys.executable, "-c", f"{blocked}{modules}; from sharder.kubectl.cli import main; sys.exit(main([]))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
