"""The command line of the plugin: how it ends, and one clear line for what a user can mend."""

from __future__ import annotations

import json
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
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    blocked = "import sys; sys.modules.update(dict.fromkeys(['xxhash', 'cryptography']));"
    for command in ("status", "check"):
        done = subprocess.run(
            [sys.executable, "-c", f"{blocked}from sharder.kubectl.cli import main; sys.exit(main(['{command}']))"],
            env={"KUBECONFIG": str(kubeconfig), "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert line.endswith("is not installed; install `pip install 'controller-sharding[kubectl]'`")


def test_a_terminal_that_knows_only_ascii_gets_something(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from sharder.kubectl.cli import main; main(['status']); print('✓')"],
        env={"PYTHONIOENCODING": "ascii", "KUBECONFIG": str(tmp_path / "none"), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "?\n"


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
