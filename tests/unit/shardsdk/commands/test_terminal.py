"""Log lines at a prompt: the time of day, the message, what it is about; nothing in them steers the terminal."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardsdk.commands import run
from shardsdk.commands.terminal import TerminalFormatter
from shardsdk.logs import logger_of
from shardsdk.process.process import ExitCode
from shardsdk.testing.virtual import VirtualClock, run_virtual


def line(message: str, *, colours: bool = False, level: int = logging.WARNING, **fields: object) -> str:
    """What a module's own logger makes of it."""
    handler, seen = logging.Handler(), list[logging.LogRecord]()
    handler.emit = seen.append  # type: ignore[assignment, method-assign]
    logger = logging.getLogger("shardsdk.terminal-test")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        logger_of(logger.name).log(level, message, extra=fields or None)
    finally:
        logger.removeHandler(handler)
    return TerminalFormatter(colours=colours).format(seen[0])


def test_a_line_is_for_people() -> None:
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d WARNING Reconcile failed object=home error="the bucket is full"',
        line("Reconcile failed", object="home", error="the bucket is full"),
    )


def test_levels_have_colours_where_there_are_some() -> None:
    assert "\x1b[31mERROR  \x1b[0m Gone \x1b[2mobject=home\x1b[0m" in line(
        "Gone", colours=True, level=logging.ERROR, object="home"
    )
    assert "\x1b[32mINFO" in line("Here", colours=True, level=logging.INFO)
    assert "\x1b" not in line("Here")


def test_a_program_whose_configuration_of_logging_disables_lines_runs_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logger = logging.getLogger("shardsdk.terminal-test")

    def load(options: run.Options) -> tuple[None, None]:
        logger.disabled = True
        return None, None

    async def tell(*_: object) -> ExitCode:
        return ExitCode.FAILED if logger.disabled else ExitCode.OK

    for name, stub in {"_load": load, "_run": tell, "_setup_logging": bool, "spare_memory": int}.items():
        monkeypatch.setattr(run, name, stub)
    assert run.run(run.Options("a.py")) == ExitCode.OK


@pytest.mark.parametrize("text", ["a\nb", "a\x1b[2Jb", "a\rb"])
def test_nothing_in_a_line_steers_the_terminal(text: str) -> None:
    said = line(text, object=text)
    assert "\n" not in said
    assert "\x1b" not in said
    assert "\r" not in said


def test_the_stack_of_an_unexpected_error_follows() -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "Failed", None, sys.exc_info())
    first, *stack = TerminalFormatter(colours=False).format(record).splitlines()
    assert first.endswith('ERROR   Failed error="RuntimeError: boom"')
    assert stack[-1] == "RuntimeError: boom"


def test_nothing_in_a_stack_steers_the_terminal() -> None:
    try:
        raise RuntimeError("a\x1b[2Jb\n\x1b]0;title\x07\rc")
    except RuntimeError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "Failed", None, sys.exc_info())
    shown = TerminalFormatter(colours=False).format(record)
    assert not set(shown) & {"\x1b", "\x07", "\r"}
    assert shown.count("\n") >= 4


async def fail(clock: VirtualClock) -> None:
    raise RuntimeError("boom")


def stack_of(story: Callable[[VirtualClock], Coroutine[Any, Any, None]]) -> list[str]:
    """What is shown of an error that comes up below Python's and the library's own functions."""
    with ThreadPoolExecutor() as pool:
        error = pool.submit(run_virtual, story).exception()
    assert error is not None
    raised = type(error), error, error.__traceback__
    record = logging.LogRecord("x", logging.ERROR, __file__, 1, "Failed", None, raised)
    return TerminalFormatter(colours=False).format(record).splitlines()[1:]


def test_the_stack_begins_with_the_programs_own_line() -> None:
    stack = stack_of(fail)
    assert stack[0] == "Traceback (most recent call last):"
    assert stack[1].startswith(f'  File "{__file__}", line ')
    assert stack[1].endswith("in fail")


def test_the_stack_of_an_error_within_the_library_is_whole() -> None:
    stack = "\n".join(stack_of(None))  # type: ignore[arg-type]
    assert "concurrent/futures/thread.py" in stack
    assert "in run_virtual" in stack


@pytest.mark.parametrize(
    ("terminal", "environ", "has"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False)],
)
def test_colours_are_for_terminals_that_have_some(
    terminal: bool, environ: Mapping[str, str], has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    assert run.has_colours(environ) is has
