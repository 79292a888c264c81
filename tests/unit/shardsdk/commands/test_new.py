"""`shardsdk new` writes a project all of which works as it is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from shardsdk.cli import main
from shardsdk.commands.new import FILES, Project
from shardsdk.errors import ConfigurationError
from shardsdk.kinds.custom import plural_of
from shardsdk.version import VERSION

ROOT = Path(__file__).parents[4]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "web-sites", "--group", "pages.example.org"]) == 0
    assert "shardsdk run web_sites.py --dev --install-crds" in capsys.readouterr().out
    return tmp_path / "web-sites"


def run(project: Path, *arguments: str) -> str:
    """As in the project's own environment."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_test_passes_without_a_cluster(project: Path) -> None:
    assert "1 passed" in run(project, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")


def test_a_kind_that_is_called_like_a_test_is_none(tmp_path: Path) -> None:
    project = tmp_path / "test-runs"
    Project.of("test-runs", None, "example.com").write(project)
    assert "1 passed" in run(project, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")


def test_its_types_are_right(project: Path) -> None:
    # What mypy knows of the SDK and of others' packages it need not find out anew each time.
    assert "Success" in run(project, "mypy", "--cache-dir", str(ROOT / ".mypy_cache" / "new"))


def test_its_manifests_and_definitions_are_printed(project: Path) -> None:
    made = list(yaml.safe_load_all(run(project, "shardsdk", "manifests", "web_sites.py", "--image", "i:1")))
    assert made[0]["metadata"]["name"] == "websites.pages.example.org"
    assert {"Deployment", "ServiceAccount"} <= {each["kind"] for each in made}
    example = yaml.safe_load((project / "example.yaml").read_text())
    assert example["kind"] == made[0]["spec"]["names"]["kind"] == "WebSite"
    assert example["apiVersion"].partition("/")[2] == made[0]["spec"]["versions"][0]["name"]


def test_its_files_are_formatted_as_ruff_has_it(project: Path) -> None:
    # Not RUF012: that a list may be a default is what msgspec says of its classes.
    run(project, "ruff", "check", "--isolated", "--no-cache", "--select=E,F,I,B,UP,SIM,C4", "--line-length=120", ".")
    run(project, "ruff", "format", "--isolated", "--no-cache", "--check", "--line-length", "120", ".")


def test_every_name_is_filled_in_and_every_file_used(project: Path) -> None:
    written = sorted(path.relative_to(project) for path in project.rglob("*") if path.is_file())
    assert len(written) == len(FILES)
    for path in written:
        text = (project / path).read_text()
        assert not [word for word in ("@name@", "@module@", "@kind@", "@plural@", "@group@") if word in text]
    assert {path.name for path in (ROOT / "shardsdk/commands/project").iterdir()} == set(FILES)


def test_the_image_has_what_its_entry_point_names(project: Path) -> None:
    lines = (project / "Dockerfile").read_text().splitlines()
    (copied,) = [line.split()[1:-1] for line in lines if line.startswith("COPY")]
    assert set(copied) == {"pyproject.toml", "web_sites.py"}
    assert set(copied) == {line[1:] for line in (project / ".dockerignore").read_text().splitlines() if line != "*"}
    assert 'ENTRYPOINT ["shardsdk", "run", "/app/web_sites.py"]' in lines
    assert "USER 65532:65532" in lines
    wheel = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["only-include"] == ["web_sites.py"]


def test_its_wheel_is_the_operator(project: Path) -> None:
    """What `make install` and the image's `pip install .` make of it."""
    run(project, "hatchling", "build", "--target", "wheel", "--directory", "wheels")
    (wheel,) = (project / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as packed:
        code = [name for name in packed.namelist() if ".dist-info/" not in name]
        (metadata,) = (packed.read(name).decode() for name in packed.namelist() if name.endswith("/METADATA"))
    assert code == ["web_sites.py"]
    assert f"Requires-Dist: controller-sharding>={VERSION}\n" in metadata


def test_its_makefile_checks_tests_and_prints(project: Path, tmp_path: Path) -> None:
    """With the programs on the PATH that installing it puts there; `make install` and `make image` take a network."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, module in (("python", ()), ("shardsdk", ("-m", "shardsdk"))):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *module])} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["make", "check", "test", "manifests", "chart", "IMAGE=registry.example.com/web:7", "NAMESPACE=team"],
        cwd=project, env={**environment, "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache" / "new")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "image: registry.example.com/web:7\n" in done.stdout
    assert "namespace: team\n" in done.stdout
    assert (project / "chart" / "Chart.yaml").exists()


def test_the_makefile_and_the_ci_name_targets_that_there_are(project: Path) -> None:
    for target in ("install", "test", "check", "run", "image", "manifests", "chart"):
        subprocess.run(["make", "--dry-run", target], cwd=project, check=True, capture_output=True)
    steps = yaml.safe_load((project / ".github/workflows/ci.yaml").read_text())["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "make" in step.get("run", "")] == [
        "make install", "make check test", "make manifests",
    ]  # fmt: skip


def test_what_its_test_takes_is_installed_as_every_pip_knows_how(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tomllib.loads((project / "pyproject.toml").read_text())
    assert "dependency-groups" not in made  # pip has known those since 25.1 alone
    assert {each.partition(">")[0] for each in made["project"]["optional-dependencies"]["dev"]} == {"mypy", "pytest"}
    for name in ("README.md", "Makefile"):
        assert "pip install --editable '.[dev]'\n" in (project / name).read_text()
    assert main(["new", "others"]) == 0
    hint = capsys.readouterr().out
    assert -1 < hint.find("pip install --editable '.[dev]'") < hint.find("python -m pytest")


@pytest.mark.parametrize(
    ("name", "kind", "plural"),
    [("websites", "Website", "websites"), ("policies", "Policy", "policies"), ("redis", "Redi", "redis"),
     ("backup-operator", "Backup", "backups"), ("access", "Access", "accesses"), ("db-boxes", "DbBoxe", "dbboxes")],
)  # fmt: skip
def test_the_kind_is_guessed_from_the_name(name: str, kind: str, plural: str) -> None:
    made = Project.of(name, None, "example.com")
    assert (made.kind, plural_of(made.kind.lower())) == (kind, plural)


@pytest.mark.parametrize(
    ("name", "kind", "group", "says"),
    [
        ("Websites", None, "example.com", "'Websites' cannot be the name of an operator"),
        ("1st", None, "example.com", "beginning with a letter"),
        ("a" * 53, None, "example.com", "use up to 52 lower-case letters"),
        ("websites", "website", "example.com", "--kind 'website' is no kind: begin with a capital letter"),
        ("websites", None, "example", "--group 'example' is no API group: use a domain that is yours"),
        ("websites", None, "apps.k8s.io", "--group 'apps.k8s.io' is Kubernetes' own"),
        ("websites", None, "kubernetes.io", "--group 'kubernetes.io' is Kubernetes' own"),
        ("websites", "List", "example.com", "--kind List is what kubectl calls any list"),
        ("websites", "W" * 60, "example.com", "has 60 characters: use up to 59"),
        ("json", None, "example.com", "json.py would hide what Python calls json: choose another name"),
        ("shardsdk", None, "example.com", "shardsdk.py would hide"),
        ("aiohttp", None, "example.com", "aiohttp.py would hide"),
        ("prometheus-client", None, "example.com", "prometheus_client.py would hide"),
        ("class", None, "example.com", "class.py would hide"),
        ("nones", None, "example.com", "None is a word of Python's: choose another kind, by --kind"),
        ("operators", None, "example.com", "operators.py would have a class Operator, and imports another"),
        ("config-maps", None, "example.com", "a class ConfigMap, and .* choose another kind than ConfigMap, by --kind"),
        ("columns", None, "example.com", "a class Column"),
        ("lengths", None, "example.com", "a class Length"),
        ("annotateds", None, "example.com", "a class Annotated"),
        ("conditions", None, "example.com", "a class Condition"),
        ("model-operator", None, "example.com", "a class Model"),
        ("contexts", None, "example.com", "a class Context"),
        ("websites", "CustomResource", "example.com", "a class CustomResource"),
    ],
)
def test_wrong_input_says_what_to_write(name: str, kind: str | None, group: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Project.of(name, kind, group)


def test_a_folder_of_that_name_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m shardsdk` has the working directory on its path."""
    (tmp_path / "websites").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert Project.of("websites", "", "example.com").name == "websites"


def test_a_folder_with_something_in_it_is_left_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_text() for path in project.rglob("*") if path.is_file()}
    assert main(["new", "web-sites"]) == 2
    assert "web-sites is there already, and not empty: choose another name, or --folder" in capsys.readouterr().err
    assert {path: path.read_text() for path in project.rglob("*") if path.is_file()} == before


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["new", "websites", "--folder", str(tmp_path / "file" / "sub")]) == 2
    said = capsys.readouterr().err
    assert said.endswith("/file/sub cannot be written: Not a directory; name another folder by --folder\n")


def test_names_of_groups_that_only_look_like_kubernetes_own_are_taken() -> None:
    assert Project.of("websites", "W" * 59, "myk8s.io").group == "myk8s.io"
