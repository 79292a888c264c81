"""Durations exactly as Go's `time.ParseDuration` reads them: `15s`, `1m30s`, `250ms`.

A number without a unit is an error; seconds and nanoseconds look the same without one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

#: Nanoseconds in each unit; both the micro sign and the Greek letter mean micro.
#: Source: Go, package time, ParseDuration.
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_DURATION: Final = re.compile(rf"([+-]?)((?:{_PART.pattern})+)", re.ASCII)
#: A Go duration is a signed 64-bit number of nanoseconds, about 292 years.
_MAX_NANOSECONDS: Final = 2**63 - 1
#: No duration that anyone means is longer to write; it bounds the work.
_MAX_LENGTH: Final = 64


def parse_duration(text: str) -> float:
    """Seconds that `text` stands for; negative with a leading `-`.

    Raises: ValueError when it is no Go duration.
    """
    if text in ("0", "+0", "-0"):
        return 0.0
    match = _DURATION.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError(f"{text[:_MAX_LENGTH]!r} is not a duration")
    nanoseconds = sum(int(Decimal(number) * _UNITS[unit]) for number, unit in _PART.findall(match[2]))
    if nanoseconds > _MAX_NANOSECONDS:
        raise ValueError(f"{text!r} is longer than a duration can be (292 years)")
    return (-nanoseconds if match[1] == "-" else nanoseconds) / 1e9


def render_duration(seconds: float) -> str:
    """`seconds` as a Go duration, in the largest units that fit: 90 is `1m30s`."""
    rest = round(abs(seconds) * 1e9)
    sign = "-" if seconds < 0 and rest else ""
    if rest < _UNITS["s"]:
        return f"{sign}{_decimal(rest, _UNITS['ms'])}ms" if rest else "0s"
    hours, rest = divmod(rest, _UNITS["h"])
    minutes, rest = divmod(rest, _UNITS["m"])
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    if rest or not any(parts):
        parts.append(f"{_decimal(rest, _UNITS['s'])}s")
    return sign + "".join(parts)


def _decimal(nanoseconds: int, unit: int) -> str:
    whole, rest = divmod(nanoseconds, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")
