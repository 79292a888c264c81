"""How log lines look at a prompt: the time of day, the message first, what it is about behind it.

14:02:07 WARNING Reconcile failed; trying again object=home error="…" attempts=1
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

from shardsdk.logs import fields_of, message_of, one_line, render_field, render_stack

_RESET: Final = "\x1b[0m"
_FAINT: Final = "\x1b[2m"
#: By the least level that has it.
_COLOURS: Final = ((logging.ERROR, "\x1b[31m"), (logging.WARNING, "\x1b[33m"), (logging.INFO, "\x1b[32m"), (0, _FAINT))


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
        stack = render_stack(self, record)
        line = f"{moment:%H:%M:%S} {self._in(colour, f'{record.levelname:<7}')} {one_line(message_of(record))}"
        return line + (f" {self._in(_FAINT, fields)}" if fields else "") + (f"\n{stack}" if stack else "")

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_RESET}" if self._colours else text
