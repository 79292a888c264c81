"""Which fields of an object have changed, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from shardsdk.kinds.wire import encode

#: So many are named.
NAMED: Final = 3
#: What changes with whatever else does.
_ALWAYS: Final = frozenset({"metadata.resourceVersion", "metadata.generation", "metadata.managedFields"})


def changed_fields(before: object, after: object, among: Any = None) -> str:
    """The fields in which two versions of an object differ, as on the wire; empty: nobody knows.

    `among`: of the fields that this body has, a list being one.

    >>> changed_fields({"status": {"seen": 1}}, {"status": {"seen": 2}, "data": {}})
    'status.seen, data'
    >>> changed_fields({"data": {"ours": 1, "theirs": 1}}, {"data": {"ours": 2, "theirs": 2}}, {"data": {"ours": 2}})
    'data.ours'
    """
    try:
        found = [each for each in _differing(encode(before), encode(after), "", among) if each not in _ALWAYS]
    except Exception:  # whatever their class makes of them; it is the sentence around this that matters
        return ""
    more = [f"and {len(found) - NAMED} more"] if len(found) > NAMED else []
    return ", ".join([*found[:NAMED], *more])


def is_told(times: int, first: int) -> bool:
    """Whether what has happened so many times in a row is told of: the `first` time, and each ten times as many.

    >>> [times for times in range(6000) if is_told(times, 50)]
    [50, 500, 5000]
    """
    while times > first and times % 10 == 0:
        times //= 10
    return times == first


def _differing(before: Any, after: Any, place: str, among: Any) -> Iterator[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        if before != after:
            yield place
        return
    fields = among if isinstance(among, dict) else dict.fromkeys({**before, **after})
    for name, part in fields.items():
        yield from _differing(before.get(name), after.get(name), f"{place}.{name}" if place else name, part)
