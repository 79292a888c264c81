"""Bodies of requests as JSON."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any, Final

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.zones import WITHOUT_ZONE
from shardsdk.kube.answers import Target
from shardsdk.kube.api import Body

#: How a time without a time zone ends in JSON, beside whatever else ends so.
_ZONELESS: Final = re.compile(rb'T\d\d:\d\d:\d\d(\.\d+)?"')


def encode_body(target: Target, body: Body) -> bytes:
    """The body as JSON.  Raises: ConfigurationError for what no API server would take, or not as it is meant."""
    encoded = msgspec.json.encode(body)
    # Most bodies have neither, and need not be gone through.
    if (b"null" in encoded or _ZONELESS.search(encoded)) and (
        problem := _unsendable(msgspec.to_builtins(body, builtin_types=(datetime,)))
    ):
        raise ConfigurationError(f"{target}: {problem.lstrip('.')}")
    return encoded


def _unsendable(value: Any) -> str:
    """Where in `value` something is that cannot be sent, and why; empty: nowhere."""
    match value:
        case float() if not math.isfinite(value):  # in a merge patch null, which it would be, takes the field away
            return f" is {value}, and JSON has no such number: send a finite one"
        case datetime() if value.tzinfo is None:
            return f" {WITHOUT_ZONE}"
        case dict():
            return next((f".{key}{found}" for key, each in value.items() if (found := _unsendable(each))), "")
        case list() | tuple():
            return next((f"[{at}]{found}" for at, each in enumerate(value) if (found := _unsendable(each))), "")
        case _:
            return ""
