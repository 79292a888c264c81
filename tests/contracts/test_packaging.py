"""The wheel holds the two packages, typed, and nothing else; the lock file names no place."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from shardsdk.version import VERSION

PROJECT = tomllib.loads(Path("pyproject.toml").read_text())
LOCK = Path("requirements-dev.txt").read_text()


def build(folder: Path, sources: Path = Path()) -> Path:
    """The wheel of these sources."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=sources, check=True, capture_output=True)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(build(tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(wheel.read(f"controller_sharding-{VERSION}.dist-info/METADATA").decode())


def test_wheel_holds_the_two_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    roots = {name.split("/")[0] for name in wheel.namelist()}

    assert roots == {"sharder", "shardsdk", f"controller_sharding-{VERSION}.dist-info"}
    expected = {str(path) for package in ("sharder", "shardsdk") for path in Path(package).rglob("*.py")}
    assert expected <= set(wheel.namelist())


def test_whoever_builds_the_same_sources_elsewhere_and_later_gets_the_same_wheel(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """By which a wheel's origin can be shown without a key."""
    left_out = shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "site", "__pycache__", ".*_cache", ".hypothesis"
    )
    shutil.copytree(".", tmp_path / "elsewhere", ignore=left_out, copy_function=shutil.copyfile)
    again = build(tmp_path / "dist", tmp_path / "elsewhere")
    assert wheel.filename is not None
    assert again.read_bytes() == Path(wheel.filename).read_bytes()


def test_wheel_brings_the_chart_for_those_without_a_checkout(wheel: zipfile.ZipFile) -> None:
    prefix, chart = "sharder/chart/", Path("charts/sharder")
    brought = {name.removeprefix(prefix): wheel.read(name) for name in wheel.namelist() if name.startswith(prefix)}
    assert brought == {str(path.relative_to(chart)): path.read_bytes() for path in chart.rglob("*") if path.is_file()}


def test_wheel_brings_the_crds_for_installers(wheel: zipfile.ZipFile) -> None:
    brought = {name: wheel.read(name) for name in wheel.namelist() if name.startswith("sharder/crds/")}

    assert brought == {f"sharder/crds/{path.name}": path.read_bytes() for path in Path("crds").iterdir()}


def test_wheel_brings_what_new_projects_are_made_of(wheel: zipfile.ZipFile) -> None:
    brought = {name: wheel.read(name) for name in wheel.namelist() if name.startswith("shardsdk/commands/project/")}

    assert brought == {str(path): path.read_bytes() for path in Path("shardsdk/commands/project").iterdir()}


def test_wheel_is_typed_and_licensed(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert {"sharder/py.typed", "shardsdk/py.typed"} <= set(wheel.namelist())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Apache License" in wheel.read(f"controller_sharding-{VERSION}.dist-info/licenses/LICENSE").decode()


def test_version_comes_from_one_place(metadata: Message) -> None:
    assert metadata["Version"] == VERSION
    assert "version" not in PROJECT["project"]
    assert re.search(r"^## \[Unreleased\]$", Path("CHANGELOG.md").read_text(), re.MULTILINE)


def test_a_shard_needs_no_web_framework(metadata: Message) -> None:
    always = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]

    assert sorted(_normal(need) for need in always) == [
        "aiohttp",
        "click",
        "kubernetes",
        "msgspec",
        "prometheus-client",
        "pyyaml",
        "typing-extensions",
        "watchfiles",
        "yarl",
    ]


def test_wheel_brings_the_commands(wheel: zipfile.ZipFile) -> None:
    entry = wheel.read(f"controller_sharding-{VERSION}.dist-info/entry_points.txt").decode()

    assert "sharder = sharder.__main__:main" in entry
    assert "shardsdk = shardsdk.__main__:main" in entry


def test_wheel_brings_the_kubectl_plugin_under_the_names_that_kubectl_looks_for(wheel: zipfile.ZipFile) -> None:
    entry = wheel.read(f"controller_sharding-{VERSION}.dist-info/entry_points.txt").decode()

    assert "kubectl-sharding = sharder.kubectl.cli:main" in entry
    assert "kubectl_complete-sharding = sharder.kubectl.completion:main" in entry


def test_plugin_needs_a_part_of_what_the_service_needs() -> None:
    extras = PROJECT["project"]["optional-dependencies"]

    assert set(extras["kubectl"]) < set(extras["sharder"])


def test_webhooks_need_a_part_of_what_the_service_needs() -> None:
    extras = PROJECT["project"]["optional-dependencies"]

    assert set(extras["webhooks"]) < set(extras["sharder"])


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-dev.txt", "requirements-lowest.txt"])
def test_every_locked_dependency_has_hashes_and_no_place(lock: str) -> None:
    text = Path(lock).read_text()
    entries = re.split(r"\n(?=\S)", text)
    packages = [entry for entry in entries if not entry.startswith("#")]

    assert packages
    assert all("--hash=sha256:" in entry for entry in packages)
    assert not re.search(r"https?://|^\s*--(index|extra-index|find-links)|(?<![\w.-])/\w+/", text, re.MULTILINE)


def test_lock_names_everything_that_the_project_asks_for() -> None:
    project = PROJECT["project"]
    wanted = [
        *project["dependencies"],
        *project["optional-dependencies"]["sharder"],
        *project["optional-dependencies"]["kubectl"],
        *PROJECT["dependency-groups"]["dev"],
    ]
    locked = set(re.findall(r"^([a-z0-9-]+)==", LOCK, re.MULTILINE))

    assert {_normal(need) for need in wanted} <= locked


def test_the_lowest_version_that_is_asked_for_can_be_had_with_all_the_others() -> None:
    """`make lock` finds the lowest of all together, `make lowest` tests with them; nobody has tried anything lower."""
    locked = re.findall(r"^([a-z0-9-]+)==([\d.]+)", Path("requirements-lowest.txt").read_text(), re.MULTILINE)
    project = PROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values(), PROJECT["dependency-groups"]["dev"]]
    asked = {(_normal(need), "".join(re.findall(r">=([\d.]+)", need))) for needs in groups for need in needs}

    lowest = {(name, _short(version)) for name, version in locked}
    assert [f"{name}>={version}" for name, version in sorted(asked) if (name, _short(version)) not in lowest] == []


def _short(version: str) -> str:
    """The same version without zeros at its end."""
    return re.sub(r"(\.0)+$", "", version)


def _normal(need: str) -> str:
    """The name of a distribution that is asked for, as packagers compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=!;\[ ]", need)[0]).lower()


#: Extras on top of what a shard needs, by the file or folder that may import from them; the longest that fits counts.
EXTRAS = {
    "shardsdk": None,
    "shardsdk/contrib/kopf": "kopf",
    "shardsdk/serving": "webhooks",
    "sharder": "sharder",
    "sharder/kubectl": "kubectl",
}
#: Imports of what somebody else brings, with who.
BROUGHT = {
    ("shardsdk/testing/fixtures.py", "pytest"): "a plugin of pytest, which alone loads it",
}
#: Asked for without an import.
UNIMPORTED = {"httptools": "uvicorn parses by it, four times as fast as by what it brings"}


@cache
def _imports() -> frozenset[tuple[str, str]]:
    """File and top package of every import in the packages, of those that are not Python's own or the project's."""
    own = {*sys.stdlib_module_names, "sharder", "shardsdk"}
    found = set[tuple[str, str]]()
    for path in (path for package in ("sharder", "shardsdk") for path in Path(package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found |= {(str(path), root) for name in names if (root := name.partition(".")[0]) not in own}
    return frozenset(found)


def _declared(path: str) -> set[str]:
    extra = EXTRAS[max((prefix for prefix in EXTRAS if path.startswith(prefix)), key=len)]
    extras = PROJECT["project"]["optional-dependencies"]
    return {_normal(need) for need in [*PROJECT["project"]["dependencies"], *(extras[extra] if extra else ())]}


def test_everything_that_is_imported_is_asked_for() -> None:
    brings = packages_distributions()
    found = [
        f"{path} imports {name}"
        for path, name in sorted(_imports())
        if (path, name) not in BROUGHT and not {_normal(each) for each in brings.get(name, ())} & _declared(path)
    ]

    assert found == []


def test_everything_that_is_asked_for_is_imported() -> None:
    brings = packages_distributions()
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = {_normal(need) for needs in (PROJECT["project"]["dependencies"], *extras.values()) for need in needs}

    assert wanted - {_normal(each) for _, name in _imports() for each in brings.get(name, ())} == set(UNIMPORTED)


@pytest.mark.parametrize("name", ["aiohttp", "kopf", "kubernetes"])
def test_what_is_leaned_on_beyond_its_interface_is_bounded(name: str) -> None:
    project = PROJECT["project"]
    needs = [*project["dependencies"], *(each for needs in project["optional-dependencies"].values() for each in needs)]

    assert all(re.search(r"<\d", need) for need in needs if _normal(need) == name)
