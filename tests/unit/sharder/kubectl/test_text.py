"""Tables, colours and spans of time."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharder.kubectl.text import Cell, Painter, Tone, bar, number, plural, span, wants_colours


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"), (0.4, "0s"), (119, "119s"), (120, "2m"), (185, "3m5s"), (3599, "59m"), (7800, "130m"),
        (3 * 3600, "3h"), (4 * 3600 + 600, "4h10m"), (30 * 3600, "30h"), (4 * 86400, "4d"),
    ],
)  # fmt: skip
def test_spans_read_like_kubectls(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


@given(st.floats(0, 1e8))
def test_every_span_is_short(seconds: float) -> None:
    assert 2 <= len(span(seconds)) <= 6


def test_columns_line_up_whatever_the_colours() -> None:
    rows = [[Cell("a", Tone.BAD), number(5)], [Cell("longer"), number(1234)]]
    plain = Painter(False).table(["NAME", "N"], rows)
    assert plain == ["NAME        N", "a           5", "longer   1234"]
    painted = Painter(True).table(["NAME", "N"], rows)
    assert painted[1] == "\x1b[31ma\x1b[0m           5"


def test_zero_is_faint_and_unknown_is_a_question_mark() -> None:
    assert number(0, Tone.BAD).tone is Tone.FAINT
    assert number(None).text == "?"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "terminal", "environ", "wanted"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    choice: str, terminal: bool, environ: dict[str, str], wanted: bool
) -> None:
    assert wants_colours(choice, Terminal() if terminal else io.StringIO(), environ) is wanted


def test_bars_have_eighths() -> None:
    assert (bar(0, 4), bar(0.5, 4), bar(1, 4), bar(2, 4), bar(1 / 32, 4)) == ("", "██", "████", "████", "▏")


def test_one_is_singular() -> None:
    assert (plural(1, "shard"), plural(2, "shard"), plural(0, "shard")) == ("1 shard", "2 shards", "0 shards")
