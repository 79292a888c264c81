"""Sets of fields, and merging by them, for servers in memory.

The parts of a path are written as in `managedFields`: `f:` a field, `k:` the keys of a list's entry, `v:` an entry of
a set.  Source: sigs.k8s.io/structured-merge-diff, fieldpath and typed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

from shardsdk.testing.patching import copy_tree
from shardsdk.testing.shapes import Shape

#: Where a field is: its parts from the top.
Path = tuple[str, ...]
#: Paths as `fieldsV1` has them: a field without others below it is empty, one with others has a dot as well.
Tree = dict[str, Any]

#: What is left of a map, or of a list that merges, when all is taken out of it.
EMPTIED: Final[Any] = object()
_DOT: Final = "."
_ABSENT: Final[Any] = object()
_NONE: Final[Tree] = {}
_json_of: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(slots=True)
class Difference:
    """Which fields two objects do not have alike."""

    added: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)


def tree_of(paths: Iterable[Path]) -> Tree:
    """The same as `fieldsV1`."""
    members = sorted(paths)
    tree: Tree = {}
    for path in members:
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
    for path in members:
        inner = tree
        for part in path:
            inner = inner[part]
        if inner:
            inner[_DOT] = {}
    return tree


def paths_of(tree: Mapping[str, Any], above: Path = ()) -> Iterator[Path]:
    """The paths of a `fieldsV1`."""
    for part, inner in tree.items():
        if part == _DOT:
            yield above
        elif inner:
            yield from paths_of(inner, (*above, part))
        else:
            yield (*above, part)


def text_of(path: Path) -> str:
    """As an API server says it: `.spec.containers[name="a"].image`."""
    return "".join(map(_text_of_part, path))


def _text_of_part(part: str) -> str:
    sort, _, what = part.partition(":")
    if sort == "f":
        return f".{what}"
    if sort == "v":
        return f"[={what}]"
    return "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(what).items()) + "]"


def fields_of(value: Any, shape: Shape, above: Path = ()) -> set[Path]:
    """All fields of a value; of maps that merge those that are empty, and the entries of such as declare none."""
    found: set[Path] = set()
    _collect(value, shape, above, found)
    return found


def _collect(value: Any, shape: Shape, path: Path, found: set[Path]) -> None:
    sort = _sort(value, shape)
    if sort is dict:
        for name, each in value.items():
            inner = (*path, f"f:{name}")
            _collect(each, shape.at(name), inner, found)
            if each in (None, EMPTIED) or each == {} or not shape.declares(name):
                found.add(inner)
    elif sort is list:
        for part, each in _entries(value, shape).items():
            inner = (*path, part)
            _collect(each, shape.entry, inner, found)
            found.add(inner)
    else:
        found.add(path)


def repeated(value: Any, shape: Shape, above: Path = ()) -> Iterator[tuple[Path, int, str]]:
    """Entries of lists that merge which are there before: the path of the list, which entry it is, and its part."""
    if isinstance(value, Mapping) and not shape.is_whole:
        for name, each in value.items():
            if isinstance(each, (Mapping, list)):
                yield from repeated(each, shape.at(name), (*above, f"f:{name}"))
    elif isinstance(value, list) and (shape.keys or shape.is_set):
        seen = set[str]()
        for place, each in enumerate(value):
            part = _part_of(each, shape)
            if part in seen:
                yield above, place, part
            seen.add(part)
            yield from repeated(each, shape.entry, (*above, part))


def unkeyed(value: Any, shape: Shape, above: Path = ()) -> Iterator[tuple[Path, int]]:
    """Entries of lists that merge which have none of its keys: the path of the list, and which entry it is."""
    sort, parts = _sort(value, shape), _parts(value, shape) or {}
    if sort is list and shape.keys:
        for place, each in enumerate(value):
            if all(_key_of(each, key, shape) is None for key in shape.keys):
                yield above, place
    for part, each in parts.items():
        if isinstance(each, (Mapping, list)):
            yield from unkeyed(each, _inner(shape, part), (*above, part))


def compare(old: Any, new: Any, shape: Shape) -> Difference:
    """What `new` has otherwise than `old`."""
    difference = Difference()
    _compare(old, new, shape, (), difference)
    return difference


def _compare(old: Any, new: Any, shape: Shape, path: Path, difference: Difference) -> None:
    new = None if new is EMPTIED else new
    befores, afters = _parts(old, shape), _parts(new, shape)
    if (befores is None and old not in (None, _ABSENT)) or (afters is None and new not in (None, _ABSENT)):
        befores = afters = None  # at least one is no container
    if not befores and not afters:
        if old is _ABSENT:
            difference.added.add(path)
        elif new is _ABSENT:
            difference.removed.add(path)
        elif old != new:
            difference.modified.add(path)
        return
    befores, afters = befores or {}, afters or {}
    for part in befores.keys() | afters.keys():
        before, after = befores.get(part, _ABSENT), afters.get(part, _ABSENT)
        if before is not after:
            _compare(before, after, _inner(shape, part), (*path, part), difference)
    if old is _ABSENT:
        difference.added.add(path)
    elif new is _ABSENT:
        difference.removed.add(path)


def merged(old: Any, applied: Any, shape: Shape) -> Any:
    """`old` with all that was applied: maps and lists merge, and null keeps what they have."""
    sort = _sort(old, shape)
    if sort is not None and old and applied is None:
        return copy_tree(old)
    if sort is None or sort is not _sort(applied, shape):
        return copy_tree(applied)
    if sort is dict:
        both = {name: merged(old[name], applied[name], shape.at(name)) for name in old.keys() & applied.keys()}
        return {**copy_tree(old), **copy_tree(applied), **both}
    return _merged_list(old, applied, shape)


def _merged_list(old: Sequence[Any], applied: Sequence[Any], shape: Shape) -> list[Any]:
    """In the order of both, where they have one.  Source: structured-merge-diff, typed/merge.go."""
    befores, afters = _entries(old, shape), _entries(applied, shape)
    lefts, rights = list(befores), list(afters)
    shared = [part for part in rights if part in befores]
    done: set[str] = set()
    made: list[Any] = []
    left = right = 0

    def take() -> None:
        """The next of what was applied."""
        part = rights[right]
        done.add(part)
        if part in befores:
            made.append(merged(befores[part], afters[part], shape.entry))
        else:
            made.append(copy_tree(afters[part]))
        if shared and shared[0] == part:
            del shared[0]

    while left < len(lefts) or right < len(rights):
        if left < len(lefts) and right < len(rights):
            part = lefts[left]
            if part == rights[right]:
                take()
                left, right = left + 1, right + 1
                continue
            if part in afters and shared and shared[0] != part:
                left += 1
                continue
        if left < len(lefts):
            part = lefts[left]
            if part not in afters:
                made.append(copy_tree(befores[part]))
                left += 1
                continue
            if part in done:
                left += 1
        if right < len(rights):
            take()
            right += 1
    return made


def without(value: Any, tree: Mapping[str, Any], shape: Shape) -> Any:
    """`value` without these fields; what has nothing left in it is `EMPTIED`."""
    sort, parts = _sort(value, shape), _parts(value, shape)
    if sort is None or parts is None:
        return value
    kept: dict[str, Any] = {}
    for part, each in parts.items():
        node = tree.get(part)
        if node is None:
            kept[part] = each
        elif node and _DOT not in node:
            kept[part] = without(each, node, _inner(shape, part))
    if not kept:
        return EMPTIED
    return {part[2:]: each for part, each in kept.items()} if sort is dict else list(kept.values())


def with_declared(paths: Set[Path], shape: Shape) -> set[Path]:
    """`paths` with the declared fields on their way."""
    every, seen = set(paths), dict[Path, Shape]({(): shape})
    for path in paths:
        for depth in range(1, len(path)):
            above, part = path[: depth - 1], path[depth - 1]
            outer, here = seen[above], path[:depth]
            if here not in seen:
                seen[here] = _inner(outer, part)
                if part.startswith("f:") and outer.declares(part[2:]):
                    every.add(here)
    return every


def pruned(made: Any, before: Set[Path], kept: Set[Path], shape: Shape) -> Any:
    """What is left of `made` where an applier has given up what it had `before`; `kept`: the fields of all, by now.

    Source: structured-merge-diff, merge/update.go, prune.
    """
    every, last = with_declared(fields_of(made, shape), shape), with_declared(before, shape)
    left = without(made, tree_of(last), shape)
    there = with_declared(fields_of(left, shape), shape)
    left = without(made, tree_of(every - there - with_declared(kept, shape)), shape)
    there = with_declared(fields_of(left, shape), shape)
    return without(made, tree_of((every - there) & last), shape)


def _sort(value: Any, shape: Shape) -> type | None:
    """Whether it is a map that merges, or a list that does; `None`: it is one field."""
    if isinstance(value, Mapping):
        return None if shape.is_whole else dict
    return list if isinstance(value, list) and (shape.keys or shape.is_set) else None


def _parts(value: Any, shape: Shape) -> dict[str, Any] | None:
    """What is in a map or list that merges; `None`: it is one field, or nothing."""
    sort = _sort(value, shape)
    if sort is None:
        return None
    return _entries(value, shape) if sort is list else {f"f:{name}": each for name, each in value.items()}


def _entries(entries: Sequence[Any], shape: Shape) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in entries:
        found.setdefault(_part_of(each, shape), each)
    return found


def _part_of(entry: Any, shape: Shape) -> str:
    if not shape.keys:
        return f"v:{_json_of(entry)}"
    return f"k:{_json_of({key: _key_of(entry, key, shape) for key in sorted(shape.keys)})}"


def _key_of(entry: Any, key: str, shape: Shape) -> Any:
    return (entry if isinstance(entry, Mapping) else _NONE).get(key, shape.default_of(key))


def _inner(shape: Shape, part: str) -> Shape:
    return shape.at(part[2:]) if part.startswith("f:") else shape.entry
