"""Whose an object is in a ring by ranges: the shard's whose Lease says that it holds the hash of the namespace.

Told of each version in the order of the store.  What it makes of them are versions such as a ring by labels has: of
each object and child one more whenever it comes to another shard, though nothing is written there.  So whatever is
asked of one kind of history can be asked of the other.  It shares no code with what it watches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tests.chaos.history import CHILDREN, LEASES, OWNERS, At, Version
from tests.integration.ranged_shard import Spans, parse, point_of

_NOTHING: Final[Spans] = frozenset()


@dataclass(slots=True)
class Hold:
    """A shard's Lease says that it holds a namespace, from one version until another (None: to the end).

    `torn`: that one was made by hand, which deleted the Lease or emptied it.  The shard may not know yet, and everybody
    counts on it, until the Lease would have run out.
    """

    shard: str
    since: Version
    until: Version | None = None
    torn: bool = False

    def at(self, moment: At) -> bool:
        """Whether the Lease says so at that moment of the store."""
        return self.since.at <= moment and (self.until is None or moment < self.until.at)


class Holdings:
    """Who holds these namespaces; `given` are the versions of all, as told above."""

    def __init__(self, namespaces: Iterable[str]) -> None:
        self.points: Final = {each: point_of(each) for each in namespaces}
        self.holds: Final[dict[str, list[Hold]]] = {each: [] for each in self.points}
        self.given: Final[list[Version]] = []
        self._leases: dict[str, Version] = {}
        self._owners: dict[str, str | None] = {}
        self._there: dict[tuple[str, str], Version] = {}

    def follow(self, version: Version) -> list[Version]:
        """What is `given` by one more version."""
        if version.resource == LEASES:
            made = [version, *self._read(version)]
        elif version.resource not in (OWNERS, CHILDREN):
            made = [version]
        else:
            made = [replace(version, shard=self._owners.get(version.namespace))]
        for each in made:
            if each.resource in (OWNERS, CHILDREN):
                if each.deleted:
                    self._there.pop((each.resource, each.name), None)
                else:
                    self._there[each.resource, each.name] = each
        self.given.extend(made)
        return made

    def _read(self, lease: Version) -> Iterator[Version]:
        """The objects that come to another shard by this version of a lease; children first."""
        before, self._leases[lease.name] = self._leases.get(lease.name), lease
        if before is not None and _says(before) == _says(lease):
            return
        spans = parse(lease.held) if lease.holder == lease.name and not lease.deleted else _NOTHING
        for namespace, point in self.points.items():
            holds = self.holds[namespace]
            mine = next((each for each in holds if each.shard == lease.name and each.until is None), None)
            held = any(start <= point < end for start, end in spans)
            if mine is not None and not held:
                mine.until, mine.torn = lease, _is_torn(lease)
            elif mine is None and held:
                holds.append(Hold(lease.name, lease))
        changed = {each: self._owner(each) for each in self.points if self._owner(each) != self._owners.get(each)}
        self._owners |= changed
        for resource in (CHILDREN, OWNERS):
            for version in [each for each in self._there.values() if each.resource == resource]:
                if version.namespace in changed:
                    yield replace(version, at=lease.at, seen=lease.seen, shard=changed[version.namespace])

    def _owner(self, namespace: str) -> str | None:
        """Of several the one who held it first; else whom it was torn from a moment ago."""
        holds = self.holds[namespace]
        held = [each.shard for each in holds if each.until is None]
        torn = [each.shard for each in holds if each.torn and self._leases[each.shard] is each.until]
        return next(iter([*held, *torn]), None)


def named_for(assignment: Version, point: int) -> str | None:
    """Whom an assignment names for a point."""
    shard = None
    for start, who in assignment.named:
        if start <= point:
            shard = who
    return shard


def _says(lease: Version) -> tuple[str, bool, str]:
    return lease.holder, lease.deleted, lease.held.partition("@")[0]


def _is_torn(lease: Version) -> bool:
    """Who leaves says first that it holds nothing; who takes a Lease says so with it."""
    return lease.deleted or (not lease.holder and bool(lease.held.partition("@")[0]))
