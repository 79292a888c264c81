"""From objects to what is sent."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any, Final, cast

import msgspec

from shardsdk.kinds.base import Kind, resource_of

#: What may have a set in it, or be one.
_NESTED: Final = (dict, list, tuple)


def body_of(thing: Kind) -> dict[str, Any]:
    """The object as it is sent: `apiVersion` and `kind` included, what has its default value left out.

    A spec that is empty stays where the class requires one, or has None for an object without it.

    Raises: ConfigurationError for a class that is bound to no resource.

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
    fields = encode(thing)
    for part in ("spec", "status"):
        there = fields.get(part)
        if there is None or (there == {} and (part == "status" or _is_made(thing, part))):
            fields.pop(part, None)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, **fields}


def _is_made(thing: Kind, part: str) -> bool:
    """Whether one that is sent without this part has an empty one all the same."""
    defaults = dict(zip(reversed(thing.__struct_fields__), reversed(thing.__struct_defaults__), strict=False))
    return defaults.get(part, msgspec.NODEFAULT) not in (None, msgspec.NODEFAULT)


def encode(value: Any) -> Any:
    """What JSON has for a value: field names as on the wire, what has its default value left out.

    Sets are lists in an order of their own: Python's is another one in each process, and what is sent anew would be
    written anew.
    """
    return _in_order(value, msgspec.to_builtins(value, str_keys=True, enc_hook=dump_model))


def _in_order(value: Any, sent: Any) -> Any:
    """`sent`, what msgspec has made of `value`, with the sets in it in order."""
    if type(sent) not in _NESTED:
        return sent
    if isinstance(value, set | frozenset):
        return sorted(map(encode, value), key=msgspec.json.encode)
    if isinstance(value, list | tuple):
        return list(map(_in_order, value, sent))
    if isinstance(value, dict):
        pairs = zip(value.values(), sent.items(), strict=True)
        return {name: _in_order(inner, each) for inner, (name, each) in pairs}
    if isinstance(sent, dict) and (names := _names(cast("Any", type(value)))):
        return {name: _in_order(getattr(value, names.get(name, ""), None), each) for name, each in sent.items()}
    return sent


def merge_patch_of(value: Any) -> Any:
    """A value as a JSON merge patch which sets every field: defaults are written out, `None` removes.

    For what must not stay as somebody, or an earlier call, left it: a status of
    which a count has gone back to 0.
    """
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        return {name: merge_patch_of(each) for name, each in fields_sent(value).items()}
    if hasattr(value, "model_dump"):
        return fields_sent(value)
    if isinstance(value, dict):
        return {encode(key): merge_patch_of(each) for key, each in value.items()}
    return encode(value)


def fields_sent(value: Any) -> Any:
    """What an object has by its fields' names on the wire, defaults and None included; anything else as JSON has it."""
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        fields = {sent: getattr(value, name, msgspec.UNSET) for sent, name in _names(cast("Any", type(value))).items()}
        return {sent: each for sent, each in fields.items() if each is not msgspec.UNSET}
    if hasattr(value, "model_dump"):
        whole = value.model_dump(mode="json", by_alias=True)
        return _as_sent(value, whole, whole)
    return value if isinstance(value, dict) else encode(value)


@lru_cache(maxsize=1024)
def _names(model: type[Any]) -> dict[str, str]:
    """The fields of a Struct or a dataclass by their names on the wire; of anything else none."""
    if issubclass(model, msgspec.Struct):
        return dict(zip(model.__struct_encode_fields__, model.__struct_fields__, strict=True))
    return {each.name: each.name for each in dataclasses.fields(model)} if dataclasses.is_dataclass(model) else {}


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
    raise NotImplementedError(f"cannot send {value!r}: neither msgspec nor model_dump knows it")


def _as_sent(value: Any, whole: Any, sent: Any) -> Any:
    """`sent` with its sets in order, and null for those fields of pydantic's that are None and absent would not be.

    `whole` is what the class itself has with its nulls: what that does not show (an excluded field, say) is not sent.
    What serializers of the class's own have made of a value is left as it is.
    """
    if isinstance(value, set | frozenset) and isinstance(sent, list):
        return sorted(sent, key=msgspec.json.encode)
    if isinstance(sent, list):
        alike = isinstance(value, list | tuple) and isinstance(whole, list) and len(value) == len(whole) == len(sent)
        return [_as_sent(*each) for each in zip(value, whole, sent, strict=True)] if alike else sent
    if not isinstance(sent, dict) or not isinstance(whole, dict):
        return sent
    if isinstance(value, dict):
        values = {str(encode(key)): each for key, each in value.items()}
        return {name: _as_sent(values.get(name), whole.get(name), each) for name, each in sent.items()}
    completed = dict(sent)
    for field, declared in getattr(type(value), "model_fields", {}).items():
        name, inner = declared.serialization_alias or field, getattr(value, field)
        if name in sent:
            completed[name] = _as_sent(inner, whole.get(name), sent[name])
        elif inner is None and declared.default is not None and name in whole:
            completed[name] = None
    return completed


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
