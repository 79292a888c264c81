"""Server-side apply as the API server does it, for servers in memory: who owns which field.

An object's `metadata.managedFields` names, for each field manager, the fields that it applied, and those that it
was the last to write by other means, those of the status apart.  What nobody signed is `before-first-apply`'s, which
is an API server's name for what it does not know the writer of.

An object that nobody has signed names no owners, so that those who neither sign nor apply need not care.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardsdk.errors import BadRequest, FieldConflict, Invalid
from shardsdk.testing.fieldsets import (
    EMPTIED,
    Path,
    compare,
    fields_of,
    merged,
    paths_of,
    pruned,
    repeated,
    text_of,
    tree_of,
    unkeyed,
)
from shardsdk.testing.shapes import Shape
from shardsdk.testing.strategies import Object

_APPLY: Final = "Apply"
_UPDATE: Final = "Update"
#: Whose is what nobody signed.
_OTHERS: Final = "before-first-apply"
#: What names an object, or is the server's to say, belongs to nobody.
_NAMING: Final[frozenset[Path]] = frozenset(
    {
        *(("f:apiVersion",), ("f:kind",), ("f:metadata",)),
        *(("f:metadata", f"f:{name}") for name in ("name", "namespace", "uid", "resourceVersion", "generation")),
        *(("f:metadata", f"f:{name}") for name in ("creationTimestamp", "deletionTimestamp", "managedFields")),
    }
)
#: Maps of texts, of which no entry is null; and `data`.
_TEXTS: Final = frozenset({(".metadata", ".labels"), (".metadata", ".annotations")})
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes what, by which version of a kind, and when."""

    #: The field manager; empty: it was not signed.
    manager: str
    subresource: str
    api_version: str
    time: str


@dataclass(slots=True)
class _Owned:
    """What an owner owns, by which version of a kind it has said so, and when."""

    paths: set[Path]
    api_version: str
    time: str


#: By which operation, a field manager, the subresource that it wrote to, and for updates a version of the kind.
_Owner = tuple[str, str, str, str]


def check_applied(body: Object, shape: Shape) -> None:
    """Raises: BadRequest, by 500, for a body whose lists cannot be merged, which is what an API server makes of it."""
    faults = [
        f"{text_of(path)}: duplicate entries for key {text_of((part,))}" for path, _, part in repeated(body, shape)
    ]
    faults += [
        f"{text_of(path)}: element {place}: associative list with keys has an element that omits all key fields"
        for path, place in unkeyed(body, shape)
    ]
    if faults:
        name = (body.get("metadata") or {}).get("name")
        named = f"(/{name}; {body.get('apiVersion')}, Kind={body.get('kind')})"
        message = f"failed to create typed patch object {named}: {faults[0]}"
        raise BadRequest(message, status=500, reason="")


def check_unique(made: Object, shape: Shape) -> None:
    """Raises: Invalid for a custom resource in whose lists something is there twice that may be there once."""
    for path, place, part in repeated(made, shape):
        where, what = text_of(path).removeprefix("."), part[2:]
        about = f"{made['kind']}.{made['apiVersion'].rpartition('/')[0]} {made['metadata']['name']!r}"
        message = f"{about} is invalid: {where}[{place}]: Duplicate value: {what}"
        raise Invalid(message, status=422, reason="Invalid")


def apply_patch(
    current: Object,
    body: Mapping[str, Any],
    writer: Writer,
    shape: Shape,
    *,
    force: bool,
    typed: bool,
    schema: Mapping[str, Any] | None,
) -> Object:
    """`current` as it is once `body` was applied to it: what the writer alone applied before and does not now is gone.

    Null in it takes nothing out of a map or list.  In the object's metadata and of Kubernetes' own kinds (`typed`)
    there is nothing then, but an entry of a map of texts is empty; of a custom resource (`schema`: its, if it is
    known) null is a value.

    Raises: FieldConflict when another one owns a field that has another value, unless `force` takes it; Invalid.
    """
    managed, owner = _managed(current), (_APPLY, writer.manager, writer.subresource, "")
    there = _bare(current)
    before, wanted = managed.get(owner), fields_of(body, shape) - _NAMING
    if not managed:
        if not wanted:  # but for the version that it has to be of
            unchanged: Object = _settled(merged(current, body, shape), current, None, typed=typed)
            return unchanged
        managed = _first(there, writer, shape)
    owned = {**managed, owner: _Owned(wanted, writer.api_version, writer.time)}
    made = merged(there, body, shape)
    if before is not None:
        made = pruned(made, before.paths, _NAMING.union(*(each.paths for each in owned.values())), shape)
    difference = compare(there, made, shape)
    changed = difference.added | difference.modified
    conflicts = {other: owned[other].paths & changed for other in owned if other != owner}
    if not force and any(conflicts.values()):
        raise FieldConflict(_refusal(conflicts, owned), status=409, reason="Conflict")
    _take(owned, changed | difference.removed, but=owner)
    made = _settled(made, current, schema, typed=typed)
    if (
        before is not None
        and made == there
        and {each: owned[each].paths for each in owned} == {each: managed[each].paths for each in managed}
    ):
        owned[owner] = before
    return _with_managed(made, owned)


def note_apply(made: Object, writer: Writer, shape: Shape, *, typed: bool) -> Object:
    """An object that is created by an apply; null and `typed` as to `apply_patch`."""
    paths = fields_of(made, shape) - _NAMING
    owned = {(_APPLY, writer.manager, "", ""): _Owned(paths, writer.api_version, writer.time)} if paths else {}
    return _with_managed(_settled(made, made, None, typed=typed), owned)


def note_write(old: Object | None, new: Object, writer: Writer, shape: Shape) -> Object:
    """`new`, which somebody made of `old` by other means: the fields that were changed are the writer's.

    Whoever writes none, or one entry that says nothing, has all owners forgotten.
    """
    if not writer.subresource and new["metadata"].get("managedFields") in ([{}], []):
        return _with_managed(new, {})
    said = {} if writer.subresource else _managed(new)
    managed = said or ({} if old is None else _managed(old))
    if not (managed or writer.manager):
        return _with_managed(new, {})
    there, made = {} if old is None else _bare(old), _bare(new)
    if not managed and old is not None:
        managed = _first(there, writer, shape)
    difference = compare(there, made, shape)
    gained = (difference.added | difference.modified) - _NAMING
    _take(managed, gained | difference.removed)
    if gained:
        owner = (_UPDATE, writer.manager or _OTHERS, writer.subresource, writer.api_version)
        known = managed[owner].paths if owner in managed else set[Path]()
        managed[owner] = _Owned(known | gained, writer.api_version, writer.time)
    return _with_managed(made, managed)


def _first(there: Object, writer: Writer, shape: Shape) -> dict[_Owner, _Owned]:
    """Of an object that nobody has signed."""
    paths = compare({}, there, shape).added - _NAMING
    owner = (_UPDATE, _OTHERS, "", writer.api_version)
    return {owner: _Owned(paths, writer.api_version, writer.time)} if paths else {}


def _take(owned: dict[_Owner, _Owned], paths: Iterable[Path], but: _Owner | None = None) -> None:
    """Nobody owns these any longer `but` one."""
    taken = set(paths)
    for owner in list(owned):
        if owner != but and not taken.isdisjoint(owned[owner].paths):
            had = owned[owner]
            owned[owner] = _Owned(had.paths - taken, had.api_version, had.time)
        if not owned[owner].paths:
            del owned[owner]


def _refusal(conflicts: Mapping[_Owner, set[Path]], owned: Mapping[_Owner, _Owned]) -> str:
    """Source: apimachinery, util/managedfields/internal/conflict.go."""
    found = {owner: sorted(map(text_of, paths)) for owner, paths in sorted(conflicts.items()) if paths}
    named = {owner: _named(owner, owned[owner]) for owner in found}
    count = sum(map(len, found.values()))
    if count == 1:
        [(owner, [where])] = found.items()
        return f"Apply failed with 1 conflict: conflict with {named[owner]}: {where}"
    lines: list[str] = []
    for owner, places in found.items():
        lines += (f"conflicts with {named[owner]}:", *(f"- {where}" for where in places))
    return f"Apply failed with {count} conflicts: " + "\n".join(lines)


def _named(owner: _Owner, owned: _Owned) -> str:
    operation, manager, subresource, _ = owner
    part = f' with subresource "{subresource}"' if subresource else ""
    return f'"{manager}"{part}' + (f" using {owned.api_version}" if operation == _UPDATE else "")


def _managed(thing: Object) -> dict[_Owner, _Owned]:
    """Whose fields are by `managedFields`."""
    found: dict[_Owner, _Owned] = {}
    for each in thing.get("metadata", {}).get("managedFields") or ():
        operation, version = each.get("operation", _APPLY), each.get("apiVersion", "")
        signed = (operation, each.get("manager", ""), each.get("subresource", ""))
        owner = (*signed, version if operation == _UPDATE else "")
        found[owner] = _Owned(set(paths_of(each.get("fieldsV1") or {})), version, each.get("time", ""))
    return found


def _bare(thing: Object) -> Object:
    """The same without the names of owners."""
    metadata = thing.get("metadata", {})
    if "managedFields" not in metadata:
        return thing
    return {**thing, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def _with_managed(thing: Object, owned: Mapping[_Owner, _Owned]) -> Object:
    """`thing` with these owners, sorted as an API server does it."""
    thing = _bare(thing)
    if not owned:
        return thing

    def place(owner: _Owner) -> tuple[str, ...]:
        operation, manager, subresource, _ = owner
        return operation, owned[owner].time, manager, owned[owner].api_version, subresource

    entries = [_entry(owner, owned[owner]) for owner in sorted(owned, key=place)]
    return {**thing, "metadata": {**thing["metadata"], "managedFields": entries}}


def _entry(owner: _Owner, owned: _Owned) -> Object:
    operation, manager, subresource, _ = owner
    known = {"apiVersion": owned.api_version, "time": owned.time, "subresource": subresource}
    said = {name: value for name, value in known.items() if value}
    fields = {"fieldsType": "FieldsV1", "fieldsV1": tree_of(owned.paths)}
    return {"manager": manager, "operation": operation, **said, **fields}


def _settled(
    made: Any, named: Object, schema: Mapping[str, Any] | None, *, typed: bool, path: tuple[str, ...] = ()
) -> Any:
    """What is stored of it where it is null, or was emptied, in the object that is so `named`.

    Raises: as `_emptied`.
    """
    if made is None or made is EMPTIED:
        if typed:
            return "" if path[-3:-1] in _TEXTS or path[:-1] == (".data",) else _ABSENT
        return _emptied(named, schema, path) if made is EMPTIED else None
    if isinstance(made, Mapping):
        found = {}
        for name, each in made.items():
            plain = typed or (not path and name == "metadata")
            part = None if schema is None else _part(schema, name)
            found[name] = _settled(each, named, part, typed=plain, path=(*path, f".{name}"))
        return {name: each for name, each in found.items() if each is not _ABSENT}
    if isinstance(made, list):
        items = None if schema is None else schema.get("items") or {}
        parts = ((each, (*path, f"[{at}]")) for at, each in enumerate(made))
        entries = [_settled(each, named, items, typed=typed, path=where) for each, where in parts]
        return [each for each in entries if each is not _ABSENT]
    return made


def _part(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    others = schema.get("additionalProperties")
    return (schema.get("properties") or {}).get(name) or (others if isinstance(others, Mapping) else {})


def _emptied(named: Object, schema: Mapping[str, Any] | None, path: tuple[str, ...]) -> Any:
    """What a custom resource has where something was emptied: null where that may be.

    A map that has a default stays, as each is thought to have while its schema is not known.

    Raises: Invalid where it may not, as an API server says it.
    """
    if schema is None:
        return {}
    if schema.get("nullable") or "type" not in schema:
        return None
    if "default" in schema:
        return {}
    where, group = "".join(path).removeprefix("."), named["apiVersion"].rpartition("/")[0]
    about = f'{named["kind"]}.{group} "{named["metadata"]["name"]}"'
    problem = f'Invalid value: "null": {where} in body must be of type object: "null"'
    raise Invalid(f"{about} is invalid: {where}: {problem}", status=422, reason="Invalid")
