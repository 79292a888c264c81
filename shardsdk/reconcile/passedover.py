"""Writes of which the API server would take nothing, without a word: refused with what to write instead.

Only what is certain: of a kind of which nobody says that its status has a subresource, and of names that its class
does not have, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.kinds import CustomResource, Kind, builtin
from shardsdk.kinds.declaration import declaration_of
from shardsdk.kinds.zones import check_zones


def check_patch(kind: type[Kind], changes: Mapping[str, Any], subresource: str) -> None:
    """Hold a merge patch of an object of `kind` against its class.

    Raises: ConfigurationError for a status that is not sent to its subresource, for a field by its name in Python, and
    for a time without a zone.
    """
    if "status" in changes and not subresource and _has_status_subresource(kind):
        raise ConfigurationError(
            f'ctx.patch({kind.__qualname__}, …) would leave the status as it is: pass subresource="status", and send'
            " what is not of the status by itself"
        )
    for place, name in _misnamed(kind, changes, ""):
        raise ConfigurationError(
            f"ctx.patch({kind.__qualname__}, …) would change nothing by {place}: a patch has the names of the wire, so"
            f" write {name}"
        )
    check_zones(kind, changes)


def check_no_status(thing: Any, uid: object, status: object) -> None:
    """Hold an object that is to be applied, and its `status` as on the wire, against what is sent of it.

    Raises: ConfigurationError for a status that somebody has made; one that was read (it has a `uid`) may be there, and
    one that says nothing, as `kubectl create --dry-run=client -o yaml` prints it.
    """
    model: type[msgspec.Struct] = type(thing)
    declared = None if uid or not _says(status) else _fields(model).get("status")
    if declared is None:
        return
    factory = declared.default_factory
    default = declared.default if factory is msgspec.NODEFAULT else factory()
    if factory is not msgspec.NODEFAULT and factory() != default:  # it has the time of day, or the like
        return
    if thing.status != default:
        kind = model.__qualname__
        raise ConfigurationError(
            f"ctx.apply({kind}(…)) does not apply a status: leave it out, and write it by ctx.patch({kind}, name,"
            ' {"status": …}, subresource="status")'
        )


def _has_status_subresource(kind: type[Kind]) -> bool:
    """Whether it is certain; Kubernetes has one for each of its own kinds that have a status."""
    if issubclass(kind, CustomResource):
        return "status" in declaration_of(kind).parts
    return kind.__module__.startswith(f"{builtin.__name__}.") and "status" in kind.__struct_fields__


def _says(value: object) -> bool:
    """Whether anything in it is more than the zero that Go programs print of what nobody has set."""
    if isinstance(value, Mapping):
        return any(map(_says, value.values()))
    return any(map(_says, value)) if isinstance(value, list) else bool(value)


def _misnamed(model: Any, changes: Any, around: str) -> Iterator[tuple[str, str]]:
    """Where `changes`, of what `model` describes, has a field by its name in Python alone; and its name on the wire."""
    origin, parts = get_origin(model), get_args(model)
    if origin is Annotated:
        yield from _misnamed(parts[0], changes, around)
    elif origin in (Union, UnionType):
        choices = [each for each in parts if each is not NoneType]
        if len(choices) == 1:  # else one may have what another has not
            yield from _misnamed(choices[0], changes, around)
    elif isinstance(changes, list) and origin is list:
        for each in changes:
            yield from _misnamed(parts[0], each, f"{around}[]")
    elif isinstance(changes, Mapping) and origin is dict:
        for name, each in changes.items():
            yield from _misnamed(parts[1], each, f"{around}.{name}")
    elif isinstance(changes, Mapping) and isinstance(model, type) and issubclass(model, msgspec.Struct):
        fields = _fields(model)
        sent = {each.encode_name: each.type for each in fields.values()}
        for name, each in changes.items():
            place = f"{around}.{name}".lstrip(".")
            if name in sent:
                yield from _misnamed(sent[name], each, place)
            elif name in fields:
                yield place, fields[name].encode_name


@lru_cache(maxsize=1024)
def _fields(model: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {each.name: each for each in msgspec.structs.fields(model)}
