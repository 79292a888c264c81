"""What happened in a run, as plain data: what shards wrote down, what etcd stored, what API servers were asked for,
and what was done to whom.

Times are seconds of this machine's CLOCK_MONOTONIC, which all processes of a run share.  Moments of the store are
`At`: which store (a restore begins a new one) and which revision of it.  Nothing tells when etcd took a write; it
took it after every write of a lower revision was sent, and before any of a higher one was answered or seen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from tests.chaos.holdings import Holdings

#: Which store, and its revision.
At = tuple[int, int]
OWNERS: Final = "secrets"
CHILDREN: Final = "configmaps"
LEASES: Final = "leases"
ASSIGNMENTS: Final = "ringassignments"
RINGS: Final = "clusterrings"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold, and what shows it."""

    rule: str
    what: str


@dataclass(frozen=True, slots=True)
class Reconcile:
    """One run of a shard's function, by its own account; `end` None: its process ended first."""

    key: str
    process: str
    shard: str
    uid: str
    begin: float
    end: float | None


@dataclass(frozen=True, slots=True)
class Write:
    """A write of a reconcile, by its shard's account; `at` None: no answer said that it was accepted."""

    id: str
    reconcile: str
    sent: float
    answered: float | None = None
    at: At | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object, lease, ring or RingAssignment, as etcd has it; of a deleted one the moment of its end.

    `value` is what its user wants of an owner and what was made of it in a child, `write` the write of a shard that
    made the child what it is, `holder` a lease's, `held` which ranges it says to be held.  `named` are the starts of an
    assignment's ranges, each with its shard.  `content`: a digest of all but the ring's labels.
    """

    at: At
    resource: str
    name: str
    seen: float
    uid: str = ""
    deleted: bool = False
    shard: str | None = None
    drain: bool = False
    owner: str | None = None
    value: str = ""
    write: str = ""
    holder: str = ""
    content: str = ""
    namespace: str = ""
    held: str = ""
    named: tuple[tuple[int, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Writer:
    """Who sent a request, as an API server has it; of a shard its name too, unless it is of the version before."""

    kind: Literal["user", "sharder", "shard", "unknown"]
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"a {self.kind}"


@dataclass(frozen=True, slots=True)
class Request:
    """A write that an API server was asked for, by its audit log.

    `code` is its answer's (None: it was killed first), `at` the version that the answer names, which is what the
    request made unless there was nothing to change.  `name` may lack where something was to be made.
    """

    id: str
    writer: Writer
    verb: str
    resource: str
    name: str
    code: int | None
    at: At | None = None

    @property
    def accepted(self) -> bool:
        """Whether the API server said so."""
        return self.code is not None and 200 <= self.code < 300

    @property
    def open(self) -> bool:
        """Whether it may have been executed all the same."""
        return self.code is None or self.code >= 500


@dataclass(frozen=True, slots=True)
class Known:
    """A write of anybody whose sending and answer are known."""

    at: At
    sent: float
    answered: float


@dataclass(frozen=True, slots=True)
class Down:
    """Somebody kept a process from its work: `killed`, `suspended`, `cut` off; `until` None: for good."""

    process: str
    since: float
    until: float | None
    how: Literal["killed", "suspended", "cut", "ended"]

    def during(self, begin: float, end: float) -> bool:
        """Whether it was down at any moment between these."""
        return self.since <= end and (self.until is None or self.until >= begin)


@dataclass(frozen=True)
class History:
    """All of it; `versions` in the order of the store, the rest in any."""

    versions: tuple[Version, ...] = ()
    reconciles: tuple[Reconcile, ...] = ()
    writes: tuple[Write, ...] = ()
    ticks: tuple[Known, ...] = ()
    downs: tuple[Down, ...] = ()
    #: What audit logs say; None: there are none.
    requests: tuple[Request, ...] | None = None
    #: Up to where each store but the first was filled from a backup.
    restores: tuple[At, ...] = ()
    #: Shards that should be there in the end.
    living: frozenset[str] = frozenset()
    children: int = 0
    by_ranges: bool = False
    lease_seconds: float = 15.0
    begin: float = 0.0
    end: float = float("inf")

    @cached_property
    def clock(self) -> StoreClock:
        """When which version was written."""
        told = [Known(each.at, each.sent, each.answered) for each in self.writes if each.at and each.answered]
        seen = ((each.at, each.seen) for each in self.versions)
        return StoreClock.of([*self.ticks, *told], seen)

    @cached_property
    def holdings(self) -> Holdings:
        """Who held what of a ring by ranges."""
        from tests.chaos.holdings import Holdings  # which is made of versions

        holdings = Holdings(set(self.places.values()))
        for version in self.versions:
            holdings.follow(version)
        return holdings

    @cached_property
    def places(self) -> dict[str, str]:
        """In which namespace each object is, by uid."""
        return {each.uid: each.namespace for each in self.versions if each.resource == OWNERS}

    @cached_property
    def given(self) -> Sequence[Version]:
        """The versions, each with the shard that has it; by ranges also where nothing but that has changed."""
        return self.holdings.given if self.by_ranges else self.versions

    def of(self, resource: str) -> dict[str, list[Version]]:
        """The versions of each object of a resource, as `given`, by name and uid; leases by name."""
        found: dict[str, list[Version]] = {}
        for version in self.given:
            if version.resource == resource:
                key = version.name if resource == LEASES else f"{version.name}/{version.uid}"
                found.setdefault(key, []).append(version)
        return found

    @cached_property
    def renewals(self) -> dict[str, list[Version]]:
        """The versions of each lease, by name."""
        return self.of(LEASES)

    def edited(self, since: float, until: float) -> bool:
        """Whether somebody may have edited by hand who gets what between two moments, or before that what is shared.

        What a ring by ranges covers anew is evened out when it is known how much that is.
        """
        return any(
            self.clock.after(each.at) <= until and (each.resource == RINGS or self.clock.before(each.at) >= since)
            for each in self._edits
        )

    @cached_property
    def _edits(self) -> list[Version]:
        edited = (ASSIGNMENTS, RINGS)
        return [
            each.version
            for each in self.stored
            if each.version.resource in edited and any(writer.kind == "user" for writer in each.writers)
        ]

    @cached_property
    def stored(self) -> list[Stored]:
        """Each version that somebody's write made, in the order of the store."""
        return list(_stored(self))

    def down(self, process: str, begin: float, end: float) -> bool:
        """Whether a process was kept from its work at any moment between these."""
        return any(each.process == process and each.during(begin, end) for each in self.downs)


@dataclass(frozen=True, slots=True)
class Stored:
    """A version, what was there `before`, and the requests whose answers name it."""

    version: Version
    before: Version | None
    requests: tuple[Request, ...]

    @property
    def writers(self) -> set[Writer]:
        """Who may have made it: one, but for those who wrote what was there already."""
        return {each.writer for each in self.requests}

    @property
    def only_labels(self) -> bool:
        """Whether nothing but the ring's labels has changed."""
        return self.before is not None and self.before.content == self.version.content


def _stored(history: History) -> Iterator[Stored]:
    filled = dict(history.restores)
    named: dict[tuple[str, str, At], list[Request]] = defaultdict(list)
    for request in history.requests or ():
        if request.at is not None:
            named[request.resource, request.name, request.at].append(request)
    there: dict[tuple[str, str], Version] = {}
    for version in history.versions:
        key = version.resource, version.name
        if version.at[1] > filled.get(version.at[0], 0):
            before = there.get(key)
            same = before if before is not None and before.uid == version.uid else None
            yield Stored(version, same, tuple(named[*key, version.at]))
        if version.deleted:
            there.pop(key, None)
        else:
            there[key] = version


@dataclass(frozen=True)
class StoreClock:
    """Bounds of the moment at which the store took each write."""

    _at: list[At] = field(default_factory=list)
    _after: list[float] = field(default_factory=list)
    _until: list[At] = field(default_factory=list)
    _before: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, known: Iterable[Known], seen: Iterable[tuple[At, float]]) -> StoreClock:
        """From writes whose sending and answer are known, and from when versions were seen."""
        facts = sorted(known, key=lambda each: each.at)
        ends = sorted([*seen, *((each.at, each.answered) for each in facts)])
        before = list(accumulate((moment for _, moment in reversed(ends)), min))[::-1]
        after = list(accumulate((each.sent for each in facts), max))
        return cls([each.at for each in facts], after, [at for at, _ in ends], before)

    def after(self, at: At) -> float:
        """The store took this write at this moment or later."""
        index = bisect_right(self._at, at)
        return self._after[index - 1] if index else float("-inf")

    def before(self, at: At) -> float:
        """The store had taken this write by this moment."""
        index = bisect_left(self._until, at)
        return self._before[index] if index < len(self._before) else float("inf")
