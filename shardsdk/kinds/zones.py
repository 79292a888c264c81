"""Times without a time zone, which no API server takes: of what a field is that is typed `datetime`, as it is sent.

Judged by texts, since that is what is sent, whatever a class has made of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.places import EACH, TIME, Places, places_of

#: What is wrong with one, and what to write.
WITHOUT_ZONE: Final = (
    "is a datetime without a time zone, and cannot be sent: write datetime.now(UTC), or say which zone it is in by"
    " .replace(tzinfo=…)"
)
_ZONELESS: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?")


def check_zones(model: Any, sent: Any, known: Any = None, at: str = "") -> None:
    """Hold `sent`, of what `model` describes, as on the wire; of `known`, which was read, it may have what that has.

    `at` is where it stands in the object.

    Raises: ConfigurationError for a time without a zone.
    """
    places, _ = places_of(model)
    if not places:
        return
    read = set(_zoneless(places, known, at))
    for place, text in _zoneless(places, sent, at):
        if (place, text) not in read:
            raise ConfigurationError(f"{place.lstrip('.') or 'a field'} {WITHOUT_ZONE}")


def _zoneless(places: Places, sent: Any, at: str) -> Iterator[tuple[str, str]]:
    """The times without a zone, and where they are."""
    if isinstance(sent, str):
        if places is TIME and _ZONELESS.fullmatch(sent):
            yield at, sent
    elif isinstance(sent, list) and EACH in places:
        for each in sent:
            yield from _zoneless(places[EACH], each, f"{at}[]")
    elif isinstance(sent, Mapping):
        for name, each in sent.items():
            if inner := places.get(name) or places.get(EACH):
                yield from _zoneless(inner, each, f"{at}.{name}")
