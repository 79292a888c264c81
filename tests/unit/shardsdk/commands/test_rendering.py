"""Manifests are read by parsers in Go, which take some texts without quotes for numbers and booleans."""

from __future__ import annotations

import pytest
import yaml

from shardsdk.commands.rendering import render, render_scalar

#: Each was read by kubectl 1.32 as a number or a boolean when it had no quotes.
MISTAKEN = (
    "y Y n N 1e3 1E3 4212e67 6e-58 -1e3 +1e3 1_0e3 3e_0 1.e3 .1e3 -.5e1 +.5 0e0 08 03682 +_1 0o14 0O14 -0o7 0B1 0X1F"
)
PLAIN = "yes-no e3 v1 1.2.3 10.0.0.1 2001db8 abc-1 x"


@pytest.mark.parametrize("text", MISTAKEN.split())
def test_texts_that_go_takes_for_something_else_are_quoted(text: str) -> None:
    assert render([{text: text}]) == f"'{text}': '{text}'\n"
    assert render_scalar([text]) == f"['{text}']"


@pytest.mark.parametrize("text", PLAIN.split())
def test_others_are_not(text: str) -> None:
    assert render([{text: text}]) == f"{text}: {text}\n"


def test_numbers_and_booleans_are_what_they_are() -> None:
    document = {"a": 5, "b": -1.5, "c": 1e17, "d": 1e-7, "e": True, "f": None, "g": 0}
    assert yaml.safe_load(render([document])) == document
    assert "'" not in render([document])
