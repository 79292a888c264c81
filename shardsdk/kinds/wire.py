"""From objects to what is sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from shardsdk.kinds.base import Kind, resource_of
from shardsdk.kinds.places import names_sent
from shardsdk.kinds.texts import check_bytes
from shardsdk.kinds.zones import check_zones

#: What may have others in it.
_NESTED: Final = (dict, list, tuple)


def body_of(thing: Kind) -> dict[str, Any]:
    """The object as it is sent: `apiVersion` and `kind` included, what has its default value left out.

    A spec that is empty stays where the class requires one, or has None for an object without it; one that is None,
    where the class requires one.

    Raises: ConfigurationError for a class that is bound to no resource, for a datetime without a time zone, and for a
    str where the class has bytes.

    >>> from shardsdk.protocol.objects import Resource
    >>> class Widget(Kind):
    ...     resource = Resource("example.com", "v1", "widgets", "Widget")
    ...     size: int = 0
    >>> body_of(Widget("a", size=3))
    {'apiVersion': 'example.com/v1', 'kind': 'Widget', 'metadata': {'name': 'a'}, 'size': 3}
    """
    if isinstance(thing, type):
        raise TypeError(f"body_of takes an object: {thing.__name__}(name, …), not the class")
    resource = resource_of(thing)
    check_bytes(thing)
    fields = encode(thing)
    check_zones(type(thing), fields)
    spec, default = fields.get("spec"), _default_of(thing, "spec")
    if default is not msgspec.NODEFAULT and (spec is None or (spec == {} and default is not None)):
        fields.pop("spec", None)
    if fields.get("status") in (None, {}):
        fields.pop("status", None)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, **fields}


def _default_of(thing: Kind, part: str) -> Any:
    """What one has that is sent without this part (or a factory of it)."""
    defaults = dict(zip(reversed(thing.__struct_fields__), reversed(thing.__struct_defaults__), strict=False))
    return defaults.get(part, msgspec.NODEFAULT)


def encode(value: Any) -> Any:
    """What JSON has for a value: field names as on the wire, what has its default value left out.

    Sets are lists in the order of their values: Python's is another one in each process, and what is sent anew would
    be written anew.  (Sets of sets have no order.)
    """
    try:
        sent = msgspec.to_builtins(value, str_keys=True, enc_hook=dump_model, order="deterministic")
    except TypeError:  # a set of what has no `<`, most likely
        return _in_order(value, msgspec.to_builtins(value, str_keys=True, enc_hook=dump_model))
    return _with_lists(sent) if type(sent) in _NESTED else sent


def _with_lists(sent: Any) -> Any:
    """`sent`, which msgspec has just made, with lists for its tuples: what is read, and compared with it, has none."""
    if type(sent) is dict:
        for name, each in sent.items():
            if type(each) in _NESTED:
                sent[name] = _with_lists(each)
        return sent
    return [_with_lists(each) if type(each) in _NESTED else each for each in sent]


def _in_order(value: Any, sent: Any) -> Any:
    """`sent`, what msgspec has made of `value`, with the sets in it in order."""
    if type(sent) not in _NESTED:
        return sent
    if isinstance(value, set | frozenset):
        try:
            return encode(sorted(value))
        except TypeError:
            return _sorted(map(encode, value))
    if isinstance(value, list | tuple):
        return list(map(_in_order, value, sent))
    if isinstance(value, dict) and len(value) == len(sent):  # else two keys have one text
        pairs = zip(value.values(), sent.items(), strict=True)
        return {name: _in_order(inner, each) for inner, (name, each) in pairs}
    if isinstance(sent, dict) and (names := names_sent(cast("Any", type(value)))):
        return {name: _in_order(getattr(value, names.get(name, ""), None), each) for name, each in sent.items()}
    return sent


def _sorted(entries: Iterable[Any]) -> list[Any]:
    """What JSON has for a set, by value, or by its text where values have no order."""
    found = list(entries)
    try:
        return sorted(found)
    except TypeError:
        return sorted(found, key=msgspec.json.encode)


def merge_patch_of(value: Any) -> Any:
    """A value as a JSON merge patch which sets every field: defaults are written out, `None` removes.

    For what must not stay as somebody, or an earlier call, left it: a status of
    which a count has gone back to 0.

    Raises: ConfigurationError for a str where the class has bytes.
    """
    check_bytes(value)
    return _patch_of(value)


def _patch_of(value: Any) -> Any:
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        return {name: _patch_of(each) for name, each in fields_sent(value).items()}
    if hasattr(value, "model_dump"):
        return fields_sent(value)
    if isinstance(value, dict):
        return {encode(key): _patch_of(each) for key, each in value.items()}
    return encode(value)


def fields_sent(value: Any) -> Any:
    """What an object has by its fields' names on the wire, defaults and None included; anything else as JSON has it."""
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        fields = {
            sent: getattr(value, name, msgspec.UNSET) for sent, name in names_sent(cast("Any", type(value))).items()
        }
        return {sent: each for sent, each in fields.items() if each is not msgspec.UNSET}
    if hasattr(value, "model_dump"):
        whole = value.model_dump(mode="json", by_alias=True)
        return _as_sent(value, whole, whole)
    return value if isinstance(value, dict) else encode(value)


def written_out(value: Any) -> dict[str, Any]:
    """All fields of an object or a model that have a value, defaults included, as on the wire."""
    return _without_nulls(merge_patch_of(value))  # type: ignore[no-any-return]


def wire_name(model: type[Any], field: str) -> str:
    """What a field of a class, whatever makes it one with fields, is called on the wire.

    >>> from shardsdk.kinds.conditions import Condition
    >>> wire_name(Condition, "last_transition_time")
    'lastTransitionTime'
    """
    if issubclass(model, msgspec.Struct):
        return dict(zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True)).get(field, field)
    declared = getattr(model, "model_fields", {}).get(field)
    return getattr(declared, "serialization_alias", None) or field


def dump_model(value: Any) -> Any:
    """What msgspec does not know by itself, as its encoders ask for it.

    Raises: NotImplementedError for what is no model either.
    """
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    if hasattr(value, "model_dump"):  # pydantic's, and so those of the kubernetes package
        whole, sent = (value.model_dump(mode="json", by_alias=True, exclude_none=each) for each in (False, True))
        return _as_sent(value, whole, sent)
    raise NotImplementedError(f"cannot send a {type(value).__qualname__}: neither msgspec nor model_dump knows it")


def _as_sent(value: Any, whole: Any, sent: Any) -> Any:
    """`sent` with its sets in order, and null for those fields of pydantic's that are None and absent would not be.

    `whole` is what the class itself has with its nulls: what that does not show (an excluded field, say) is not sent.
    What serializers of the class's own have made of a value is left as it is.
    """
    if getattr(type(value), "__pydantic_root_model__", False):
        value = value.root
    if isinstance(value, set | frozenset) and isinstance(sent, list):
        return _sorted(sent)
    if isinstance(sent, list):
        alike = isinstance(value, list | tuple) and isinstance(whole, list) and len(value) == len(whole) == len(sent)
        return [_as_sent(*each) for each in zip(value, whole, sent, strict=True)] if alike else sent
    if not isinstance(sent, dict) or not isinstance(whole, dict):
        return sent
    if isinstance(value, dict) or dataclasses.is_dataclass(value):
        values = {str(encode(key)): each for key, each in fields_sent(value).items()}
        return {name: _as_sent(values.get(name), whole.get(name), each) for name, each in sent.items()}
    completed = dict(sent)
    for field, declared in getattr(type(value), "model_fields", {}).items():
        name, inner = declared.serialization_alias or field, getattr(value, field)
        if name in sent and not _is_serialized(cast("Any", type(value)), field):
            completed[name] = _as_sent(inner, whole.get(name), sent[name])
        elif name not in sent and inner is None and declared.default is not None and name in whole:
            completed[name] = None
    return completed


@lru_cache(maxsize=1024)
def _is_serialized(model: Any, field: str) -> bool:
    """Whether a serializer of the class's own says how this field of pydantic's is sent."""
    own = model.__pydantic_decorators__.field_serializers.values()
    marked = any(hasattr(each, "when_used") for each in model.model_fields[field].metadata)
    return marked or any({field, "*"} & set(each.info.fields) for each in own)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
