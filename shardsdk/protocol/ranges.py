"""Ranges of hashes, and who is named for them: what sharder and shards agree on where nobody labels objects.

Each object has a point in a space of 2**64, which never changes: the hash of its
namespace's name or of its uid.  A RingAssignment names a shard for each part of the
space; the Lease of a shard says what that shard holds of it.

What cannot be read is never taken for "nothing": an annotation of held ranges that
makes no sense holds the whole space, and an assignment that makes none names nobody
anew (`parse_assignment` raises, and its reader keeps to what it had).

Sources: KEP-5866 (shardSelector: FNV-1a of 64 bits over UTF-8, `shardRange`, half-open
ranges of 16 lower-case digits); Fowler, Noll, Vo, "FNV Hash", offset basis and prime.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import chain, pairwise
from math import log2
from operator import itemgetter
from typing import Any, Final

import msgspec

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.labels import API_GROUP, API_VERSION
from shardsdk.protocol.objects import ObjectMeta, Resource, SlimMeta

#: How many points there are; also the end of the last range, which no point reaches.
SPACE: Final = 1 << 64
#: Lease annotation: the ranges in which the lease's shard may be working, as `render_held` writes them.
HELD_RANGES_ANNOTATION: Final = "alpha.sharding.timebertt.dev/held-ranges"
#: Lease annotation: how many objects the shard has in each namespace, as `render_counts` writes it.
NAMESPACE_COUNTS_ANNOTATION: Final = "alpha.sharding.timebertt.dev/namespace-counts"
#: Namespaces that a shard tells the counts of, those with most objects.
MAX_COUNTS: Final = 256
#: Steps of a count for each doubling: two counts of one step differ by less than a fifth.
_STEPS: Final = 4
_MAX_STEP: Final = 64 * _STEPS
#: Ranges of one RingAssignment at most.  The CRD has the same bound.
MAX_RANGES: Final = 4096
#: The one object that says who may have which range; called as its ring.
RING_ASSIGNMENTS: Final = Resource(API_GROUP, API_VERSION, "ringassignments", "RingAssignment", namespaced=False)

#: How a ring assigns its objects, as `spec.assignment` spells it; the first is what one does that does not say.
BY_LABELS: Final = "Labels"
BY_RANGES: Final = "Ranges"

_OFFSET_BASIS: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_COUNT: Final = re.compile(r"([0-9a-f]{16})=([0-9]{1,3})")
_BOUND: Final = re.compile(r"0x([0-9a-f]{16}|10{16})")
_end: Final = itemgetter(1)


class HashBy(StrEnum):
    """What of an object is hashed, as a ClusterRing and a RingAssignment spell it."""

    NAMESPACE = "Namespace"
    UID = "UID"

    @property
    def field(self) -> str:
        """What a shardSelector calls it."""
        return "object.metadata.namespace" if self is HashBy.NAMESPACE else "object.metadata.uid"

    def point(self, metadata: SlimMeta) -> int:
        """Where an object lies, 0 to 2**64 - 1."""
        return point_of(metadata.namespace) if self is HashBy.NAMESPACE else _fnv(metadata.uid)


def hash_by_of(assignment: str, hash_by: str) -> HashBy | None:
    """What a ring hashes that has these in its spec; `None`: it assigns by labels.

    Raises: ConfigurationError for a way of assigning that this version does not know.
    """
    if assignment == BY_LABELS:
        return None
    try:
        if assignment == BY_RANGES:
            return HashBy(hash_by)
    except ValueError:
        pass
    raise ConfigurationError(
        f"the ring has spec.assignment {assignment!r} and spec.hashBy {hash_by!r}, which this version of"
        f" shardsdk does not know: use {BY_LABELS}, or {BY_RANGES} by {' or '.join(HashBy)}, or a newer version"
    )


def _fnv(text: str) -> int:
    point = _OFFSET_BASIS
    for byte in text.encode():
        point = ((point ^ byte) * _PRIME) % SPACE
    return point


@lru_cache(maxsize=65536)
def point_of(namespace: str) -> int:
    """Where the objects of a namespace lie.

    >>> hex(point_of("foobar"))
    '0x85944171f73967e8'
    """
    return _fnv(namespace)


class HashRanges(msgspec.Struct, frozen=True):
    """A part of the space: half-open spans of points, sorted, none empty, none touching the next.

    >>> low, high = HashRanges.of((0, 16)), HashRanges.of((16, 32))
    >>> str(low | high)
    '0x0000000000000000-0x0000000000000020'
    >>> (low | high) - low == high, bool(low & high), 15 in low
    (True, False, True)
    """

    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, *spans: tuple[int, int]) -> HashRanges:
        """These spans, which may overlap, touch, be empty and stand in any order."""
        joined: list[tuple[int, int]] = []
        for start, end in sorted(span for span in spans if span[0] < span[1]):
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        return cls(tuple(joined))

    @classmethod
    def union(cls, parts: Iterable[HashRanges]) -> HashRanges:
        """What any of `parts` has."""
        return cls.of(*(span for part in parts for span in part))

    @classmethod
    def parse(cls, text: str) -> HashRanges:
        """Read what `str` writes; spaces around a range and an empty text are no mistake.

        Raises: ConfigurationError naming what it could not read.
        """
        return cls.of(*(_parse_span(part.strip()) for part in text.split(",") if part.strip()))

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __contains__(self, point: int) -> bool:
        at = bisect_right(self.spans, (point, SPACE)) - 1
        return at >= 0 and point < self.spans[at][1]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.spans)

    def __len__(self) -> int:
        return len(self.spans)

    def __or__(self, other: HashRanges) -> HashRanges:
        return HashRanges.of(*self.spans, *other.spans) if self.spans and other.spans else self or other

    def __and__(self, other: HashRanges) -> HashRanges:
        few, many = sorted((self.spans, other.spans), key=len)
        meets: list[tuple[int, int]] = []
        for start, end in few:
            for at in range(bisect_right(many, start, key=_end), len(many)):
                if many[at][0] >= end:
                    break
                meets.append((max(start, many[at][0]), min(end, many[at][1])))
        return HashRanges(tuple(meets))  # no two of which touch, since no two spans of either do

    def __sub__(self, other: HashRanges) -> HashRanges:
        both = self & other  # that alone is taken away, since there may be much more of the other
        return self & both.complement if both.spans else self

    @property
    def complement(self) -> HashRanges:
        """The rest of the space."""
        edges = [0, *chain.from_iterable(self.spans), SPACE]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        return HashRanges(tuple(gap for gap in gaps if gap[0] < gap[1]))

    @property
    def width(self) -> int:
        """How many points there are in it."""
        return sum(end - start for start, end in self.spans)

    def __str__(self) -> str:
        return ",".join(f"{render_bound(start)}-{render_bound(end)}" for start, end in self.spans)

    def selector(self, by: HashBy) -> str:
        """The `shardSelector` of a list or watch of these ranges alone; of none there is no such text.

        Raises: ValueError for no range.
        """
        if not self.spans:
            raise ValueError("a list of no range cannot be asked for")
        return " || ".join(
            f"shardRange({by.field}, '{render_bound(start)}', '{render_bound(end)}')" for start, end in self.spans
        )


#: The whole space.
EVERYWHERE: Final = HashRanges.of((0, SPACE))
#: No part of it.
NOWHERE: Final = HashRanges()


def render_bound(bound: int) -> str:
    """A bound as it goes over the wire: 16 lower-case digits, of which only the end of the space has one more.

    >>> render_bound(255), render_bound(SPACE)
    ('0x00000000000000ff', '0x10000000000000000')
    """
    return f"0x{bound:016x}"


def _parse_bound(text: str) -> int:
    if _BOUND.fullmatch(text) is None:
        raise ConfigurationError(f"{text!r} is no hash: write 0x and 16 lower-case hexadecimal digits")
    return int(text, 16)


def _parse_span(text: str) -> tuple[int, int]:
    start, dash, end = text.partition("-")
    if not dash:
        raise ConfigurationError(f"{text!r} is no range: write its first hash, '-', and the hash behind its last")
    span = _parse_bound(start), _parse_bound(end)
    if span[0] >= span[1]:
        raise ConfigurationError(f"the range {text!r} ends before it begins")
    return span


def render_held(ranges: HashRanges, renew_time: str) -> str:
    """The value of the annotation of held ranges, in a write that sets this renewTime.

    >>> render_held(HashRanges.of((0, 16)), "2030-01-01T00:00:00.000000Z")
    '0x0000000000000000-0x0000000000000010@2030-01-01T00:00:00.000000Z'
    """
    return f"{ranges}@{renew_time}"


def parse_held(text: str) -> tuple[HashRanges, str | None]:
    """What an annotation of held ranges says, and the renewTime of its write; what makes no sense holds everything.

    `None`: it does not say whose write it came with, as older shards do, and is true of any.
    """
    said, mark, said_at = text.partition("@")
    try:
        return HashRanges.parse(said), said_at if mark else None
    except ConfigurationError:
        return EVERYWHERE, said_at if mark else None


def render_counts(counts: Mapping[str, int]) -> str:
    """Objects by namespace, as a shard's Lease says it: each namespace's hash, and its count in quarters of a doubling.

    Names stay where they are, and a count that hardly changes changes nothing.

    >>> render_counts({"foobar": 1000, "empty": 0})
    '85944171f73967e8=40'
    """
    largest = sorted((each for each in counts.items() if each[1] > 0), key=lambda each: (-each[1], each[0]))
    steps = {point_of(name): round(_STEPS * log2(count)) for name, count in largest[:MAX_COUNTS]}
    return ",".join(f"{point:016x}={step}" for point, step in sorted(steps.items()))


def read_counts(annotations: Mapping[str, str] | None) -> dict[int, float]:
    """What a lease says of how many objects are in namespaces, by the namespaces' hash; what makes no sense, nothing.

    >>> read_counts({NAMESPACE_COUNTS_ANNOTATION: "85944171f73967e8=40,nonsense"})
    {9625390261332436968: 1024.0}
    """
    text = (annotations or {}).get(NAMESPACE_COUNTS_ANNOTATION, "")
    found = (_COUNT.fullmatch(part) for part in text.split(",", MAX_COUNTS)[:MAX_COUNTS])
    return {int(each[1], 16): 2.0 ** (min(int(each[2]), _MAX_STEP) / _STEPS) for each in found if each is not None}


class AssignedRange(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """From `start` to the next range's start: of `shard`, or of nobody while it changes hands.

    `namespace` is that of the Lease by which the shard was named: one of the same name elsewhere is another shard.
    Empty: it is not said, as in assignments of older sharders, and by hand until the sharder's next look.
    A range of nobody's may say from whom it was taken, `source`, by the Lease in `namespace`, and who is to have it,
    `target`: sharders alone go by that.
    """

    start: str
    shard: str = ""
    namespace: str = ""
    source: str = msgspec.field(default="", name="from")
    target: str = msgspec.field(default="", name="to")


class RingAssignmentSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a RingAssignment, as it was written; `parse_assignment` judges it."""

    hash_by: str = ""
    ranges: list[AssignedRange] = msgspec.field(default_factory=list)


class RingAssignment(msgspec.Struct, frozen=True, rename="camel"):
    """Who may have which range of one ring; changed only against the resourceVersion that was read."""

    metadata: ObjectMeta
    spec: RingAssignmentSpec = msgspec.field(default_factory=RingAssignmentSpec)


@dataclass(frozen=True, slots=True)
class Named:
    """What a RingAssignment says: each shard's ranges.  What is in none of them is nobody's."""

    by: HashBy
    shards: dict[str, HashRanges]

    def of(self, shard: str) -> HashRanges:
        """The ranges that `shard` is named for."""
        return self.shards.get(shard, NOWHERE)

    @property
    def nobodys(self) -> HashRanges:
        """What is changing hands."""
        return HashRanges.union(self.shards.values()).complement

    def shard_at(self, point: int) -> str | None:
        """The shard that is named at this point."""
        return next((shard for shard, ranges in self.shards.items() if point in ranges), None)


def parse_assignment(spec: RingAssignmentSpec, reader: tuple[str, str] | None = None) -> Named:
    """Read a RingAssignment; of its `reader`, a shard by name and its Lease's namespace, only what names it there.

    Where no range says a namespace (an older sharder wrote it, say), all of that name do.

    Raises: ConfigurationError for ranges that do not cover the space in order: whoever reads it goes on as if
        nothing had been changed.
    """
    try:
        by = HashBy(spec.hash_by)
    except ValueError:
        raise ConfigurationError(f"hashBy is {spec.hash_by!r}: write Namespace or UID") from None
    starts = [_parse_bound(each.start) for each in spec.ranges]
    if not starts or starts[0] != 0:
        raise ConfigurationError(f"the first range must start at {render_bound(0)}, so that the whole space is covered")
    if any(here >= after for here, after in pairwise([*starts, SPACE])):
        raise ConfigurationError("the ranges must be sorted by their start, each before the next")
    # Where others say theirs, one that does not was edited by hand: it might be meant for another of that name.
    where = () if reader is None else (reader[1],) if any(each.namespace for each in spec.ranges) else ("", reader[1])
    spans: dict[str, list[tuple[int, int]]] = {}
    for each, span in zip(spec.ranges, pairwise([*starts, SPACE]), strict=True):
        if each.shard and (reader is None or each.shard != reader[0] or each.namespace in where):
            spans.setdefault(each.shard, []).append(span)
    return Named(by, {shard: HashRanges.of(*theirs) for shard, theirs in spans.items()})


def homes_of(spec: RingAssignmentSpec) -> dict[str, frozenset[str]]:
    """For each shard that is named, in which namespaces; among them an empty one, if some range of it does not say."""
    said: dict[str, frozenset[str]] = {}
    for each in spec.ranges:
        if each.shard:
            said[each.shard] = said.get(each.shard, frozenset()) | {each.namespace}
    return said


def read_spec(assignment: Mapping[str, Any]) -> RingAssignmentSpec:
    """The spec of a RingAssignment that anybody may have written.

    Raises: ConfigurationError when it is none.
    """
    try:
        return msgspec.convert(assignment.get("spec") or {}, RingAssignmentSpec)
    except msgspec.ValidationError as error:
        raise ConfigurationError(str(error)) from error


def named_by(assignment: Mapping[str, Any], by: HashBy, reader: tuple[str, str] | None = None) -> Named:
    """Who a RingAssignment names that anybody may have written, as `parse_assignment` reads it.

    Raises: ConfigurationError when it makes no sense, or hashes something else than the ring, which hashes `by`.
    """
    named = parse_assignment(read_spec(assignment), reader)
    if named.by is not by:
        raise ConfigurationError(f"its hashBy is {named.by.value}, the ring's is {by.value}")
    return named


def render_assignment(named: Named, homes: Mapping[str, str] | None = None) -> RingAssignmentSpec:
    """How it is written: ranges in order, those of one shard that touch joined; `homes`: namespaces of shards' Leases.

    Raises: ValueError when two shards are named for one point.
    """
    owned: Iterable[tuple[int, int, str]] = ((*span, name) for name, ranges in named.shards.items() for span in ranges)
    pieces = sorted([*owned, *((*span, "") for span in named.nobodys)])
    if any(here[1] > after[0] for here, after in pairwise(pieces)):
        raise ValueError("two shards are named for one range")
    homes = homes or {}
    ranges = [AssignedRange(render_bound(start), shard, homes.get(shard, "")) for start, _, shard in pieces]
    return RingAssignmentSpec(named.by.value, ranges)
