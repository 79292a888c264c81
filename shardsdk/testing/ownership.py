"""Server-side apply as the API server does it, for servers in memory: who owns which field.

An object's `metadata.managedFields` names, for each field manager that has
applied, the fields that it applied, those of the status apart.  A list is one
field: there are no schemas here that would say by which keys lists are merged.

Refuses: to say who owns what was not applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardsdk.errors import Conflict
from shardsdk.testing.patching import copy_tree, merge

Object = dict[str, Any]
#: Where a field is: the names from the top.
Path = tuple[str, ...]
#: A field manager, and the subresource that it applied to.
Owner = tuple[str, str]

#: What names an object belongs to nobody.
_NAMING: Final = frozenset(
    {
        ("apiVersion",),
        ("kind",),
        ("metadata", "name"),
        ("metadata", "namespace"),
        ("metadata", "uid"),
        ("metadata", "resourceVersion"),
    }
)
_ABSENT: Final = object()


def apply_patch(current: Object, body: Mapping[str, Any], owner: Owner, *, force: bool) -> Object:
    """`current` as it is once `owner` has applied `body`: what it applied before and does not now is gone.

    Raises: Conflict when another one has applied a field with another value, unless `force` takes it.
    """
    owned = {name: set(_paths(fields)) for name, fields in _managed(current).items()}
    before, wanted = owned.pop(owner, set()), set(_leaves(body)) - _NAMING
    for other, paths in owned.items():
        taken = {path for path in paths & wanted if _value(current, path) != _value(body, path)}
        if taken and not force:
            fields = ", ".join(".".join(path) for path in sorted(taken))
            raise Conflict(f"Apply failed: conflicts with {other[0]!r}: {fields}", status=409, reason="Conflict")
        paths -= taken
    applied = merge(current, body)
    kept = wanted.union(*owned.values())
    for path in before - wanted:
        # A map that was applied empty stays for what is in it by now.
        if not any(other[: len(path)] == path for other in kept):
            applied = _without(applied, path)
    return _with_managed(applied, {**owned, owner: wanted})


def note_apply(made: Object, manager: str) -> Object:
    """An object that was created by an apply of `manager`."""
    return _with_managed(made, {(manager, ""): set(_leaves(made)) - _NAMING - {("metadata", "managedFields")}})


def note_change(old: Object, new: Object) -> Object:
    """`new`, which somebody made of `old` by other means: the fields changed are nobody's any longer."""
    managed = _managed(old)
    if not managed:
        return new
    kept = {
        owner: {path for path in _paths(fields) if _value(old, path) == _value(new, path)}
        for owner, fields in managed.items()
    }
    return _with_managed(new, kept)


def _managed(thing: Object) -> dict[Owner, Any]:
    entries = thing.get("metadata", {}).get("managedFields") or ()
    return {(entry["manager"], entry.get("subresource", "")): entry["fieldsV1"] for entry in entries}


def _with_managed(thing: Object, owned: Mapping[Owner, set[Path]]) -> Object:
    entries = [
        {"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": _tree(paths)}
        | ({"subresource": subresource} if subresource else {})
        for (manager, subresource), paths in sorted(owned.items())
        if paths
    ]
    metadata = {name: value for name, value in thing["metadata"].items() if name != "managedFields"}
    return {**thing, "metadata": {**metadata, **({"managedFields": entries} if entries else {})}}


def _tree(paths: set[Path]) -> Object:
    tree: Object = {}
    for path in sorted(paths):
        inner = tree
        for name in path:
            inner = inner.setdefault(f"f:{name}", {})
    return tree


def _paths(tree: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    for name, inner in tree.items():
        path = (*above, name.removeprefix("f:"))
        if inner:
            yield from _paths(inner, path)
        else:
            yield path


def _leaves(body: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    for name, value in body.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, name))
        elif value is not None:
            yield (*above, name)


def _value(thing: Mapping[str, Any], path: Path) -> Any:
    value: Any = thing
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def _without(thing: Object, path: Path) -> Object:
    """A copy without the field, and without the maps that were there for it alone."""
    changed: Object = copy_tree(thing)
    above = [changed]
    for name in path[:-1]:
        inner = above[-1].get(name)
        if not isinstance(inner, dict):
            return changed
        above.append(inner)
    above[-1].pop(path[-1], None)
    for parent, name in reversed(list(zip(above, path[:-1], strict=False))):
        if parent[name] == {}:
            del parent[name]
    return changed
