"""The command line: what it prints, how it ends, and one clear line for what a user can mend."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sharder.cli import main
from sharder.failures import no_ring
from shardsdk.errors import NotFound
from shardsdk.version import VERSION
from tests.own_logging import own_logging

__all__ = ["own_logging"]  # applies to all tests of this file

HEADER = "apiVersion: config.sharding.timebertt.dev/v1alpha1\nkind: SharderConfig\n"
RING = """
apiVersion: sharding.timebertt.dev/v1alpha1
kind: ClusterRing
metadata: {name: example}
spec:
  resources:
  - resource: secrets
    controlledResources: [{resource: configmaps}]
"""


def roles_in(text: str) -> list[tuple[str, str]]:
    return [(document["kind"], document["metadata"]["name"]) for document in yaml.safe_load_all(text)]


# -- version and usage ------------------------------------------------------


@pytest.mark.parametrize("asked", ["version", "--version"])
def test_version_prints_the_version(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([asked]) == 0
    assert capsys.readouterr().out.startswith(f"sharder {VERSION} (Python 3.")


@pytest.mark.parametrize("command", [["-m", "sharder"], ["-c", "from sharder.cli import main; main()"]])
def test_the_module_and_the_script_are_the_same_command(command: list[str]) -> None:
    done = subprocess.run([sys.executable, *command, "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"sharder {VERSION}")


def test_version_needs_nothing_but_the_sdk() -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(['pydantic', 'yaml', 'fastapi', 'uvloop', 'kubernetes']));"
    done = subprocess.run(
        [sys.executable, "-c", blocked + "from sharder.cli import main; sys.exit(main(['version']))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_extra_is_told_with_the_command_that_installs_it() -> None:
    blocked = "import sys; sys.modules['pydantic'] = None;"
    done = subprocess.run(
        [sys.executable, "-c", blocked + "from sharder.cli import main; sys.exit(main([]))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "sharder: pydantic is not installed; install `pip install 'controller-sharding[sharder]'`"
    ]


@pytest.mark.parametrize(
    "arguments", [["--log-level", "loud"], ["--log-format", "xml"], ["rbac"], ["rbac", "a", "-f", "b"], ["frobnicate"]]
)
def test_wrong_arguments_end_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: sharder" in capsys.readouterr().err


def test_help_names_the_commands_and_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("--config", "--kubeconfig", "--log-level", "rbac", "version", "$KUBECONFIG"))


# -- configuration ----------------------------------------------------------


def test_every_problem_of_a_configuration_is_a_line_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HEADER + "leaderElection: {leaseDuratoin: 3s, retryPeriod: 2}\ncontroler: {}\n")
    assert main(["--config", str(path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"sharder: {path}: leaderElection.retryPeriod: 2 is not a duration; write a number with its unit in quotes,"
        ' such as "15s" or "1m30s"',
        f"sharder: {path}: leaderElection.leaseDuratoin: is unknown; did you mean leaseDuration?",
        f"sharder: {path}: controler: is unknown; did you mean controller?",
    ]


def test_a_configuration_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", "/nowhere/config.yaml"]) == 2
    assert capsys.readouterr().err == (
        "sharder: cannot read the configuration file /nowhere/config.yaml: No such file or directory; check --config\n"
    )


# -- sharder rbac -----------------------------------------------------------


def test_rbac_prints_role_and_binding_of_each_ring_in_a_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rings.yaml"
    other = RING.replace("name: example", "name: other")
    path.write_text(f"kind: Namespace\nmetadata: {{name: x}}\n---\n{RING}\n---\n\n---\n{other}")
    assert main(["rbac", "-f", str(path)]) == 0
    assert roles_in(capsys.readouterr().out) == [
        ("ClusterRole", "sharding:clusterring:example"),
        ("ClusterRoleBinding", "sharding:clusterring:example"),
        ("ClusterRole", "sharding:clusterring:other"),
        ("ClusterRoleBinding", "sharding:clusterring:other"),
    ]


def test_rbac_reads_what_kubectl_prints_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = yaml.safe_dump({"kind": "List", "items": [yaml.safe_load(RING)]})
    monkeypatch.setattr(sys, "stdin", io.StringIO(listed))
    assert main(["rbac", "--filename", "-"]) == 0
    assert len(roles_in(capsys.readouterr().out)) == 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("kind: Namespace\n", "holds no ClusterRing"),
        ("", "holds no ClusterRing"),
        ("a: [", "is not YAML"),
        ("!!python/object:os.system {}", "is not YAML"),
        (RING.replace("resource: secrets", "resource: Secrets"), "spec.resources[0].resource"),
        (RING.replace("example", "x" * 64), "metadata.name"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_told(
    content: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ring.yaml"
    path.write_text(content)
    assert main(["rbac", "-f", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert len(err.splitlines()) == 1


def test_a_manifest_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "-f", "/nowhere/ring.yaml"]) == 2
    assert "cannot read /nowhere/ring.yaml: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--kubeconfig", "{}", "rbac", "x"], ["rbac", "x", "--kubeconfig", "{}"]])
def test_an_unreadable_kubeconfig_is_one_line_wherever_the_option_stands(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "kubeconfig")
    assert main([argument.format(path) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sharder: ")
    assert path in line


def test_output_that_nobody_reads_to_its_end_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "rings.yaml"
    path.write_text("\n---\n".join(RING.replace("name: example", f"name: ring-{n}") for n in range(500)))
    command = f"{sys.executable} -m sharder rbac -f {path} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("apiVersion: rbac.authorization.k8s.io/v1\n", "")


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["crds"], ["rbac", "--help"]])
@pytest.mark.parametrize(("stdout", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
def test_output_that_goes_nowhere_is_one_line(arguments: list[str], stdout: str, why: str) -> None:
    command = shlex.join([sys.executable, "-m", "sharder", *arguments])
    done = subprocess.run(f"{command} {stdout}", shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"sharder: {why}: standard output\n")


def test_a_chart_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["chart", str(tmp_path / "file" / "sub")]) == 2
    assert "/file/sub cannot be written: Not a directory; name another folder" in capsys.readouterr().err


# -- what is asked of a cluster -----------------------------------------------


@pytest.mark.parametrize("command", [["rbac", "a"], ["uninstall"], ["crds", "--apply"]])
def test_an_api_server_that_is_away_is_told_with_where_it_was_named(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config"
    path.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    assert main([*command, "--kubeconfig", str(path)]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"sharder: no API server answers at http://127.0.0.1:1 (kubeconfig {path}): ")
    assert line.endswith("start that cluster, or name another by --kubeconfig")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["uninstall", "-n", "a/b"], "'a/b' cannot be a name"),
        (["uninstall", "--lease", "a,b=c"], "'a,b=c' cannot be a name"),
        (["rbac", "a", "--service-account", "A B/c"], "'A B' cannot be a name"),
    ],
)
def test_what_cannot_be_a_name_is_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err


def test_a_ring_that_is_not_there_is_told_apart_from_a_type_that_is_not() -> None:
    unserved = NotFound("get a: 404 — the API server does not serve this type; install its CustomResourceDefinition")
    assert str(no_ring(unserved, "a", "https://h", "look")).startswith("https://h does not serve ClusterRings; install")
    assert str(no_ring(NotFound("get a: 404"), "a", "https://h", "look")) == (
        "there is no ClusterRing 'a' at https://h; look"
    )


def test_the_chart_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "made" / "chart"
    assert main(["chart", str(folder)]) == 0
    assert "-n sharding-system --create-namespace" in capsys.readouterr().err
    chart = Path("charts/sharder")
    written = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert written == {str(path.relative_to(chart)): path.read_bytes() for path in chart.rglob("*") if path.is_file()}
    assert main(["chart", str(folder)]) != 0
    assert "is there already, and not empty: name another folder" in capsys.readouterr().err
