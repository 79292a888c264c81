"""From objects to what is sent."""

from __future__ import annotations

from typing import Any

import msgspec

from shardsdk.kinds.base import Kind, resource_of


def body_of(thing: Kind) -> dict[str, Any]:
    """The object as it is sent: `apiVersion` and `kind` included, what has its default value left out.

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
        if fields.get(part) in ({}, None):
            fields.pop(part, None)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, **fields}


def encode(value: Any) -> Any:
    """What JSON has for a value: field names as on the wire, what has its default value left out."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=dump_model)


def merge_patch_of(value: Any) -> Any:
    """A value as a JSON merge patch which sets every field: defaults are written out, `None` removes.

    For what must not stay as somebody, or an earlier call, left it: a status of
    which a count has gone back to 0.
    """
    if isinstance(value, msgspec.Struct):
        return {name: merge_patch_of(each) for name, each in fields_sent(value).items()}
    if hasattr(value, "model_dump"):
        return fields_sent(value)
    if isinstance(value, dict):
        return {encode(key): merge_patch_of(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    if isinstance(value, set | frozenset):  # two that are equal need not have one order
        return sorted((encode(each) for each in value), key=msgspec.json.encode)
    return None if value is None else encode(value)


def fields_sent(value: Any) -> Any:
    """What an object has by its fields' names on the wire, defaults and None included; anything else as JSON has it."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {sent: getattr(value, name) for sent, name in names}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
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
    if hasattr(value, "model_dump"):  # pydantic's, and so those of the kubernetes package
        whole, sent = (value.model_dump(mode="json", by_alias=True, exclude_none=each) for each in (False, True))
        return _with_nulls_of(value, whole, sent)
    raise NotImplementedError(f"cannot send {value!r}: neither msgspec nor model_dump knows it")


def _with_nulls_of(value: Any, whole: Any, sent: Any) -> Any:
    """`sent`, with null for those fields of pydantic's that are None and would not be if they were absent.

    `whole` is what the class itself has with its nulls: what that does not show (an excluded field, say) is not sent.
    What serializers of the class's own have made of a value is left as it is.
    """
    if isinstance(sent, list):
        alike = isinstance(value, list | tuple) and isinstance(whole, list) and len(value) == len(whole) == len(sent)
        return [_with_nulls_of(*each) for each in zip(value, whole, sent, strict=True)] if alike else sent
    if not isinstance(sent, dict) or not isinstance(whole, dict):
        return sent
    if isinstance(value, dict):
        values = {str(encode(key)): each for key, each in value.items()}
        return {name: _with_nulls_of(values.get(name), whole.get(name), each) for name, each in sent.items()}
    completed = dict(sent)
    for field, declared in getattr(type(value), "model_fields", {}).items():
        name, inner = declared.serialization_alias or field, getattr(value, field)
        if name in sent:
            completed[name] = _with_nulls_of(inner, whole.get(name), sent[name])
        elif inner is None and declared.default is not None and name in whole:
            completed[name] = None
    return completed


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
