"""A claim on a Lease: whose it is to the claimant, and what the claimant writes into it.

All writes (hold, release, grace) but the creation are merge patches of our own
fields, so labels and annotations of others stay.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final, assert_never

from shardsdk.errors import ConfigurationError
from shardsdk.protocol.labels import (
    ENDED_ANNOTATION,
    FENCED_ANNOTATION,
    INSTANCE_ANNOTATION,
    LEASE_CONTROLLERRING_LABEL,
    LEASE_RING_LABEL,
    LEAVING_ANNOTATION,
    MAIN_RESOURCES_ANNOTATION,
    SHARDER_HOLDER,
)
from shardsdk.protocol.leases import (
    MAX_DURATION_SECONDS,
    RELEASED_DURATION_SECONDS,
    Lease,
    LeaseSpec,
    parse_micro_time,
    render_failure,
    render_instance,
    render_main_resources,
    render_micro_time,
)
from shardsdk.protocol.objects import LEASES, GroupResource
from shardsdk.protocol.ranges import (
    HELD_RANGES_ANNOTATION,
    NAMESPACE_COUNTS_ANNOTATION,
    NOWHERE,
    HashRanges,
    render_held,
)

#: What a Lease says of ranges, for one incarnation of its holder.
_OF_RANGES: Final = (HELD_RANGES_ANNOTATION, NAMESPACE_COUNTS_ANNOTATION)


class Relation(Enum):
    """What a Lease is to its claimant."""

    FREE = "nobody holds it, or its last holder left it to its next incarnation"
    OURS = "it says that the claimant holds it"
    OTHER = "it says that somebody else holds it"


@dataclass(frozen=True, slots=True)
class Claim:
    """Who claims which Lease, and what it is to say.

    `instance` tells two processes of one holder name apart; `None`: the name
    alone identifies the process, as in leader election.  `ring` is the ring
    whose shard the claimant is; `None`: it is no shard.  `mains` are the resources that it
    reconciles as main ones, as far as it says.  `leaving`: it is about to leave; `failed`:
    it has failed, as it says when it leaves.  `held` are the ranges of
    hashes in which the claimant may be working; who acquires a lease says nothing of them (`None`) before it knows
    that its ring assigns by ranges.  `counts`
    is what it tells of the namespaces in them, as `render_counts` writes it.  `earlier` are renewTimes that the
    Lease may have from this process's tenures before.  `labels` are what else the Lease is to bear.

    Raises: ConfigurationError for a shard's lease of more than an hour.
    """

    namespace: str
    name: str
    holder: str
    duration_seconds: int
    instance: str | None = None
    ring: str | None = None
    fenced: bool = False
    mains: frozenset[GroupResource] = frozenset()
    leaving: bool = False
    failed: bool = False
    held: HashRanges | None = None
    counts: str = ""
    earlier: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.ring is not None and self.duration_seconds > MAX_DURATION_SECONDS:
            raise ConfigurationError(
                f"lease_duration is {self.duration_seconds} s, for which a deleted Lease would keep its objects from"
                f" all other shards: use {MAX_DURATION_SECONDS} or less"
            )

    def __str__(self) -> str:
        return f"lease {self.namespace}/{self.name}"

    def relation(self, lease: Lease) -> Relation:
        """What `lease` is to this claimant, by what it says; whether it has run out is for a clock to tell."""
        if not lease.holder:
            return Relation.FREE
        if lease.holder != self.holder:
            return Relation.OTHER
        if self.instance is None or lease.instance == self.instance:
            return Relation.OURS
        return Relation.FREE if lease.left else Relation.OTHER

    def sought(self, lease: Lease, written: frozenset[str]) -> Relation:
        """The same to who seeks it, and has sent these renewTimes.

        Where there are no instances another process may have been given the same name: what this one has not written is
        waited for.
        """
        relation = self.relation(lease)
        named = relation is Relation.OURS and self.instance is None
        return Relation.OTHER if named and lease.spec.renew_time not in written | self.earlier else relation

    def check_ring(self, lease: Lease) -> None:
        """See that the lease is not that of a shard of another ring.

        What such a shard had could never be moved: that takes this very Lease.  One that was given back for anybody may
        be used, and so may one whose label is lost.  While the sharder holds it, to move that, it is another's as any
        other, and is waited for: of a ring that was deleted nobody renews it.

        Raises: ConfigurationError.
        """
        if self.ring is None or lease.ring in (None, self.ring):
            return
        if lease.holder == SHARDER_HOLDER or (not lease.holder and released(lease)):
            return
        ours = self.relation(lease) is Relation.OURS
        who = "this process" if ours else describe_holder(lease) or "nobody, but was not given back,"
        raise ConfigurationError(
            f"{self} is held by {who} as a shard of ring {lease.ring!r}, so it cannot be that of a shard of ring"
            f" {self.ring!r}: give each ring's shards names of their own (`--shard {self.ring}-{self.name}`); if the"
            " other shard is gone for good, delete its Lease"
        )


class Others:
    """Until when somebody else's hold on a lease may last, by our own clock, counted from when we saw it change."""

    __slots__ = ("_seen", "until")

    def __init__(self) -> None:
        self.until: float = -math.inf
        #: What another's lease said last.
        self._seen: tuple[LeaseSpec, str | None] | None = None

    def saw(self, lease: Lease, relation: Relation, now: float) -> None:
        """The Lease was read at `now`, and is this to its claimant."""
        seen = renewal_of(lease)
        match relation:
            case Relation.OTHER:
                if seen != self._seen:
                    self._seen, self.until = seen, now + lease.duration_seconds
            case Relation.FREE:
                if released(lease):
                    self.until = -math.inf
                elif self._has_not_seen(lease) and lease.spec.lease_duration_seconds is not None:
                    # Emptied by hand after a renewal that we have not seen: whoever made it may be at work until it
                    # would have run out.
                    self._seen, self.until = seen, now + lease.duration_seconds
            case Relation.OURS:
                self.until = -math.inf
            case unknown:
                assert_never(unknown)

    def _has_not_seen(self, lease: Lease) -> bool:
        """Whether the renewal that a lease tells of is none that was seen."""
        return self._seen is None or self._seen[0].renew_time != lease.spec.renew_time


class HeldRanges:
    """What a keeper writes besides holding its lease; `number` is of `ranges`, and grows whenever they change.

    `confirmed` is the number of which a write was answered that said just that.  A write
    without an answer confirms nothing, whether or not it was executed.
    """

    __slots__ = ("_sent", "confirmed", "number", "ranges")

    def __init__(self) -> None:
        self.ranges: HashRanges = NOWHERE
        self.number: int = 0
        self.confirmed: int = 0
        self._sent: tuple[int, HashRanges] = (0, NOWHERE)

    def change(self, ranges: HashRanges, number: int) -> None:
        """Hold these from the next write on.  Raises: ValueError for a number that is not newer."""
        if number <= self.number:
            raise ValueError(f"ranges are numbered {number} after {self.number}: the numbers must grow")
        self.ranges, self.number = ranges, number

    def sent(self) -> None:
        """A write is made that says so."""
        self._sent = self.number, self.ranges

    def answered(self, lease: Lease) -> None:
        """That write was confirmed, and has made `lease`."""
        number, ranges = self._sent
        if (lease.held_ranges or NOWHERE) == ranges:
            self.confirmed = number

    @property
    def due(self) -> bool:
        """Whether the last write that was made says something older."""
        return self._sent[0] != self.number


def renewal_of(lease: Lease) -> tuple[LeaseSpec, str | None]:
    """What of a Lease has to change so that whoever waits for it counts anew; labels and ranges do not."""
    return lease.spec, lease.instance


def released(lease: Lease) -> bool:
    """Whether a lease was left on purpose, and not emptied by somebody's hand."""
    if lease.holder:
        return lease.left
    return lease.spec.lease_duration_seconds == RELEASED_DURATION_SECONDS


def describe_holder(lease: Lease) -> str:
    """Who holds the lease, for people."""
    return f"{lease.holder} (instance {lease.instance})" if lease.instance else lease.holder


def describe_other(claim: Claim, lease: Lease | None) -> str:
    """Whom the claimant waits for, for people."""
    if lease is None or not lease.holder:
        return "somebody whose lease is gone"
    of_its_name = ", another process of this identity or an earlier one" if lease.holder == claim.holder else ""
    return describe_holder(lease) + (of_its_name if claim.instance is None else "")


def describe_taker(claim: Claim, lease: Lease, written: Iterable[str]) -> str:
    """Who has written a lease that was the claimant's, by what it says: for people, after the claim.

    `written` are the claimant's own renewTimes.
    """
    if lease.holder != claim.holder:
        return f"is held by {describe_holder(lease)}"
    if _is_earlier(lease, written):
        return (
            f"was set back to an older copy of itself (renewTime {lease.spec.renew_time}), as by a restore: leave"
            f" Leases out of restores; or another process is {describe_holder(lease)} too, and its clock is behind"
        )
    if lease.instance:
        return f"is renewed by another process that is {describe_holder(lease)} too"
    return (
        f"was written by somebody else (renewTime {lease.spec.renew_time}): another process named {claim.holder}, or an"
        " edit by hand"
    )


def _is_earlier(lease: Lease, written: Iterable[str]) -> bool:
    """Whether a lease was renewed before all of these, by what it says."""
    renewed, ours = parse_micro_time(lease.spec.renew_time), [parse_micro_time(each) for each in written]
    return renewed is not None and bool(ours) and all(each is not None and renewed < each for each in ours)


def is_overdue(lease: Lease, now: datetime) -> bool:
    """Whether its holder was to renew it before `now`, by this machine's clock: for people, no proof of anything."""
    renewed = parse_micro_time(lease.spec.renew_time)
    return renewed is None or (now - renewed).total_seconds() > lease.duration_seconds


def render_create(claim: Claim, now: datetime) -> dict[str, Any]:
    """A Lease that is held from its first moment."""
    metadata: dict[str, Any] = {"name": claim.name, "namespace": claim.namespace}
    if labels := {key: value for key, value in _labels(claim).items() if value is not None}:
        metadata["labels"] = labels
    now_text = render_micro_time(now)
    if annotations := {key: value for key, value in _annotations(claim, now_text).items() if value is not None}:
        metadata["annotations"] = annotations
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": metadata,
        "spec": {
            "holderIdentity": claim.holder,
            "leaseDurationSeconds": claim.duration_seconds,
            "acquireTime": now_text,
            "renewTime": now_text,
            "leaseTransitions": 0,
        },
    }


def render_hold(claim: Claim, lease: Lease, now: datetime, written: Container[str]) -> dict[str, Any]:
    """A merge patch that acquires or renews `lease`, if it is still as we know it; `written` are our own renewTimes.

    Source for acquireTime and leaseTransitions: client-go leaderelection, tryAcquireOrRenew (both
    change only with the holder's name).  But who goes on with what another process of its name has
    written acquires it as well: nothing else would show that the other one has crashed.  And what that one has left
    is a transition: nothing else would show that it has not, to who has missed its last write.
    """
    now_text = render_micro_time(now)
    spec: dict[str, Any] = {
        "holderIdentity": claim.holder,
        "leaseDurationSeconds": claim.duration_seconds,
        "renewTime": now_text,
    }
    if lease.holder != claim.holder or (claim.instance is not None and released(lease)):
        spec["acquireTime"] = now_text
        spec["leaseTransitions"] = lease.next_transition
    elif parse_micro_time(lease.spec.acquire_time) is None or (
        claim.instance is not None and lease.spec.renew_time not in written
    ):
        spec["acquireTime"] = now_text
    metadata = _unchanged(lease)
    if labels := {key: value for key, value in _labels(claim).items() if lease.metadata.label(key) != value}:
        metadata["labels"] = labels
    present = lease.metadata.annotations or {}
    ours = _annotations(claim, now_text)
    if annotations := {key: value for key, value in ours.items() if present.get(key) != value}:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec}


def render_release(claim: Claim, lease: Lease, now: datetime) -> dict[str, Any]:
    """A merge patch that gives the lease up: it may be taken at once.  Our annotations go with us."""
    now_text = render_micro_time(now)
    spec = {
        "holderIdentity": "",
        "leaseDurationSeconds": RELEASED_DURATION_SECONDS,
        "acquireTime": now_text,
        "renewTime": now_text,
    }
    metadata = _unchanged(lease)
    if claim.instance is not None:
        gone = _taken_off(lease, MAIN_RESOURCES_ANNOTATION, LEAVING_ANNOTATION, *_OF_RANGES)
        said = {ENDED_ANNOTATION: render_failure(now_text)} if claim.failed else {}
        metadata["annotations"] = {INSTANCE_ANNOTATION: None, FENCED_ANNOTATION: None, **gone, **said}
    return {"metadata": metadata, "spec": spec}


def render_grace(claim: Claim, lease: Lease, now: datetime, grace_seconds: int) -> dict[str, Any]:
    """A merge patch that leaves the lease to the next incarnation of its holder for `grace_seconds`.

    What this one reconciles as main objects is still said: whoever moved their owners would do so for good, and the
    next one has them as main, too, unless it is another program.
    """
    now_text = render_micro_time(now)
    spec = {"leaseDurationSeconds": grace_seconds, "renewTime": now_text}
    annotations = _annotations(claim, now_text) | {
        INSTANCE_ANNOTATION: render_instance("", now_text),
        LEAVING_ANNOTATION: None,
        ENDED_ANNOTATION: render_failure(now_text) if claim.failed else None,
    }
    for each in _OF_RANGES:
        annotations.pop(each, None)
    annotations |= _taken_off(lease, *_OF_RANGES)
    return {"metadata": {**_unchanged(lease), "annotations": annotations}, "spec": spec}


def _unchanged(lease: Lease) -> dict[str, Any]:
    return {"resourceVersion": lease.metadata.resource_version}


def _labels(claim: Claim) -> dict[str, str | None]:
    """The labels that the Lease must bear; `None`: absent."""
    if claim.ring is None:
        return dict(claim.labels)
    # The label of another library is no longer true: this shard works by the labels of a ClusterRing.
    return {LEASE_RING_LABEL: claim.ring, LEASE_CONTROLLERRING_LABEL: None, **claim.labels}


def _annotations(claim: Claim, renew_time: str) -> dict[str, str | None]:
    """Our annotations as they must be beside this renewTime; `None`: absent.  Who is no shard has none."""
    if claim.instance is None:
        return {}
    return {
        INSTANCE_ANNOTATION: render_instance(claim.instance, renew_time),
        FENCED_ANNOTATION: renew_time if claim.fenced else None,
        MAIN_RESOURCES_ANNOTATION: render_main_resources(claim.mains, renew_time) if claim.mains else None,
        LEAVING_ANNOTATION: renew_time if claim.leaving else None,
        ENDED_ANNOTATION: None,
        HELD_RANGES_ANNOTATION: None if claim.held is None else render_held(claim.held, renew_time),
        NAMESPACE_COUNTS_ANNOTATION: claim.counts or None,
    }


def _taken_off(lease: Lease, *annotations: str) -> dict[str, str | None]:
    """What takes these off `lease`, as far as it has them: whoever leaves it works on nothing, and counts nothing."""
    return {each: None for each in annotations if each in (lease.metadata.annotations or {})}
