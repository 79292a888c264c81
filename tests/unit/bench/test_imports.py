"""What is measured of an import is what the first program of docs/sdk/index.md imports."""

from __future__ import annotations

import ast
from typing import Final

import shardsdk
from bench.imports import NAMES
from docsite.pages import blocks_of, read_pages

PAGE: Final = "sdk/index.md"


def test_the_front_pages_program_needs_nine_names_and_these_are_measured() -> None:
    program = next(block for block in blocks_of(PAGE, read_pages()[PAGE]) if block.file.endswith(".py"))
    imports = [each for each in ast.parse(program.text).body if isinstance(each, ast.ImportFrom)]
    names = [alias.name for each in imports if each.module == "shardsdk" for alias in each.names]
    # Beside them it imports the module of the built-in kinds, which loads none before it is used.
    assert tuple(name for name in names if name != "kinds") == NAMES
    assert len(NAMES) == 9
    assert set(NAMES) <= set(shardsdk.__all__)
