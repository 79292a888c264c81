"""Types, as users meet them: the built wheel in an environment of its own, under pyright and mypy --strict."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from docsite.pages import blocks_of, read_pages
from tests.types import mistakes

SDK_PAGES = {page: blocks_of(page, text) for page, text in read_pages().items() if page.startswith("sdk/")}
#: Type checkers take some twenty seconds each when nothing else runs.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: The SDK's pages as programs, with the files that they show; the checkout's examples are checked with it.
FILES = {
    block.file: block.text
    for blocks in SDK_PAGES.values()
    for block in blocks
    if block.file.endswith(".py") and block.file != "conftest.py"
}
PAGES = FILES | {
    f"page_{page.removeprefix('sdk/').removesuffix('.md')}.py": text
    for page, blocks in SDK_PAGES.items()
    if (text := "\n".join(block.text for block in blocks if block.language == "python" and not block.file))
    and "from examples" not in text
}

USERS_CODE = """
from typing import assert_type

import msgspec

from shardsdk import Cache, Condition, Context, Manager, ObjectMeta, PartialObject, RequeueAfter, Resource
from shardsdk import Delta, Operator, controller_for, LeaseTimings, ShardLease, claim, find_condition, set_conditions
from shardsdk.admission import Review
from shardsdk.kinds import ConfigMap, Kind, Secret
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.testing import Rig, SkewedClock, VirtualClock, drive

SECRETS = Resource("", "v1", "secrets", "Secret")


class Data(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] | None = None


async def typed(context: Context[Data]) -> RequeueAfter | None:
    assert_type(context.object, Data)
    assert_type(await context.api.get(SECRETS, "a", "default"), PartialObject)
    assert_type(await context.api.get(SECRETS, "a", "default", model=Data), Data)
    assert_type(find_condition(context.object, "Ready"), Condition | None)
    return RequeueAfter(30) if context.object.data else None


def plain(context: Context[PartialObject]) -> None:
    context.run(set_conditions(context, Condition("Ready", "True")))


timings = LeaseTimings()
first = controller_for(SECRETS, Data).reconcile(typed)
second = controller_for(SECRETS).options(name="second").reconcile(plain)
assert_type(drive([first, second]), Rig)
Manager("example").add(first).add(second)
virtual = VirtualClock()
clocks: list[Clock] = [SystemClock(), virtual, SkewedClock(virtual)]

operator = Operator("secrets")


def by_type(delta: Delta[Secret]) -> bool:
    return delta.object.type == "Opaque"


def by_name(delta: Delta[Kind]) -> bool:
    return delta.object.metadata.name != "root"


def by_size(delta: Delta[Secret | ConfigMap]) -> bool:
    return len(delta.object.data) < 3


@operator.reconcile(Secret, owns=[ConfigMap], when=by_type)
async def secret(ctx: Context[Secret]) -> None: ...


@secret.finalize
async def gone(ctx: Context[Secret]) -> RequeueAfter | None: ...


@secret.timer(every=60)
async def measure(ctx: Context[Secret]) -> None: ...


@secret.index("type")
def of_type(thing: Secret) -> list[str]:
    return [thing.type or ""]


@operator.index(ConfigMap, "keys")
def keys(thing: ConfigMap) -> tuple[str, ...]:
    return tuple(thing.data)


@secret.watches(ConfigMap, when=lambda delta: bool(delta.object.data))
def secrets(thing: ConfigMap) -> list[str]:
    return list(thing.data)


@secret.watches(ConfigMap, when=by_name)
def same(thing: ConfigMap) -> list[str]:
    return [thing.metadata.name]


operator.reconcile(Secret, name="small", when=by_size)
operator.reconcile(Secret, name="named", when=by_name)


@operator.validate(Secret)
async def check(review: Review[Secret]) -> list[str]:
    return [review.object.type or ""]


@operator.mutate(Secret)
def fill_in(review: Review[Secret]) -> None:
    review.object.type = "Opaque"


async def as_they_were(ctx: Context[Secret], review: Review[Secret], thing: ConfigMap) -> None:
    assert_type(await gone(ctx), RequeueAfter | None)
    assert_type(of_type(ctx.object), list[str])
    assert_type(keys(thing), tuple[str, ...])
    assert_type(secrets(thing), list[str])
    assert_type(await check(review), list[str])
    await measure(ctx)
    fill_in(review)
    for each in clocks:
        await each.sleep(1)
"""

#: What must not pass: (code, what mypy calls it, what pyright does).
MISTAKES = {
    "wrong-object": ("controller_for(SECRETS).reconcile(typed)", "arg-type", "reportArgumentType"),
    "wrong-option": ("controller_for(SECRETS).options(concurrency='4')", "arg-type", "reportArgumentType"),
    "no-such-name": ("from shardsdk import Worker", "attr-defined", "reportAttributeAccessIssue"),
    "wrong-index": ("secret.index('type', keys)", "arg-type", "reportArgumentType"),
    "wrong-warnings": ("operator.validate(Secret)(lambda review: 3)", "type-var", "reportArgumentType"),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and behind it what this one has."""
    folder = tmp_path_factory.mktemp("user")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "wheel")]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = (folder / "wheel").glob("*.whl")
    made = folder / "environment"
    venv.create(made, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(made), "platbase": str(made)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


def test_pyright_knows_the_type_of_every_public_name(environment: Path) -> None:
    """The command `pyright --verifytypes`; its own message names file and line of what it does not know."""
    command = [sys.executable, "-m", "basedpyright", "--verifytypes", "shardsdk", "--ignoreexternal", "--verbose"]
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, cwd=environment, capture_output=True, text=True, check=False
    )
    unknown = [line.strip() for line in done.stdout.splitlines() if "error:" in line]
    assert "Type completeness score: 100%" in done.stdout, unknown or done.stdout + done.stderr
    undocumented = [line.strip() for line in done.stdout.splitlines() if "No docstring found" in line]
    assert "Functions without docstring: 0" in done.stdout, undocumented
    assert "Classes without docstring: 0" in done.stdout, undocumented


WRONG = USERS_CODE + "\n".join(code for code, _, _ in MISTAKES.values())
PROGRAMS = {"right.py": USERS_CODE, "wrong.py": WRONG, "program.py": mistakes.PROGRAM}


@pytest.fixture(scope="module")
def by_mypy(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, str]]:
    """What `mypy --strict` finds amiss, by file, line and kind: one call for all, most of which is the SDK."""
    folder = write(tmp_path_factory.mktemp("mypy"), PROGRAMS | PAGES)
    (folder / "mypy.ini").write_text("[mypy]\n[mypy-kubernetes.*]\nfollow_imports = skip\n")
    # What it knows of Python and of others' packages it need not find out anew each time.
    cache = Path(".mypy_cache", "users").absolute()
    known = ["--cache-dir", str(cache), "--python-executable", str(environment / "bin" / "python")]
    command = [sys.executable, "-m", "mypy", "--strict", *known, *PROGRAMS, *PAGES]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    errors = re.findall(r"^(\S+\.py):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert len(errors) == done.stdout.count(": error:"), done.stdout
    return [(file, int(line), kind) for file, line, kind in errors]


@pytest.fixture(scope="module")
def by_pyright(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, str | None]]:
    """What pyright shows in an editor, likewise: not strictly, which is about users' own habits."""
    folder = write(tmp_path_factory.mktemp("pyright"), PROGRAMS)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "basedpyright", "--outputjson"]
    command += ["--pythonpath", str(environment / "bin" / "python")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    shown = json.loads(done.stdout)["generalDiagnostics"]
    # Hints of what the mistakes do are beside the point.
    shown = [each for each in shown if each["severity"] == "error" or Path(each["file"]).name != "program.py"]
    return [(Path(each["file"]).name, each["range"]["start"]["line"] + 1, each.get("rule")) for each in shown]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, code in files.items():
        (folder / name).write_text(code)
    return folder


def test_users_code_is_strictly_typed_and_mistakes_in_it_are_found(by_mypy: list[tuple[str, int, str]]) -> None:
    assert [each for each in by_mypy if each[0] not in ("wrong.py", "program.py")] == []
    kinds = [kind for file, _, kind in by_mypy if file == "wrong.py"]
    assert sorted(kinds) == sorted(kind for _, kind, _ in MISTAKES.values()), by_mypy


def test_so_it_is_in_an_editor(by_pyright: list[tuple[str, int, str | None]]) -> None:
    found = [(file, rule) for file, _, rule in by_pyright if file != "program.py"]
    assert sorted(found) == sorted(("wrong.py", rule) for _, _, rule in MISTAKES.values()), by_pyright


def test_mypy_finds_each_mistake_and_nothing_else(by_mypy: list[tuple[str, int, str]]) -> None:
    assert sorted({line for file, line, _ in by_mypy if file == "program.py"}) == mistakes.WRONG, by_mypy


def test_pyright_finds_each_mistake_and_nothing_else(by_pyright: list[tuple[str, int, str | None]]) -> None:
    assert sorted({line for file, line, _ in by_pyright if file == "program.py"}) == mistakes.WRONG, by_pyright
