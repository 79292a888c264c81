"""What a check found: good, bad, or not to be found out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


def problem(topic: str, message: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(topic, Level.PROBLEM, message, remedy)
