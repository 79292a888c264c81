"""From Python types to the structural schemas of CRDs.

What a schema cannot say (a union of objects, a class that contains itself) is
refused with the field's place and what to write instead.  References are inlined,
since structural schemas have none.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.kinds.constraints import BASE64, Schema, check_null_of_enum, constrain, rules_of, set_list_type
from shardsdk.kinds.foreign import foreign_schema
from shardsdk.kinds.markers import Column, ColumnType
from shardsdk.kinds.wire import encode
from shardsdk.kinds.zones import WITHOUT_ZONE
from shardsdk.protocol.objects import SlimMeta

PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"

_SCALARS: Final[dict[Any, Schema]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number", "format": "double"},
    str: {"type": "string"},
    bytes: {"type": "string", "pattern": BASE64},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    uuid.UUID: {"type": "string", "format": "uuid"},
}
_LISTS: Final = (list, tuple, set, frozenset, Sequence, AbstractSet, Iterable)


class Field(NamedTuple):
    """A field of a class: its name on the wire, its type, and what it is when nobody says."""

    name: str
    type: Any
    required: bool
    default: Any


class Walk(NamedTuple):
    """Where a schema is being made: the place in the object, the classes around it, and the columns that were met."""

    place: str
    around: tuple[Any, ...]
    columns: list[Column]
    #: The place as `kubectl get` has it; `None` inside lists and maps.
    path: str | None

    def into(self, name: str) -> Walk:
        """A field of the object at this place."""
        path = None if self.path is None else f"{self.path}.{name}"
        return self._replace(place=f"{self.place}.{name}", path=path)

    def each(self, brackets: str) -> Walk:
        """The entries of a list or a map at this place."""
        return self._replace(place=f"{self.place}{brackets}", path=None)


def begin(kind: str) -> Walk:
    """The walk at an object's root."""
    return Walk(kind, (), [], "")


def schema_of(annotation: Any, walk: Walk, *, none_is_absent: bool = False) -> Schema:
    """The schema of a type, with its markers; `none_is_absent`: it is a field that is not sent when it is None.

    Raises: ConfigurationError for what cannot be a schema.
    """
    bare, markers = _unwrap(annotation)
    union = _choices(bare)
    choices = [choice for choice in union if choice not in (NoneType, msgspec.UnsetType)]
    if len(choices) == len(union) == 1:
        schema = _one_schema(bare, walk)
    elif len(choices) == 1:  # with what stands beside that one
        schema = schema_of(choices[0], walk, none_is_absent=none_is_absent)
    else:
        schema = _union_schema(choices, walk)
    if NoneType in union:
        schema["nullable"] = True
    constrain(schema, markers, walk.place)
    if schema.get("nullable") and "enum" in schema:
        check_null_of_enum(walk.place, none_is_absent=none_is_absent)
        del schema["nullable"]
    for column in (marker for marker in markers if isinstance(marker, Column)):
        walk.columns.append(_column_of(column, schema, walk))
    return schema


def fields_of(model: Any) -> Iterator[Field]:
    """The fields of a Struct or a dataclass.  Raises: NameError for a type that is not defined (yet)."""
    if isinstance(model, type) and issubclass(model, msgspec.Struct):
        for field in msgspec.structs.fields(model):
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT and not field.required:
                default = _made(field.default_factory)
            yield Field(field.encode_name, field.type, field.required, default)
        return
    hints = get_type_hints(model, include_extras=True)
    for each in dataclasses.fields(model):
        made = each.default
        if each.default_factory is not dataclasses.MISSING:
            made = each.default_factory()
        yield Field(each.name, hints[each.name], made is dataclasses.MISSING, made)


def object_schema(model: Any, walk: Walk) -> Schema:
    """The schema of a class: its fields, its docstring, its rules."""
    if model in walk.around:
        raise ConfigurationError(
            f"{walk.place}: {model.__name__} contains itself, which no CRD can say; write `dict[str, Any]` there"
        )
    inside = walk._replace(around=(*walk.around, model))
    schema: Schema = {"type": "object", "properties": _tag_of(model, walk)}
    if text := doc_of(model):
        schema["description"] = text
    try:
        fields = list(fields_of(model))
    except NameError as error:
        raise ConfigurationError(
            f"{walk.place}: {_field_with(str(error.name), model)} has a type that is not known when the program runs"
            f" ({error}): define it in the module, above the custom resource; what is imported under `if TYPE_CHECKING`"
            " is not there"
        ) from error
    for field in fields:
        schema["properties"][field.name] = _field_schema(field, inside.into(field.name))
    if required := [field.name for field in fields if field.required]:
        schema["required"] = required
    if rules := rules_of(getattr(model, "__rules__", ())):
        schema["x-kubernetes-validations"] = rules
    return schema


def _field_with(name: str, model: Any) -> str:
    """The field of `model` whose annotation has that name in it."""
    with suppress(NameError):  # Python 3.14 reads none of them then
        for base in model.__mro__:
            for field, annotation in inspect.get_annotations(base).items():
                if isinstance(annotation, str) and re.search(rf"\b{re.escape(name)}\b", annotation):
                    return f"the field {field} of {model.__name__}"
    return f"a field of {model.__name__}"


def _tag_of(model: Any, walk: Walk) -> Schema:
    """The property that msgspec sends with each object of a class that has a tag."""
    config = getattr(model, "__struct_config__", None)
    return {} if config is None or config.tag is None else {config.tag_field: _enum_schema([config.tag], walk)}


def doc_of(model: Any) -> str:
    """A class's own docstring, unless it was made up."""
    text = vars(model).get("__schema_doc__") or vars(model).get("__doc__") or ""
    if hasattr(model, "__dataclass_fields__") and text.startswith(f"{model.__name__}("):
        return ""
    return inspect.cleandoc(text)


def _field_schema(field: Field, walk: Walk) -> Schema:
    schema = schema_of(field.type, walk, none_is_absent=not field.required and field.default is None)
    if field.required or field.default is None or field.default is msgspec.UNSET:
        return schema
    if isinstance(field.default, datetime.datetime) and field.default.tzinfo is None:
        raise ConfigurationError(f"{walk.place}: the default {WITHOUT_ZONE}")
    default = encode(field.default)
    if default in ("", [], {}) and not (default == {} and _has_defaults(schema)):
        return schema
    return schema | {"default": default}


def _has_defaults(schema: Schema) -> bool:
    """Whether an empty object would be given something."""
    return any("default" in each for each in schema.get("properties", {}).values())


def _made(factory: Any) -> Any:
    try:
        return factory()
    except Exception:  # it is the user's, or says that a spec is needed
        return None


def _unwrap(annotation: Any) -> tuple[Any, list[Any]]:
    """A type without Annotated and aliases, and what stood beside it."""
    markers: list[Any] = []
    while True:
        if get_origin(annotation) is Annotated:
            markers = [*annotation.__metadata__, *markers]
            annotation = annotation.__origin__
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation, markers


def _choices(bare: Any) -> tuple[Any, ...]:
    return get_args(bare) if get_origin(bare) in (Union, UnionType) else (bare,)


def _union_schema(choices: list[Any], walk: Walk) -> Schema:
    plain = {_unwrap(choice)[0] for choice in choices}
    if len(plain) == 1:
        return schema_of(next(iter(plain)), walk)
    if plain == {int, str}:
        return {INT_OR_STRING: True}
    if plain == {int, float}:
        return dict(_SCALARS[float])
    names = " | ".join(getattr(choice, "__name__", str(choice)) for choice in choices)
    raise ConfigurationError(
        f"{walk.place}: no CRD can say `{names}`: of unions there are `X | None` and `int | str`; write one class with"
        " a field for each, or Any"
    )


def _one_schema(bare: Any, walk: Walk) -> Schema:
    origin = get_origin(bare) or bare
    if bare in (Any, object, msgspec.Raw):
        return {PRESERVE: True}
    if isinstance(bare, type) and bare in _SCALARS:
        return dict(_SCALARS[bare])
    if origin is Literal:
        return _enum_schema(get_args(bare), walk)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return _enum_schema([each.value for each in bare], walk)
    if origin in (dict, Mapping):
        return _map_schema(get_args(bare), walk)
    if origin in _LISTS:
        return _list_schema(origin, get_args(bare), walk)
    if isinstance(origin, type):
        if issubclass(origin, SlimMeta):
            return {"type": "object", PRESERVE: True}
        if issubclass(origin, msgspec.Struct) and origin.__struct_config__.array_like:
            return {"type": "array", "items": {PRESERVE: True}}  # no schema speaks of the places in a list
        if issubclass(origin, msgspec.Struct) or dataclasses.is_dataclass(origin):
            return object_schema(origin, walk)
        if hasattr(origin, "model_json_schema"):
            return foreign_schema(origin, walk.place)
    raise ConfigurationError(
        f"{walk.place}: {getattr(bare, '__name__', bare)} cannot be a schema; there are bool, int, float, str, bytes,"
        " datetime, Literal, Enum, list, dict[str, …], Any, and classes of such fields (Model)"
    )


def _enum_schema(values: Iterable[Any], walk: Walk) -> Schema:
    taken = list(values)
    types = {type(value) for value in taken if value is not None}
    if len(types) != 1 or next(iter(types)) not in (bool, int, float, str):
        raise ConfigurationError(f"{walk.place}: the values of an enumeration have to be all str, or all int: {taken}")
    schema: Schema = {"type": _SCALARS[next(iter(types))]["type"], "enum": [each for each in taken if each is not None]}
    return schema | ({"nullable": True} if None in taken else {})


def _map_schema(arguments: tuple[Any, ...], walk: Walk) -> Schema:
    key, value = (*arguments, Any, Any)[:2] if arguments else (str, Any)
    bare = _unwrap(key)[0]
    if bare is not str and not (isinstance(bare, type) and issubclass(bare, str)):
        raise ConfigurationError(f"{walk.place}: the keys of a dict have to be str")
    if value in (Any, object):
        return {"type": "object", PRESERVE: True}
    return {"type": "object", "additionalProperties": schema_of(value, walk.each("[…]"))}


def _list_schema(origin: Any, arguments: tuple[Any, ...], walk: Walk) -> Schema:
    if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        raise ConfigurationError(f"{walk.place}: of tuples there is `tuple[X, ...]` alone")
    items = schema_of(arguments[0] if arguments else Any, walk.each("[]"))
    schema: Schema = {"type": "array", "items": items}
    entry = _unwrap(arguments[0])[0] if arguments else None
    if origin in (set, frozenset, AbstractSet):
        set_list_type(schema, "set", (), walk.place)
    elif keys := getattr(entry, "__list_map_keys__", ()):
        set_list_type(schema, "map", keys, walk.place)
    return schema


def _column_of(column: Column, schema: Schema, walk: Walk) -> Column:
    if walk.path is None:
        raise ConfigurationError(
            f"{walk.place}: {column.name} cannot be a column, since there are many of it; write `columns=[Column("
            "name, path)]` behind the class's name, with a path to one of them"
        )
    plain = schema.get("type") if schema.get("type") in get_args(ColumnType) else None
    shown = column.type or ("date" if schema.get("format") == "date-time" else plain)
    if shown is None and INT_OR_STRING not in schema:
        raise ConfigurationError(f"{walk.place}: {column.name} cannot be a column: it is no single value")
    return dataclasses.replace(
        column, path=walk.path, type=shown or "string", description=column.description or schema.get("description", "")
    )
