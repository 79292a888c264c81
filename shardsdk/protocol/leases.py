"""The Lease as sharder and shards write and read it.

Every field may be missing; MicroTime is written exactly.  The times are for people:
they are another machine's, and are never compared with our clock.

An annotation that speaks for one process repeats the renewTime of the write that
it came with.  Peers that do not know it (client-go) rewrite the spec and leave the
annotations as they are; then the two differ, and the annotation says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import msgspec

from shardsdk.protocol.labels import (
    ENDED_ANNOTATION,
    FENCED_ANNOTATION,
    INSTANCE_ANNOTATION,
    LEASE_CONTROLLERRING_LABEL,
    LEASE_RING_LABEL,
    LEASE_STATE_LABEL,
    LEAVING_ANNOTATION,
    MAIN_RESOURCES_ANNOTATION,
    PLACEHOLDER_ANNOTATION,
)
from shardsdk.protocol.objects import GroupResource, ObjectMeta
from shardsdk.protocol.ranges import (
    HELD_RANGES_ANNOTATION,
    NAMESPACE_COUNTS_ANNOTATION,
    NOWHERE,
    HashRanges,
    parse_held,
)

#: The share of a lease that is left unused at its end.  It covers the time
#: between the last look at the clock and the API server's receiving a write, and
#: clocks that run at different rates: a holder's may be slower than that of
#: whoever waits for the lease by this share of the other's.
#: Source: chrony.conf, maxslewrate: a clock that is set right runs up to 8.333 % slower
#: or faster meanwhile, the monotonic one too; quartz alone differs by 0.01 %.  One that
#: is being held back goes at 0.9167, one that catches up at 1.0833: 15.4 % slower.
MARGIN_SHARE: Final = 0.16
#: Duration of a held lease that does not say a usable one.
#: Source: client-go's default LeaseDuration, which every known peer uses.
DEFAULT_DURATION_SECONDS: Final = 15
#: The longest duration that a shard may ask for: a lease that is gone keeps its objects for so long, and while it is
#: there, those of shards of which nothing is known.  Source: wire contract.
MAX_DURATION_SECONDS: Final = 3600
#: Main resources of which a Lease is heard; a program has some dozens at most, and whoever may write Leases could name
#: tens of thousands in each.  Source: wire contract.
MAX_MAIN_RESOURCES: Final = 256
#: So many numbers of transitions there are.  Source: k8s.io/api, coordination/v1, an int32 that is not negative.
_TRANSITIONS: Final = 2**31
#: What a release writes as the duration; any other way of emptying a lease is no release.
#: Source: client-go leaderelection, release.
RELEASED_DURATION_SECONDS: Final = 1
_FAILED: Final = "failed@"


def margin_seconds(lease_duration: float) -> float:
    """How long before a lease of this duration can be taken its holder must have stopped writing."""
    return lease_duration * MARGIN_SHARE


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a coordination.k8s.io/v1 Lease; times stay the strings they are."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel", dict=True):
    """A Lease of a shard, of the sharder's leader or of anyone else."""

    metadata: ObjectMeta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)

    @property
    def holder(self) -> str:
        """Who holds the lease; empty when nobody does."""
        return self.spec.holder_identity or ""

    @property
    def duration_seconds(self) -> int:
        """How long it lasts after each renewal."""
        duration = self.spec.lease_duration_seconds or 0
        return duration if duration > 0 else DEFAULT_DURATION_SECONDS

    @property
    def held_by_shard(self) -> bool:
        """Whether the lease says that its own shard holds it (shard name = lease name)."""
        holder = self.spec.holder_identity
        return bool(holder) and holder == self.metadata.name

    @property
    def ring(self) -> str | None:
        """The ring whose shard this is; `None` for a lease that is no shard's."""
        return self.metadata.label(LEASE_RING_LABEL)

    @property
    def overlong(self) -> bool:
        """Whether its shard holds it for longer than a shard may."""
        return self.held_by_shard and self.duration_seconds > MAX_DURATION_SECONDS

    @property
    def mixed(self) -> bool:
        """Whether libraries wrote it that work by different labels: nobody can tell which of them its shard has."""
        return self.ring is not None and self.metadata.label(LEASE_CONTROLLERRING_LABEL) is not None

    @cached_property
    def instance(self) -> str | None:
        """The process that wrote the lease; `None` when its author does not say, empty: none that is at work."""
        instance, mark, said_at = (self.metadata.annotations or {}).get(INSTANCE_ANNOTATION, "").rpartition("@")
        return instance if mark and self._written_at(said_at) else None

    @property
    def left(self) -> bool:
        """Whether its shard has ended and left it to the next process of its name, with a restart grace."""
        return self.held_by_shard and self.instance == ""

    @cached_property
    def main_resources(self) -> frozenset[GroupResource]:
        """Which resources its holder reconciles as main ones; empty, too, where nobody says.

        One that has left it to the next process of its name says so still: most of these do the same.
        """
        named, mark, said_at = (self.metadata.annotations or {}).get(MAIN_RESOURCES_ANNOTATION, "").rpartition("@")
        if not mark or not self._written_at(said_at):
            return frozenset()
        parts = (each.partition(".") for each in named.split(",", MAX_MAIN_RESOURCES)[:MAX_MAIN_RESOURCES])
        return frozenset(GroupResource(group, plural) for plural, _, group in parts if plural)

    @property
    def held_ranges(self) -> HashRanges | None:
        """The ranges in which its holder may be working; `None`: who wrote it last does not say."""
        said = self._said_of_ranges
        return None if said is None or not (said[1] is None or self._written_at(said[1])) else said[0]

    @property
    def left_ranges(self) -> HashRanges:
        """What another process said that it holds, whose annotation is still there.

        It may be at work there for one duration from that renewal on.
        """
        said = self._said_of_ranges
        return NOWHERE if said is None or self.held_ranges is not None else said[0]

    @cached_property
    def _said_of_ranges(self) -> tuple[HashRanges, str | None] | None:
        text = (self.metadata.annotations or {}).get(HELD_RANGES_ANNOTATION)
        return None if text is None else parse_held(text)

    @property
    def next_transition(self) -> int:
        """What a write by which it changes hands counts as `leaseTransitions`: another number, also after the last."""
        return ((self.spec.lease_transitions or 0) + 1) % _TRANSITIONS

    @property
    def fenced(self) -> bool:
        """Whether its author promises to refuse writes once the lease has run out."""
        promised_at = (self.metadata.annotations or {}).get(FENCED_ANNOTATION)
        return promised_at is not None and self._written_at(promised_at)

    @property
    def leaving(self) -> bool:
        """Whether its holder is about to leave: it ends what runs, acknowledges drains, and begins nothing new."""
        said_at = (self.metadata.annotations or {}).get(LEAVING_ANNOTATION)
        return said_at is not None and self._written_at(said_at)

    @property
    def ended_in_failure(self) -> bool:
        """Whether who left it says that it did so because of a failure, and nobody has held it since."""
        ended = (self.metadata.annotations or {}).get(ENDED_ANNOTATION)
        return ended is not None and ended.startswith(_FAILED) and self._written_at(ended.removeprefix(_FAILED))

    @property
    def placeholder(self) -> bool:
        """Whether the sharder made it for a name that had no Lease, and no shard has held it since."""
        made_at = (self.metadata.annotations or {}).get(PLACEHOLDER_ANNOTATION)
        return made_at is not None and made_at == str(self.spec.lease_transitions or 0)

    def _written_at(self, said_at: str) -> bool:
        """Whether this is the renewTime, which API servers store in UTC whatever offset it was sent with."""
        renewed = self.spec.renew_time
        return said_at == renewed or (
            (moment := parse_micro_time(renewed)) is not None and moment == parse_micro_time(said_at)
        )


#: What of a Lease's labels and annotations somebody reads.
_READ_LABELS: Final = (LEASE_RING_LABEL, LEASE_CONTROLLERRING_LABEL, LEASE_STATE_LABEL)
_READ_ANNOTATIONS: Final = (
    INSTANCE_ANNOTATION, FENCED_ANNOTATION, LEAVING_ANNOTATION, ENDED_ANNOTATION, MAIN_RESOURCES_ANNOTATION,
    PLACEHOLDER_ANNOTATION, HELD_RANGES_ANNOTATION, NAMESPACE_COUNTS_ANNOTATION,
)  # fmt: skip


def slim_lease(lease: Lease) -> Lease:
    """The same with no more metadata than somebody reads, for whoever keeps many.

    How much it says besides is up to whoever makes it: of a megabyte of labels, ten megabytes would be kept.
    """
    meta = lease.metadata
    slim = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=_only(meta.labels, _READ_LABELS),
        annotations=_only(meta.annotations, _READ_ANNOTATIONS),
    )
    return Lease(slim, lease.spec)


def _only(there: Mapping[str, str] | None, names: Iterable[str]) -> dict[str, str] | None:
    return None if there is None else {name: there[name] for name in names if name in there}


def render_instance(instance: str, renew_time: str) -> str:
    """The value of the instance annotation, in a write that sets this renewTime.

    >>> render_instance("uid", "2030-01-01T00:00:00.000000Z")
    'uid@2030-01-01T00:00:00.000000Z'
    """
    return f"{instance}@{renew_time}"


def render_failure(renew_time: str) -> str:
    """The value of the annotation that says that its process has failed, in a write that leaves the lease.

    >>> render_failure("2030-01-01T00:00:00.000000Z")
    'failed@2030-01-01T00:00:00.000000Z'
    """
    return f"{_FAILED}{renew_time}"


def render_main_resources(mains: Iterable[GroupResource], renew_time: str) -> str:
    """The value of the annotation that says what is reconciled as main objects, in a write that sets this renewTime.

    >>> mains = [GroupResource("apps", "deployments"), GroupResource("", "secrets")]
    >>> render_main_resources(mains, "2030-01-01T00:00:00.000000Z")
    'deployments.apps,secrets@2030-01-01T00:00:00.000000Z'
    """
    return f"{','.join(sorted(map(str, mains)))}@{renew_time}"


def render_micro_time(moment: datetime) -> str:
    """Write `moment` (aware) as MicroTime: UTC with exactly six fractional digits.

    `isoformat()` alone drops the fraction when it is zero, and the API server
    then refuses the Lease.
    """
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def parse_micro_time(text: str | None) -> datetime | None:
    """Read a MicroTime; `None` for a missing or malformed one (never an error)."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
