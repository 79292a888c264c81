"""What a check found: good, bad, or not to be found out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sharder.kubectl.outcomes import Unread


class Level(StrEnum):
    """How bad it is.

    SKIPPED: not looked at, and nothing depends on it.  UNKNOWN: could not be
    looked at, and something may be wrong.
    """

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    UNKNOWN = "unknown"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `remedy` is empty where nothing has to be done."""

    topic: str
    level: Level
    message: str
    remedy: str = ""


def good(topic: str, message: str) -> Finding:
    """In order."""
    return Finding(topic, Level.OK, message)


def skipped(topic: str, message: str) -> Finding:
    """Not looked at."""
    return Finding(topic, Level.SKIPPED, message)


def warning(topic: str, message: str, remedy: str) -> Finding:
    """It works, but not well or not for long."""
    return Finding(topic, Level.WARNING, message, remedy)


def unknown(topic: str, message: str, remedy: str = "") -> Finding:
    """Could not be looked at."""
    return Finding(topic, Level.UNKNOWN, message, remedy)


def failed(topic: str, gap: Unread) -> Finding:
    """Could not be looked at, because the API server failed over it."""
    return unknown(topic, f"{gap.what}: {gap.why}", gap.remedy)


def failure_of(gaps: Iterable[Unread], what: str) -> Unread | None:
    """The gap about what begins with `what`; None: there is none, or it is for want of a right."""
    return next((gap for gap in gaps if gap.what.startswith(what) and not gap.denied), None)


def problem(topic: str, message: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(topic, Level.PROBLEM, message, remedy)
