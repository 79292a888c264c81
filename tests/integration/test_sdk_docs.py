"""Every code block of docs/sdk runs, on a real control plane where it needs one, and every public name is shown in one.

A block whose first line is `# NAME.py` becomes that file; the other Python
blocks of a page are one program, whose tests are run; commands are run in order.
"""

from __future__ import annotations

import doctest
import os
import re
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio

import shardsdk
import shardsdk.testing
from docsite.pages import Block, blocks_of, read_pages
from localcluster import ControlPlane
from tests.walking import ROOT, make_tools, run, runtime_directory

SECONDS = 240
PAGES = {page: blocks_of(page, text) for page, text in read_pages().items() if page.startswith("sdk/")}
#: The file that the Python blocks of a page become.
PROGRAM = "test_page.py"
#: Types in the signatures of what the pages show: who uses that need not name them.
NOT_SHOWN = {"Admit", "Change", "Given", "Object", "Story"}


def program_of(blocks: tuple[Block, ...]) -> str:
    """The unnamed Python blocks of a page, as one file; imports may stand where the page needs them."""
    return "\n".join(block.text for block in blocks if block.language == "python" and not block.file)


def files_of(blocks: tuple[Block, ...]) -> dict[str, str]:
    files = {block.file: block.text for block in blocks if block.file}
    program = program_of(blocks)
    return files | ({PROGRAM: program} if program else {})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """One for the pages alone: what they run looks at every namespace."""
    del control_plane  # has found or built the programs
    async with ControlPlane() as made:
        yield made


def test_every_block_is_run() -> None:
    assert {block.language for blocks in PAGES.values() for block in blocks} <= {"python", "sh"}


def test_the_front_page_is_the_example() -> None:
    (shown,) = (block.text for block in PAGES["sdk/index.md"] if block.file == "website.py")
    assert shown.removeprefix("# website.py\n").strip() == (ROOT / "examples" / "website.py").read_text().strip()


def test_metrics_that_are_recommended_exist() -> None:
    pages = read_pages()
    named = set(re.findall(r"`((?:shardsdk|workqueue|controller_runtime|rest_client)_\w+)`", pages["sdk/running.md"]))
    assert named
    assert [name for name in named if f"`{name}`" not in pages["metrics.md"]] == []


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("page", PAGES)
async def test_page_works(page: str, plane: ControlPlane, tmp_path: Path) -> None:
    files = files_of(PAGES[page])
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    tools = make_tools(tmp_path / "tools")
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        "KUBEBUILDER_ASSETS": str(tools),
        "KUBECONFIG": str(plane.admin_kubeconfig),
        "HOME": str(tmp_path),
        "XDG_RUNTIME_DIR": str(runtime_directory(tmp_path)),
    }
    commands = [command for block in PAGES[page] for command in block.commands]
    if PROGRAM in files:
        commands.append(f"python -m pytest -q -p no:randomly -p no:cacheprovider {PROGRAM} || test $? -eq 5")
    code, output = await run("\n".join(["set -eumx -o pipefail", *commands]), tmp_path, environment, SECONDS)
    assert code == 0, output


@pytest.mark.parametrize("package", [shardsdk, shardsdk.testing], ids=lambda package: str(package.__name__))
def test_every_public_name_is_documented_and_shown_in_use(package: object) -> None:
    shown = "\n".join(block.text for blocks in PAGES.values() for block in blocks if block.language == "python")
    names = [name for name in package.__all__ if name not in NOT_SHOWN]  # type: ignore[attr-defined]
    assert [name for name in names if not re.search(rf"\b{name}\b", shown)] == []
    undocumented = [
        name
        for name in names
        if callable(getattr(package, name)) and not (getattr(package, name).__doc__ or "").strip()
    ]
    assert undocumented == []


@pytest.mark.parametrize(
    "module",
    sorted(
        str(path.relative_to(ROOT).with_suffix("")).replace(os.sep, ".").removesuffix(".__init__")
        for path in (ROOT / "shardsdk").rglob("*.py")
        if ">>> " in path.read_text()
    ),
)
def test_examples_in_docstrings_work(module: str) -> None:
    found = doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0
    assert sys.modules[module].__doc__


@pytest.mark.parametrize("module", [shardsdk.predicates, shardsdk.selectors], ids=lambda module: str(module.__name__))
def test_every_function_of_a_public_module_has_an_example_that_can_fail(module: ModuleType) -> None:
    offered = [each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__]
    names = {each.__name__ for each in offered if not each.__name__.startswith("_")}
    shown = set()
    for test in doctest.DocTestFinder().find(module):
        name = test.name.rpartition(".")[2]
        if any(each.want for each in test.examples) and any(f"{name}(" in each.source for each in test.examples):
            shown.add(name)
    assert len(names) > 5
    assert names <= shown, f"without an example: {sorted(names - shown)}"


def test_public_modules_are_those_whose_functions_need_examples() -> None:
    modules = {name for name in shardsdk.__all__ if isinstance(getattr(shardsdk, name), ModuleType)}
    assert modules == {"errors", "predicates", "selectors"}
