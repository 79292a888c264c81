"""Patches as the API server applies them, for servers in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardsdk.errors import BadRequest, Invalid
from shardsdk.kube.api import Body, PatchKind

#: Most values are one of these; only what is none is asked whether it is a mapping, which takes its time to tell.
_SCALARS: Final = (str, int, float)
_MAPPINGS: Final = (dict, Mapping)


def copy_tree(value: Any) -> Any:
    """A copy of what JSON can say, many times as fast as `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: copy_tree(each) if isinstance(each, (dict, list)) else each for key, each in value.items()}
    if isinstance(value, list):
        return [copy_tree(each) if isinstance(each, (dict, list)) else each for each in value]
    return value


def patched(target: Mapping[str, Any], body: Body, kind: PatchKind) -> dict[str, Any]:
    """What a merge patch or a JSON patch makes of an object.  Raises: BadRequest, Invalid."""
    if isinstance(body, Mapping):
        return merge(target, body)
    if kind is PatchKind.JSON:
        return apply_json_patch(target, body)
    raise BadRequest(f"a {kind.value} patch is an object", status=400, reason="BadRequest")


def merge(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a JSON merge patch (RFC 7396)."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, _SCALARS):
            merged[key] = value
        elif isinstance(value, _MAPPINGS):
            inner = merged.get(key)
            inner = inner if isinstance(inner, _MAPPINGS) else {}
            merged[key] = merge(inner, value)
        else:
            merged[key] = _without_nulls(value)
    return merged


def _without_nulls(value: Any) -> Any:
    """A copy of what a list in a merge patch has: maps in it lose what is null, though the RFC does not say so."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, _MAPPINGS):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def apply_json_patch(target: Mapping[str, Any], operations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Apply a JSON patch (RFC 6902).  Raises: Invalid."""
    result: Any = copy_tree(dict(target))
    for operation in operations:
        try:
            result = _apply(result, operation)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise Invalid(f"the patch does not apply: {operation} ({error})", status=422, reason="Invalid") from error
    if not isinstance(result, dict):
        raise Invalid(f"the patch leaves no object, but {result!r}", status=422, reason="Invalid")
    return result


def _apply(document: Any, operation: Mapping[str, Any]) -> Any:
    """The document after one operation, which may have been changed in place."""
    name, path, value = operation["op"], operation["path"], operation.get("value")
    if name in ("copy", "move"):
        parent, place = _find(document, operation["from"])
        value = _at(parent, place)
        if name == "move":
            del parent[place]
        name = "add"
    if not path:
        return _replace_whole(document, name, value)
    parent, place = _find(document, path, adds=name == "add")
    match name:
        case "add" if isinstance(parent, list):
            parent.insert(place, copy_tree(value))
        case "add":
            parent[place] = copy_tree(value)
        case "replace":
            # Though the RFC says that it must be there: an API server asks that of its parent alone.
            parent[place] = copy_tree(value)
        case "remove":
            del parent[place]
        case "test":
            _test(_at(parent, place), value, path)
        case other:
            raise ValueError(f"operation {other!r} is not known here")
    return document


def _replace_whole(document: Any, name: str, value: Any) -> Any:
    if name in ("add", "replace"):
        return copy_tree(value)
    if name != "test":
        raise ValueError(f"{name!r} of the whole object")
    _test(document, value, "it")
    return document


def _at(parent: Any, place: Any) -> Any:
    """To an API server, what is not there is null."""
    return parent.get(place) if isinstance(parent, dict) else parent[place]


def _test(found: Any, value: Any, path: str) -> None:
    if found != value or isinstance(found, bool) != isinstance(value, bool):  # 1 is True to Python
        raise ValueError(f"{path} is {found!r}")


def _find(document: Any, path: str, *, adds: bool = False) -> tuple[Any, Any]:
    """What holds the value at `path`, and where in it; `adds`: a place in a list may be the one behind its last."""
    empty, *parts = (part.replace("~1", "/").replace("~0", "~") for part in path.split("/"))
    if empty or not parts:
        raise ValueError(f"{path!r} is no path into an object")
    parent: Any = document
    for part in parts[:-1]:
        parent = parent[_index(parent, part)] if isinstance(parent, list) else parent[part]
    if not isinstance(parent, (dict, list)):
        raise TypeError(f"{path} leads through {parent!r}")
    return parent, _index(parent, parts[-1], adds=adds) if isinstance(parent, list) else parts[-1]


def _index(entries: list[Any], part: str, *, adds: bool = False) -> int:
    """A negative one counts from the end, as API servers have it, though the RFC does not."""
    places = len(entries) + adds
    if part == "-" and adds:
        return len(entries)
    index = int(part)
    if not -places <= index < places:
        raise IndexError(f"{part} is no place in a list of {len(entries)}")
    return index % places
