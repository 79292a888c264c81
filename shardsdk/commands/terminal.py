"""How log lines look at a prompt: the time of day, the message first, what it is about behind it.

14:02:07 WARNING Reconcile failed; trying again object=home error="…" attempts=1
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

from shardsdk.logs import fields_of, message_of, one_line, printable, render_field, render_stack
from shardsdk.process.mainloop import is_the_users

_RESET: Final = "\x1b[0m"
_FAINT: Final = "\x1b[2m"
#: By the least level that has it.
_COLOURS: Final = ((logging.ERROR, "\x1b[31m"), (logging.WARNING, "\x1b[33m"), (logging.INFO, "\x1b[32m"), (0, _FAINT))

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class TerminalFormatter(logging.Formatter):
    """`colours`: whether levels have some."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line, followed by the stack of an unexpected error."""
        colour = next(colour for least, colour in _COLOURS if record.levelno >= least)
        moment = datetime.fromtimestamp(record.created, UTC).astimezone()
        fields = " ".join(render_field(name, value) for name, value in fields_of(record).items())
        stack = printable(render_stack(self, record))
        line = f"{moment:%H:%M:%S} {self._in(colour, f'{record.levelname:<7}')} {one_line(message_of(record))}"
        return line + (f" {self._in(_FAINT, fields)}" if fields else "") + (f"\n{stack}" if stack else "")

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802
        """The stack from the program's first line on; all of it where none is the program's."""
        entry = ei[2]
        while entry is not None and not is_the_users(entry.tb_frame.f_code.co_filename):
            entry = entry.tb_next
        return super().formatException(ei if entry is None else (ei[0], ei[1], entry))  # type: ignore[arg-type]

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colours else text
