"""Texts where a class has bytes.

Encoding takes them for base64, which most short words are, so that other bytes would be stored without a word.  Judged
by what an object has in Python, since as they are sent both look alike; what stands as a dict where a class belongs is
as on the wire, and pydantic has its own say about its fields.
"""

from __future__ import annotations

from typing import Any, Final, cast

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.places import BYTES, EACH, Places, names_sent, places_of

_COLLECTIONS: Final = (list, tuple, set, frozenset)
_BYTES_ALONE: Final = {bytes}


def check_bytes(thing: Any) -> None:
    """Hold an object, or a part of one, against its class.

    Raises: ConfigurationError for a text where bytes are sent; it names the field, and not the text, which may be a
    secret.
    """
    model: Any = type(thing)
    _, places = places_of(model)
    if not places or (place := _text_in(places, thing)) is None:
        return
    instead = ", or use string_data=" if "string_data" in names_sent(model).values() else ""
    raise ConfigurationError(
        f"{place.lstrip('.')} of {model.__qualname__} is a str, which would be taken for base64: write bytes, as in"
        f' b"…" or text.encode(){instead}, or, if it is base64 already, base64.b64decode(text)'
    )


def _text_in(places: Places, value: Any) -> str | None:
    """Where a text is in `value`; `None`: nowhere."""
    if places is BYTES:
        return "" if isinstance(value, str) else None
    if not (inner := places.get(EACH)):
        names = names_sent(cast("Any", type(value)))
        for name, part in places.items():
            if name in names and (found := _text_in(part, getattr(value, names[name], None))) is not None:
                return f".{name}{found}"
    elif isinstance(value, dict):
        if set(map(type, value.values())) != _BYTES_ALONE:  # those of a large Secret are not gone through one by one
            for name, each in value.items():
                if (found := _text_in(inner, each)) is not None:
                    return f".{name}{found}"
    elif isinstance(value, _COLLECTIONS):
        for each in value:
            if (found := _text_in(inner, each)) is not None:
                return f"[]{found}"
    return None
