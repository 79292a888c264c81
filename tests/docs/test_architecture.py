"""docs/architecture.md and CONTRIBUTING.md name files and packages that are there, in the order that imports have."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
PICTURES = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
OF_PICTURE = ("both", "sharder", "sharder", "sharder", "shardsdk", "shardsdk")
#: A file in a picture: the heading over it says of which program.
IN_PICTURE = re.compile(r"\b((?:[a-z]+/)+[a-z_0-9]+\.py)")
IN_TEXT = re.compile(r"`((?:sharder|shardsdk|tests|docsite|localcluster|bench|examples)/[\w./]*)`")


def layers(container: str) -> list[str]:
    """The packages of a program from top to bottom, as import-linter holds them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [found] = [each["layers"] for each in contracts if each.get("containers") == [container]]
    return [name for row in found for name in re.findall(r"\w+", row)]


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_that_is_named_is_there(page: str) -> None:
    named = IN_TEXT.findall((ROOT / page).read_text())
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_name_that_is_said_to_be_in_a_file_is_there() -> None:
    """As `path/of.py` (`name`, words, `Another`) has them."""
    named = re.findall(r"`((?:sharder|shardsdk|docsite)/[\w/]*\.py)` \(([^)]*)\)", PAGE)
    assert len(named) > 10
    missing = [
        (file, name)
        for file, words in named
        for name in re.findall(r"`([A-Za-z_]\w*)(?:\.\w+)*`", words)
        if not (ROOT / name).exists() and not re.search(rf"\b{name}\b", (ROOT / file).read_text())
    ]
    assert not missing


def test_every_test_that_a_decision_names_is_there() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    named = [
        (path.name, name)
        for path in sorted((ROOT / "docs/decisions").glob("*.md"))
        for name in re.findall(r"[\w/]*\btest_\w+\.py", path.read_text().replace("/\n", "/"))
    ]
    assert named
    assert not [each for each in named if not any(f"/{file}".endswith(f"/{each[1]}") for file in files)]


def test_every_file_in_a_picture_is_there() -> None:
    missing = [
        name
        for number, picture in enumerate(PICTURES)
        for name in IN_PICTURE.findall(picture)
        if not (ROOT / ("" if "shard" in name.split("/")[0] else OF_PICTURE[number]) / name).exists()
    ]
    assert not missing


@pytest.mark.parametrize("program", ["sharder", "shardsdk"])
def test_packages_are_listed_in_the_order_of_their_imports(program: str) -> None:
    half = slice(0, 43) if program == "sharder" else slice(43, None)
    rows = [line[half] for line in PICTURES[0].splitlines()[1:]]
    column = [name for row in rows for name in re.findall(r"^ +([a-z]+)/ ", row)]
    order = layers(program)
    # Of the sharder, what stands beside the line of a ring's parts comes last.
    listed = [name for name in column if name not in ("webhook", "kubectl", "config", "telemetry")]
    assert sorted(listed, key=order.index) == listed
    folders = {path.name for path in (ROOT / program).iterdir() if (path / "__init__.py").exists()}
    named = {*column, "telemetry"} if program == "sharder" else {*column, "contrib", "testing"}
    assert folders == named


def test_every_test_that_promises_are_held_by_is_there() -> None:
    """The table of CONTRIBUTING names files relative to tests/, the folder of the one before where it has none."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.split("| promise | held by |")[1].split("\n\n")[0]
    for cell in (cell for row in table.splitlines()[2:] for cell in row.split("|")[2:4]):
        folder = ""
        for name in re.findall(r"[\w/]+\.py|\w+(?:/\w+)*", re.sub(r"\(.*?\)", "", cell)):
            folder = name.rpartition("/")[0] or folder
            found = ROOT / "tests" / (name if "/" in name or not name.endswith(".py") else f"{folder}/{name}")
            assert found.exists(), name
