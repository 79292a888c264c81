"""The JSON patch that does to an object what a function did to its Python form.

A class knows some of an object's fields; the others stay as they came, those of
entries in lists too, as long as an entry can be told by being unchanged, by its
`name`, or, if asked for, by its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeGuard

from shardsdk.protocol.names import pointer_part

Object = dict[str, Any]
_ABSENT: Final = object()


def carried_over(there: Object, before: Object, after: Object, *, by_place: bool = True) -> Object:
    """`there` with what has changed from `before` to `after`.

    `by_place`: of lists, too, of which entries are replaced by others as often as changed, an entry without a name is
    taken for the one in its place.

    >>> carried_over({"a": 1, "unknown": 2}, {"a": 1, "default": 0}, {"a": 3, "default": 0})
    {'a': 3, 'unknown': 2}
    """
    kept = {name: value for name, value in there.items() if name in after or name not in before}
    changed = {
        name: _carried(there.get(name, _ABSENT), before.get(name, _ABSENT), value, by_place)
        for name, value in after.items()
        if not same(before.get(name, _ABSENT), value)
    }
    return {**kept, **changed}


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON: as Python has it, but that `true` is no number.

    >>> same({"a": [1]}, {"a": [1.0]}), same({"a": [1]}, {"a": [True]})
    (True, False)
    """
    return bool(one == other) and _same_sorts(one, other)


def json_patch(before: Object, after: Object) -> list[dict[str, Any]]:
    """The operations (RFC 6902) that make `after` of `before`; a list that has changed is replaced.

    >>> json_patch({"a": {"b/c": 1, "d": 2}}, {"a": {"b/c": 3}})
    [{'op': 'remove', 'path': '/a/d'}, {'op': 'replace', 'path': '/a/b~1c', 'value': 3}]
    """
    return list(_operations("", before, after))


def _same_sorts(one: Any, other: Any) -> bool:
    """Of values that are equal in Python: whether none is a bool where the other has a number."""
    if one is other:
        return True
    if type(one) is not type(other):
        return not isinstance(one, bool) and not isinstance(other, bool)
    if isinstance(one, dict):
        return all(_same_sorts(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        # A call for each number of a long list would take much longer than to compare them.
        sorts = list(map(type, one))
        plain = dict not in sorts and list not in sorts and sorts == list(map(type, other))
        return plain or all(map(_same_sorts, one, other))
    return True


def _operations(path: str, before: Object, after: Object) -> Iterator[dict[str, Any]]:
    for name in before.keys() - after.keys():
        yield {"op": "remove", "path": f"{path}/{pointer_part(name)}"}
    for name, value in after.items():
        there, where = before.get(name, _ABSENT), f"{path}/{pointer_part(name)}"
        if there is _ABSENT:
            yield {"op": "add", "path": where, "value": value}
        elif isinstance(there, dict) and isinstance(value, dict):
            yield from _operations(where, there, value)
        elif not same(there, value):
            yield {"op": "replace", "path": where, "value": value}


def _carried(there: Any, before: Any, after: Any, by_place: bool) -> Any:
    if isinstance(after, dict) and isinstance(there, dict):
        return carried_over(there, before if isinstance(before, dict) else {}, after, by_place=by_place)
    if isinstance(after, list) and _pairs(there, before):
        return _entries(there, before, after, by_place)
    return after


def _pairs(there: Any, before: Any) -> TypeGuard[list[Any]]:
    return isinstance(there, list) and isinstance(before, list) and len(there) == len(before)


def _entries(there: list[Any], before: Sequence[Any], after: Sequence[Any], by_place: bool) -> list[Any]:
    """The entries of `after`, each with what came with it."""
    left = list(range(len(before)))
    # Written out, not `same`: most of these many entries are not even equal.
    origins: list[int | None] = [
        _take(left, [each for each in left if before[each] == entry and _same_sorts(before[each], entry)])
        for entry in after
    ]
    for place, entry in enumerate(after):
        if origins[place] is None and isinstance(entry, dict):
            if (name := _name(entry)) is not None:
                alike = [each for each in left if _name(before[each]) == name]
            else:
                alike = [place] if by_place and place in left else []
            origins[place] = _take(left, alike)
    return [
        entry if origin is None else _carried(there[origin], before[origin], entry, by_place)
        for origin, entry in zip(origins, after, strict=True)
    ]


def _take(left: list[int], found: Sequence[int]) -> int | None:
    if not found:
        return None
    left.remove(found[0])
    return found[0]


def _name(entry: Any) -> Any:
    return entry.get("name") if isinstance(entry, dict) else None
