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
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from typing import Any, Final

from shardsdk.errors import Conflict, Invalid
from shardsdk.testing.patching import copy_tree, merge
from shardsdk.testing.strategies import Object

#: Where a field is: the names from the top.
Path = tuple[str, ...]
#: By which operation, a field manager, and the subresource that it applied to.
Owner = tuple[str, str, str]

#: What names an object, or is the server's to say, belongs to nobody.
_NAMING: Final = frozenset(
    {
        *(("apiVersion",), ("kind",), ("metadata",)),
        *(("metadata", name) for name in ("name", "namespace", "uid", "resourceVersion", "generation")),
        *(("metadata", name) for name in ("creationTimestamp", "deletionTimestamp", "managedFields")),
    }
)
#: Whose is what was not applied.
_OTHERS: Final[Owner] = ("Update", "before-first-apply", "")
#: Maps of texts, of which no entry is null.
_TEXTS: Final = frozenset({("metadata", "labels"), ("metadata", "annotations"), ("data",)})
_ABSENT: Final = object()


def meant_by(body: Mapping[str, Any], current: Mapping[str, Any], *, typed: bool, above: Path = ()) -> Object:
    """What an applied body says of an object that is `current`: null in it takes no field away from others.

    In the object's metadata and of Kubernetes' own kinds (`typed`) null is as if nothing were said, but that an entry
    of a map of texts is empty then; of a custom resource that is so over a map alone, and else it is a value.
    """
    meant: Object = {}
    for name, value in body.items():
        there, path = current.get(name), (*above, name)
        plain = typed or path == ("metadata",)
        if isinstance(value, Mapping):
            inner = there if isinstance(there, Mapping) else {}
            meant[name] = meant_by(value, inner, typed=plain, above=path)
        elif value is None and plain and above in _TEXTS:
            meant[name] = ""
        elif value is not None or not (plain or isinstance(there, Mapping)):
            meant[name] = value
    return meant


def apply_patch(
    current: Object,
    body: Mapping[str, Any],
    manager: str,
    subresource: str,
    *,
    force: bool,
    typed: bool,
    schema_of: Callable[[], Mapping[str, Any] | None],
) -> Object:
    """`current` as it is once `manager` has applied `body`: what it alone applied before and does not now is gone.

    `typed`: it is one of Kubernetes' own; `schema_of` gives a custom resource's schema, if it is known.

    Raises: Conflict when another one owns a field that has another value, unless `force` takes it; Invalid.
    """
    was, current, body, owner = current, _keyed(current), _keyed(body), ("Apply", manager, subresource)
    owned = _owners(current)
    before, wanted = owned.pop(owner, set()), set(_leaves(body)) - _NAMING
    if not before and not wanted and not _managed(current):
        return merge(was, body)  # with the version that it has to be of
    for other, paths in owned.items():
        taken = {path for path in paths & wanted if _differs(_value(current, path), _value(body, path))}
        if taken and not force:
            fields = ", ".join(".".join(path) for path in sorted(taken))
            raise Conflict(f"Apply failed: conflicts with {other[1]!r}: {fields}", status=409, reason="Conflict")
        paths -= taken
    applied, null_at = merge(current, body, null_is_a_value=True), partial(_null_at, schema_of, typed)
    kept = wanted.union(*owned.values())
    for path in before - wanted:
        # A map that was applied empty stays for what is in it by now.
        if not any(other[: len(path)] == path for other in kept):
            applied = _without(applied, path, kept, null_at)
    return _with_managed(applied, {**owned, owner: wanted})


def note_apply(made: Object, manager: str) -> Object:
    """An object that was created by an apply of `manager`."""
    keyed = _keyed(made)
    return _with_managed(keyed, {("Apply", manager, ""): set(_leaves(keyed)) - _NAMING})


def note_change(old: Object, new: Object) -> Object:
    """`new`, which somebody made of `old` by other means: the fields changed are no applier's any longer.

    Whoever writes one entry that says nothing has all owners forgotten.
    """
    if new["metadata"].get("managedFields") == [{}]:
        return _with_managed(_keyed(new), {})
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
        else:
            yield (*above, name)


def _value(thing: Mapping[str, Any], path: Path) -> Any:
    value: Any = thing
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def _without(thing: Object, path: Path, kept: Set[Path], null_at: Callable[[Object, Path], Any]) -> Object:
    """A copy without the field, and without the maps that were there for it alone.

    An API server makes null of a map that is emptied and is somebody's all the same, having been applied empty.
    Source: structured-merge-diff, typed/remove.go.

    Raises: what `null_at` raises.
    """
    changed: Object = copy_tree(thing)
    above = [changed]
    for name in path[:-1]:
        inner = above[-1].get(name)
        if not isinstance(inner, dict):
            return changed
        above.append(inner)
    if path[-1] not in above[-1]:
        return changed
    del above[-1][path[-1]]
    for depth in range(len(path) - 1, 0, -1):
        if above[depth]:
            break
        if path[:depth] in kept and path[0] != "metadata" and (left := null_at(thing, path[:depth])) is not _ABSENT:
            above[depth - 1][path[depth - 1]] = left
            break
        del above[depth - 1][path[depth - 1]]
    return changed


def _null_at(schema_of: Callable[[], Mapping[str, Any] | None], typed: bool, thing: Object, path: Path) -> Any:
    """What an object has where a map of it was made null.

    Kubernetes' own (`typed`) have nothing; a custom resource has the map where that has a default, as it is thought
    to have while its schema is not known, and null where that may be.

    Raises: Invalid where it may not, as an API server says it.
    """
    if typed:
        return _ABSENT
    if (schema := schema_of()) is None:
        return {}
    for name in path:
        others = schema.get("additionalProperties")
        schema = (schema.get("properties") or {}).get(name) or (others if isinstance(others, Mapping) else {})
    if schema.get("nullable") or "type" not in schema:
        return None
    if "default" in schema:
        return {}
    field, group = ".".join(path), thing["apiVersion"].rpartition("/")[0]
    named = f'{thing["kind"]}.{group} "{thing["metadata"]["name"]}"'
    problem = f'Invalid value: "null": {field} in body must be of type object: "null"'
    raise Invalid(f"{named} is invalid: {field}: {problem}", status=422, reason="Invalid")
