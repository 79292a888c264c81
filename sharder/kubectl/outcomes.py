"""How a command ends, and what could not be found out on the way.

Exit codes: 0 all in order, 1 something is wrong, 2 wrong arguments or
configuration, 3 not found out (no answer, or not permitted), 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeVar

from shardsdk.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ServerError,
    ShardingError,
    StreamInterrupted,
    TooManyRequests,
)

T = TypeVar("T")

NOT_FOUND: Final = 404
#: What the API server says about one resource alone (a conversion webhook or an aggregated API server that is down
#: answers 5xx): the others may well be read.  No answer at all, or an identity that it does not know, is about all.
ONE_RESOURCE: Final = (
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    Gone,
    Invalid,
    TooManyRequests,
    ServerError,
    StreamInterrupted,
)
#: Of those, that it is refused, or not offered: every answer to come will be the same.
REFUSED: Final = (Forbidden, NotFound, MethodNotAllowed)
#: What a shell says of a program that ended by Ctrl-C.
INTERRUPTED: Final = 130


class ExitCode(IntEnum):
    """How the command ended, for scripts."""

    IN_ORDER = 0
    WRONG = 1
    MISUSED = 2
    UNKNOWN = 3


def exit_code(*, wrong: bool, unknown: bool) -> ExitCode:
    """Something wrong outweighs something unknown: it needs somebody either way."""
    if wrong:
        return ExitCode.WRONG
    return ExitCode.UNKNOWN if unknown else ExitCode.IN_ORDER


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not be read, why, and what to do about it; `denied`: a right is missing, nothing failed."""

    what: str
    why: str
    remedy: str = ""
    denied: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(slots=True)
class Gaps:
    """Collects what could not be read, so that the rest can be shown."""

    found: list[Unread] = field(default_factory=list)

    async def fill(self, what: str, answer: Awaitable[T]) -> T | None:
        """The answer, or None and a note when the API server refuses it, or fails over it.

        Raises: ShardingError when it is not this one question that failed (no
        connection, no identity).
        """
        try:
            return await answer
        except ONE_RESOURCE as error:
            self.note(what, error)
            return None

    def note(self, what: str, error: ShardingError) -> Unread:
        """Write down once that `what` could not be read; returns the gap."""
        made = unread(what, error)
        if made not in self.found:
            self.found.append(made)
        return made

    def extend(self, more: Iterable[Unread]) -> None:
        """Take over what others could not read."""
        self.found += [each for each in more if each not in self.found]


def unread(what: str, error: ShardingError) -> Unread:
    """An error as a gap; the remedy of a 403 is the rule that is missing."""
    text = " ".join(str(error).split())
    message, _, remedy = text.partition(" — ")
    if isinstance(error, Forbidden):
        verb = "watch" if message.startswith("watch ") else "read"
        return Unread(what, f"you may not {verb} it" if remedy else f"refused: {message}", remedy, denied=True)
    if isinstance(error, ApiError) and error.status == NOT_FOUND and remedy:
        return Unread(what, "the API server does not serve it", remedy.partition("; ")[2])
    return Unread(what, message, remedy)
