"""Where an object has times and bytes, as its class says: what is held against that need not be gone through whole.

What no type says (what is under `Any`, or in a union) and what is in a class that contains itself is not found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import inspect

#: By the fields on the wire that have some, by `EACH` in all entries of a list or a map.
Places = Mapping[str, Any]
#: No field is called so.
EACH: Final = ""
#: These are one themselves.
TIME: Final[Places] = {"datetime": {}}
BYTES: Final[Places] = {"bytes": {}}
_NONE: Final[Places] = {}


@lru_cache(maxsize=1024)
def places_of(model: Any) -> tuple[Places, Places]:
    """Where what `model` describes has times, and where bytes; empty: nowhere."""
    found = _find(model, {})  # once for both: of a Pod it takes tens of milliseconds
    return _only(found, TIME), _only(found, BYTES)


@lru_cache(maxsize=1024)
def names_sent(model: type[Any]) -> dict[str, str]:
    """The fields of a Struct or a dataclass by their names on the wire; of anything else none."""
    if issubclass(model, msgspec.Struct):
        return dict(zip(model.__struct_encode_fields__, model.__struct_fields__, strict=True))
    return {each.name: each.name for each in dataclasses.fields(model)} if dataclasses.is_dataclass(model) else {}


def _only(places: Places, sought: Places) -> Places:
    if places is TIME or places is BYTES:
        return places if places is sought else _NONE
    return _some({name: _only(inner, sought) for name, inner in places.items()})


def _find(model: Any, met: dict[Any, Places]) -> Places:
    with suppress(Exception):  # what msgspec has no words for; encoding has its say about that
        return _look(inspect.type_info(model), met)
    return _NONE


def _look(found: inspect.Type, met: dict[Any, Places]) -> Places:
    """`met` is the classes that it is in, or after."""
    if isinstance(found, inspect.Metadata):  # it has a description, or the like
        return _look(found.type, met)
    if isinstance(found, inspect.UnionType):
        choices = [each for each in found.types if not isinstance(each, inspect.NoneType)]
        return _look(choices[0], met) if len(choices) == 1 else _NONE
    if isinstance(found, inspect.DateTimeType):
        return TIME
    if isinstance(found, inspect.BytesType):
        return BYTES
    if isinstance(found, inspect.DictType):
        return _some({EACH: _look(found.value_type, met)})
    if isinstance(found, inspect.CollectionType):
        return _some({EACH: _look(found.item_type, met)})
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


def _some(fields: Mapping[str, Places]) -> Places:
    return {name: inner for name, inner in fields.items() if inner}
