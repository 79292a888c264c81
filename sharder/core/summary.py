"""What a way of assigning objects tells of a ring, as data: for its status, for metrics and for people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sharder.core.conditions import ConditionReason
from sharder.core.problems import some
from sharder.core.rights import rights_to_grant
from sharder.core.ringspec import LetGo
from shardsdk.errors import Forbidden, NotFound, ShardingError
from shardsdk.protocol.names import cut, shown_name
from shardsdk.protocol.objects import GroupResource
from shardsdk.protocol.ranges import RING_ASSIGNMENTS

#: What of the API server's answer is repeated; the rest of the message has to fit an Event, too.
MAX_ANSWER_LENGTH: Final = 400
#: Who reads resources besides the informers: the passes over everything, and the watches that all rings share.
RESYNC: Final = "resync"
SHARED: Final = "shared"
#: Resources that cannot be read, each with what reads it (the kind of an informer, `RESYNC` or `SHARED`) and why.
Failures = tuple[tuple[GroupResource, str, ShardingError], ...]


def shortened(answer: str) -> str:
    """An answer in what is repeated of it: it names the object at its beginning, twice, and at its end says why."""
    return cut(answer, MAX_ANSWER_LENGTH, end=5 * MAX_ANSWER_LENGTH // 8, mark=" [...] ")


class Pending(StrEnum):
    """What an object is that has to be placed, or waited for; each informer shows objects of one kind."""

    UNASSIGNED = "unassigned"
    STRANDED = "stranded"
    DRAINING = "draining"


class OldestDrain(msgspec.Struct, frozen=True):
    """The drain that has waited longest for its acknowledgement; a range of hashes is its RingAssignment's, by name."""

    resource: GroupResource
    namespace: str
    name: str
    shard: str
    seconds: float
    removed: bool = False

    def __str__(self) -> str:
        if self.resource == RING_ASSIGNMENTS.group_resource:
            return f"the range {self.name} on shard {self.shard}"
        return f"{self.resource} {self.namespace}/{shown_name(self.name)} on shard {self.shard}"


@dataclass(frozen=True, slots=True)
class RangesSummary:
    """Ranges on their way (`moving` says in words which), and how many times its part the fullest shard has.

    `unheld`: those of them that no shard holds.  `unfit`: shards that are named for nothing, since
    they know labels alone; `idle`: those that take nothing of what they are named for.  `dropped`: fields
    that the RingAssignment lacks, since its definition is an older one.  `contested`: that somebody
    changes it back again and again, in words.  `overlaps`: ranges that several shards hold at once;
    `overlapping`: that they do, or that what some hold cannot be read, as a reason and in words.
    """

    in_transit: int = 0
    unheld: int = 0
    moving: str | None = None
    fullest: float = 0.0
    unfit: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    contested: str | None = None
    overlaps: int = 0
    overlapping: tuple[ConditionReason, str] | None = None


class Summary(msgspec.Struct, frozen=True):
    """What a ring waits for; `counts` per kind of informer and resource.

    `removed_clean`: resources of which no shard has any more what it had by the ring as it was.
    `leaving`: objects of resources that the ring lists no longer and that have its
    labels still; -1 while they have not been counted.  `joining`: objects of resources that were
    main and are controlled now, and that are not with their owners yet; likewise.  `at_rest`: none of this changes
    by itself, or as time goes by.  `trouble`: what keeps all of it from going on, in words.
    `overdue_before`: reason and message by which drains were told of before this leader, which
    does not know of any yet.  `misplaced`: the last resync has found objects that are not where
    they should be.  `resynced`: one has ended.  `clean_since`: when one has found nothing any more, after what there
    was to do for it.  `refused`: the API server refuses to change objects that wait.
    `ranges`: of a ring by ranges, once that is known.  `taken`: why shards that are gone keep
    their objects, whose Lease is somebody else's by now; `not_acquired`: shards like that whose
    Lease the API server does not let us acquire, and why; `abandoned`: shards whose Lease ran out
    while no other is ready to take over, and which Lease.  `shards_before`: reason and message by
    which shards like that were told of before this leader, which does not know of any yet.
    `remarks`: what else is to be known of Leases, in words with what to do.
    `waiting`: what is new on the list and waits for rights; `settled` and the rest are without it.
    `watches_beside`: watches beside one for each resource and kind, where namespaces are watched one by one.
    `lost_positions`: how often an API server did not know where a watch was, as of a type that was made anew.
    """

    settled: bool = False
    counts: dict[tuple[Pending, GroupResource], int] = msgspec.field(default_factory=dict)
    oldest_drain: OldestDrain | None = None
    failures: Failures = ()
    removed_clean: frozenset[LetGo] = frozenset()
    leaving: dict[GroupResource, int] = msgspec.field(default_factory=dict)
    at_rest: bool = False
    trouble: str | None = None
    overdue_before: tuple[ConditionReason, str] | None = None
    misplaced: bool = False
    resynced: bool = False
    clean_since: float | None = None
    refused: bool = False
    ranges: RangesSummary | None = None
    taken: tuple[str, ...] = ()
    not_acquired: tuple[tuple[str, str], ...] = ()
    abandoned: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    shards_before: tuple[ConditionReason, str] | None = None
    joining: dict[GroupResource, int] = msgspec.field(default_factory=dict)
    waiting: tuple[GroupResource, ...] = ()
    watches_beside: int = 0
    lost_positions: int = 0

    def count(self, kind: Pending) -> int:
        """Objects of one kind over all resources."""
        return sum(number for (each, _), number in self.counts.items() if each is kind)

    def stuck_drain(self, alarm_seconds: float) -> OldestDrain | None:
        """The oldest drain, if it has waited for too long."""
        oldest = self.oldest_drain
        return oldest if oldest is not None and oldest.seconds >= alarm_seconds else None

    @property
    def forbidden(self) -> bool:
        """Whether what reads a resource lacks a right."""
        return any(isinstance(error, Forbidden) for _, _, error in self.failures)

    @property
    def not_served(self) -> bool:
        """Whether a type that was served once is so no longer, or in another version."""
        return any(isinstance(error, NotFound) for _, _, error in self.failures)

    def outline(self, alarm_seconds: float) -> tuple[Any, ...]:
        """What the ring's status is made from: with the same outline it says the same."""
        stuck = self.stuck_drain(alarm_seconds)
        failures = tuple((resource, reader, type(error)) for resource, reader, error in self.failures)
        of_drain = (stuck.namespace, stuck.name) if stuck is not None else None
        same = replace(self, oldest_drain=None, failures=(), at_rest=False, clean_since=None, lost_positions=0)
        return same, of_drain, failures


def render_left(leaving: Iterable[tuple[GroupResource, int]], joining: Iterable[tuple[GroupResource, int]]) -> str:
    """What shards have still by the ring as it was, in words; empty: nothing."""
    said = {
        "the ring lists no longer, and has labels on": leaving,
        "the ring lists as controlled now (owners stay where they are until all of it is with them, each has a shard,"
        " and none reconciles it as main, or did when it went a few minutes ago), and shards have as main objects where"
        " their owners are not": joining,
    }
    counted = {
        words: some(f"{number} {name}" if number >= 0 else str(name) for name, number in left)
        for words, left in said.items()
    }
    return "; ".join(f"{words}: {which}" for words, which in counted.items() if which)


@dataclass(frozen=True, slots=True)
class Refused:
    """News of refused patches: the first object, what was `wanted` of it, the answer, how many `others`.

    `failing`: it is nobody's decision; what has to answer first does not.
    """

    resource: GroupResource
    namespace: str
    name: str
    wanted: str
    answer: str
    others: int
    failing: bool = False

    def render(self) -> str:
        """The whole story in a sentence or two, with the remedy."""
        name = shown_name(self.name)
        where = f"{self.namespace}/{name}" if self.namespace else name
        others = f" ({self.others} more objects likewise)" if self.others else ""
        remedy = (
            "Let the admission policy, webhook or validation that refuses it accept the sharder's changes of the"
            " shard and drain labels, or mend the object (make it smaller, if it is too large)"
        )
        rights = " and ".join(map(str, rights_to_grant((self.resource,))))
        if self.failing:
            remedy = (
                f"It has failed for a while. Have whatever the answer names work again, as an admission webhook may be,"
                f" or the conversion webhook of {self.resource}; if it names none, look at the API server's log"
            )
        elif rights:
            # The API server itself refuses it, as a rule.
            remedy = (
                "Where no policy or webhook refuses it, grant the sharder every right that the object grants, or"
                f" {rights} (`sharder rbac RING` prints that rule, with what it costs)"
            )
        return (
            f"{self.resource} {where} cannot be {self.wanted}{others}: {shortened(self.answer)}."
            f" {remedy}; it is tried again by itself"
        )
