"""The API reference has every public name, with what its docstring says."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from docsite import reference
from docsite.reference import MODULES, NOT_SHOWN, render_module
from shardsdk import Api, PatchKind


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_place(name: str) -> None:
    module, page = importlib.import_module(name), render_module(name)
    headings = set(re.findall(r"^## (.+)$", page, re.MULTILINE))
    shown = {each for each in module.__all__ if not is_kubernetes_own(getattr(module, each))}
    assert shown <= headings
    assert headings - shown <= {"Kubernetes' own kinds"}
    for each in set(module.__all__) - shown:
        assert f"`{each}`" in page


def is_kubernetes_own(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).startswith(NOT_SHOWN)


@pytest.mark.parametrize("name", MODULES)
def test_signatures_are_as_one_would_write_them(name: str) -> None:
    code = re.findall(r"```python\n(.*?)\n```", render_module(name), re.DOTALL)
    assert code
    assert not [each for each in code if "<class" in each or " at 0x" in each]


def test_a_long_signature_has_a_line_for_each_parameter() -> None:
    page = render_module("shardsdk")
    patch = page.partition("### Api.patch\n")[2].partition("### ")[0]
    assert "async def patch(\n    resource: Resource,\n" in patch
    assert "    *,\n    kind: PatchKind = PatchKind.MERGE,\n" in patch
    assert str(Api.patch.__doc__).split(";")[0] in patch
    assert f"- `PatchKind.MERGE`: {PatchKind.MERGE.value}" in page


def test_examples_of_docstrings_are_code() -> None:
    page = render_module("shardsdk")
    assert "```python\n>>> " in page
    assert not re.search(r"^>>> ", re.sub(r"```python\n.*?\n```", "", page, flags=re.DOTALL), re.MULTILINE)


def test_what_has_no_words_says_none_of_its_parents() -> None:
    class Parent:
        """Has words."""

    class Child(Parent):
        pass

    assert "Has words" not in "".join(reference._class("Child", Child))
