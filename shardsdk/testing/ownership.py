"""Server-side apply as the API server does it, for servers in memory: who owns which field.

An object's `metadata.managedFields` names, for each field manager that has
applied, the fields that it applied, those of the status apart; all that was
written by other means is one other owner's, `before-first-apply`, which is an API
server's name for it.  Of lists the finalizers are a set and owner references have
their uid for a key; any other is one field: there are no schemas here that would
say by which keys lists are merged.

An object that was never applied names no owners, so that those who never apply need not care.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shardsdk.errors import Conflict
from shardsdk.testing.patching import copy_tree, merge

Object = dict[str, Any]
#: Where a field is: the names from the top.
Path = tuple[str, ...]
#: By which operation, a field manager, and the subresource that it applied to.
Owner = tuple[str, str, str]

#: What names an object, or is the server's to say, belongs to nobody.
_NAMING: Final = frozenset(
    {
        ("apiVersion",),
        ("kind",),
        *(("metadata", name) for name in ("name", "namespace", "uid", "resourceVersion", "generation")),
        *(("metadata", name) for name in ("creationTimestamp", "deletionTimestamp", "managedFields")),
    }
)
#: Whose is what was not applied.
_OTHERS: Final[Owner] = ("Update", "before-first-apply", "")
_ABSENT: Final = object()


def apply_patch(current: Object, body: Mapping[str, Any], manager: str, subresource: str, *, force: bool) -> Object:
    """`current` as it is once `manager` has applied `body`: what it alone applied before and does not now is gone.

    Raises: Conflict when another one owns a field that has another value, unless `force` takes it.
    """
    current, body, owner = _keyed(current), _keyed(body), ("Apply", manager, subresource)
    owned = _owners(current)
    before, wanted = owned.pop(owner, set()), set(_leaves(body)) - _NAMING
    for other, paths in owned.items():
        taken = {path for path in paths & wanted if _differs(_value(current, path), _value(body, path))}
        if taken and not force:
            fields = ", ".join(".".join(path) for path in sorted(taken))
            raise Conflict(f"Apply failed: conflicts with {other[1]!r}: {fields}", status=409, reason="Conflict")
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
    keyed = _keyed(made)
    return _with_managed(keyed, {("Apply", manager, ""): set(_leaves(keyed)) - _NAMING})


def note_change(old: Object, new: Object) -> Object:
    """`new`, which somebody made of `old` by other means: the fields changed are no applier's any longer."""
    if not _managed(old):
        return new
    before, after = _keyed(old), _keyed(new)
    kept = {
        owner: {path for path in paths if _value(before, path) == _value(after, path)}
        for owner, paths in _managed(before).items()
    }
    return note_others(_with_managed(after, kept))


def note_others(made: Object) -> Object:
    """`made` with an owner for all that was not applied, if any of it was."""
    if not _managed(made):
        return made
    keyed = _keyed(made)
    return _with_managed(keyed, _owners(keyed))


def _owners(thing: Object) -> dict[Owner, set[Path]]:
    """Whose each field is."""
    owned = _managed(thing)
    rest = set(_leaves(thing)).difference(_NAMING, *owned.values())
    return {**owned, _OTHERS: owned.get(_OTHERS, set()) | rest}


def _managed(thing: Object) -> dict[Owner, set[Path]]:
    """Whose fields are by `managedFields`, which says nothing of an object that was never applied."""
    entries = thing.get("metadata", {}).get("managedFields") or ()
    owners = [(each.get("operation", "Apply"), each["manager"], each.get("subresource", "")) for each in entries]
    return {owner: set(_paths(each.get("fieldsV1") or {})) for owner, each in zip(owners, entries, strict=True)}


def _with_managed(thing: Object, owned: Mapping[Owner, set[Path]]) -> Object:
    entries = [
        {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": _tree(paths)}
        | ({"subresource": subresource} if subresource else {})
        for (operation, manager, subresource), paths in sorted(owned.items())
        if paths
    ]
    metadata = {name: value for name, value in thing["metadata"].items() if name != "managedFields"}
    for name in _KEYS.keys() & metadata.keys():
        if isinstance(metadata[name], dict):
            metadata[name] = [entry for (entry,) in metadata[name].values()]
    return {**thing, "metadata": {**metadata, **({"managedFields": entries} if entries else {})}}


#: By what the entries of the lists in metadata are told apart, as field sets write it.
_KEYS: Final = {
    "finalizers": lambda entry: f"v:{json.dumps(entry)}",
    "ownerReferences": lambda entry: f"k:{json.dumps({'uid': entry.get('uid', '')}, separators=(',', ':'))}",
}


def _keyed(thing: Mapping[str, Any]) -> Object:
    """The same with these lists as maps; each entry is one field, and for that in a list by itself."""
    metadata = thing.get("metadata") or {}
    lists = {name: metadata[name] for name in _KEYS if isinstance(metadata.get(name), list)}
    maps = {name: {_KEYS[name](entry): [entry] for entry in entries} for name, entries in lists.items()}
    return {**thing, "metadata": {**metadata, **maps}} if maps else {**thing}


def _differs(one: Any, other: Any) -> bool:
    """Whether a field has two values; a map is no field but while it is empty."""
    return bool(one != other) and not (isinstance(one, Mapping) and isinstance(other, Mapping))


def _tree(paths: set[Path]) -> Object:
    tree: Object = {}
    for path in sorted(paths):
        inner = tree
        for depth, name in enumerate(path):
            is_entry = depth == 2 and path[0] == "metadata" and path[1] in _KEYS
            inner = inner.setdefault(name if is_entry else f"f:{name}", {})
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
