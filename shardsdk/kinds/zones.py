"""Times without a time zone, which no API server takes: of what a field is that is typed `datetime`, as it is sent.

Judged by texts, since that is what is sent, whatever a class has made them of.  What no type says (what is under
`Any`, or in a union) and what is in a class that contains itself is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from msgspec import inspect

from shardsdk.errors import ConfigurationError

#: What is wrong with one, and what to write.
WITHOUT_ZONE: Final = (
    "is a datetime without a time zone, and cannot be sent: write datetime.now(UTC), or say which zone it is in by"
    " .replace(tzinfo=…)"
)
_ZONELESS: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?")

#: Where times are in what a type describes: by the fields that have some, by `_EACH` in all entries of a list or a map.
Places = Mapping[str, Any]
#: No field is called so.
_EACH: Final = ""
#: This is one itself.
_TIME: Final[Places] = {"datetime": {}}
_NONE: Final[Places] = {}


def check_zones(model: Any, sent: Any, known: Any = None, at: str = "") -> None:
    """Hold `sent`, of what `model` describes, as on the wire; of `known`, which was read, it may have what that has.

    `at` is where it stands in the object.

    Raises: ConfigurationError for a time without a zone.
    """
    places = _places_of(model)
    if not places:
        return
    read = set(_zoneless(places, known, at))
    for place, text in _zoneless(places, sent, at):
        if (place, text) not in read:
            raise ConfigurationError(f"{place.lstrip('.') or 'a field'} {WITHOUT_ZONE}")


def _zoneless(places: Places, sent: Any, at: str) -> Iterator[tuple[str, str]]:
    """The times without a zone, and where they are."""
    if isinstance(sent, str):
        if places is _TIME and _ZONELESS.fullmatch(sent):
            yield at, sent
    elif isinstance(sent, list) and _EACH in places:
        for each in sent:
            yield from _zoneless(places[_EACH], each, f"{at}[]")
    elif isinstance(sent, Mapping):
        for name, each in sent.items():
            if inner := places.get(name) or places.get(_EACH):
                yield from _zoneless(inner, each, f"{at}.{name}")


@lru_cache(maxsize=1024)
def _places_of(model: Any) -> Places:
    return _find(model, {})


def _find(model: Any, met: dict[Any, Places]) -> Places:
    with suppress(Exception):  # what msgspec has no words for; encoding has its say about that
        return _look(inspect.type_info(model), met)
    return _NONE


def _look(found: inspect.Type, met: dict[Any, Places]) -> Places:
    """`met` is the classes that it is in, or after."""
    if isinstance(found, inspect.UnionType):
        choices = [each for each in found.types if not isinstance(each, inspect.NoneType)]
        return _look(choices[0], met) if len(choices) == 1 else _NONE
    if isinstance(found, inspect.DateTimeType):
        return _TIME
    if isinstance(found, inspect.DictType):
        return _each(_look(found.value_type, met))
    if isinstance(found, inspect.CollectionType):
        return _each(_look(found.item_type, met))
    if isinstance(found, inspect.StructType | inspect.DataclassType | inspect.TypedDictType):
        if found.cls not in met:
            met[found.cls] = _NONE
            met[found.cls] = _some({each.encode_name: _look(each.type, met) for each in found.fields})
        return met[found.cls]
    fields = getattr(getattr(found, "cls", None), "model_fields", None)  # of pydantic's
    if isinstance(found, inspect.CustomType) and fields:
        if found.cls not in met:
            met[found.cls] = _NONE
            named = {each.serialization_alias or name: each.annotation for name, each in fields.items()}
            met[found.cls] = _some({name: _find(annotation, met) for name, annotation in named.items()})
        return met[found.cls]
    return _NONE


def _each(inner: Places) -> Places:
    return {_EACH: inner} if inner else _NONE


def _some(fields: Mapping[str, Places]) -> Places:
    return {name: inner for name, inner in fields.items() if inner}
