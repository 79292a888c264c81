"""Log lines: one per event, fields as given, stacks only for surprises."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardsdk.errors import Forbidden
from shardsdk.logs import LogFormat, LogLevel, setup_logging
from tests.own_logging import own_logging

__all__ = ["own_logging"]  # applies to all tests of this file

ROOT = Path(__file__).parents[4]
RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def lines_of(log_format: LogFormat, level: LogLevel = LogLevel.INFO) -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    setup_logging(level, log_format, stream)
    return logging.getLogger("sharder.test"), stream


def test_a_text_line_has_time_level_logger_message_and_fields() -> None:
    log, stream = lines_of(LogFormat.TEXT)
    log.info("object moved", extra={"ring": "example", "object": "a", "count": 3})
    moment, _, rest = stream.getvalue().partition(" ")
    assert moment.endswith("Z")
    assert len(moment) == len("2026-01-31T12:00:00.000Z")
    assert rest == "INFO    sharder.test: object moved ring=example object=a count=3\n"


def test_a_json_line_keeps_message_and_fields_apart() -> None:
    log, stream = lines_of(LogFormat.JSON)
    log.warning("object moved", extra={"ring": "example", "seconds": 1.5, "shards": ["a", "b"], "owner": None})
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "sharder.test",
        "message": "object moved",
        "ring": "example",
        "seconds": 1.5,
        "shards": ["a", "b"],
        "owner": None,
    }


def test_a_message_with_values_can_be_searched_for() -> None:
    log, stream = lines_of(LogFormat.JSON)
    log.error("Lost the lease: %s", "it was taken", extra={"shard": "a"})
    line = json.loads(stream.getvalue())
    assert (line["message"], line["template"]) == ("Lost the lease: it was taken", "Lost the lease: %s")
    assert line["shard"] == "a"


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_an_event_is_one_line_whatever_its_values_hold(log_format: LogFormat) -> None:
    log, stream = lines_of(log_format)
    log.info(
        "said\r\nINFO forged: %s", "a\nb", extra={"value": "x\ny\u2028\x85z\x1b[31m", "spaced": 'a "b" c', "empty": ""}
    )
    assert len(stream.getvalue().splitlines()) == 1


def test_text_values_that_could_be_misread_are_quoted() -> None:
    log, stream = lines_of(LogFormat.TEXT)
    log.info("m", extra={"a": "x y", "b": "", "c": "k=v", "d": 'q"', "e": "grün"})
    assert stream.getvalue().endswith('m a="x y" b="" c="k=v" d="q\\"" e=grün\n')


def test_long_values_are_cut() -> None:
    log, stream = lines_of(LogFormat.JSON)
    log.info("m", extra={"text": "x" * 100_000, "nested": ["y" * 100_000]})
    assert len(stream.getvalue()) < 10_000


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_an_expected_error_is_its_message_without_a_stack(log_format: LogFormat) -> None:
    log, stream = lines_of(log_format)
    try:
        raise Forbidden("may not patch secrets", status=403)
    except Forbidden:
        log.exception("object not placed", extra={"ring": "r"})
    assert "Forbidden: may not patch secrets" in stream.getvalue()
    assert "Traceback" not in stream.getvalue()


def test_an_unexpected_error_comes_with_its_stack() -> None:
    log, stream = lines_of(LogFormat.JSON)
    fail(log)
    line = json.loads(stream.getvalue())
    assert line["error"] == "ZeroDivisionError: division by zero"
    assert "in fail" in line["stack"]
    log, stream = lines_of(LogFormat.TEXT)
    fail(log)
    assert stream.getvalue().count("Traceback") == 1


def fail(log: logging.Logger) -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.exception("failed")


def test_what_json_cannot_hold_is_written_as_text() -> None:
    log, stream = lines_of(LogFormat.JSON)
    log.info("m", extra={"path": Path("/x"), "error": ValueError("no"), "raw": b"\xff", "level": "mine"})
    line = json.loads(stream.getvalue())
    assert (line["path"], line["error"], line["field_level"], line["level"]) == ("/x", "no", "mine", "info")


def test_less_important_lines_and_chatty_libraries_stay_silent() -> None:
    log, stream = lines_of(LogFormat.TEXT, LogLevel.WARNING)
    log.info("not shown")
    lines_of(LogFormat.TEXT, LogLevel.DEBUG)
    logging.getLogger("aiohttp.access").info("GET /healthz")
    assert stream.getvalue() == ""


def test_setting_up_again_replaces_the_handler() -> None:
    _, first = lines_of(LogFormat.TEXT)
    log, second = lines_of(LogFormat.TEXT)
    log.info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def extra_fields() -> Iterator[tuple[str, str]]:
    """Place and name of every literal field that a log call in the sources gives."""
    for path in sorted([*ROOT.glob("shardsdk/**/*.py"), *ROOT.glob("sharder/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            for keyword in getattr(node, "keywords", ()):
                if isinstance(node, ast.Call) and keyword.arg == "extra":
                    for name in _literal_keys(keyword.value):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", name


def _literal_keys(node: ast.expr) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Dict):
            keys: list[Any] = [key.value for key in inner.keys if isinstance(key, ast.Constant)]
            yield from (key for key in keys if isinstance(key, str))


def test_no_log_call_uses_a_field_that_logging_keeps_for_itself() -> None:
    # `extra={"name": …}` is a KeyError, and only when the line is written.
    assert [(place, name) for place, name in extra_fields() if name in RECORD_ATTRIBUTES] == []
