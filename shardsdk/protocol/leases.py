"""The Lease as sharder and shards write and read it.

Does: decode leniently (every field may be missing), write MicroTime exactly.
Refuses: to compare another machine's clock with ours; the times are for people.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from shardsdk.protocol.labels import FENCED_ANNOTATION, INSTANCE_ANNOTATION, LEASE_RING_LABEL
from shardsdk.protocol.objects import ObjectMeta


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a coordination.k8s.io/v1 Lease; times stay the strings they are."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    """A Lease of a shard, of the sharder's leader or of anyone else."""

    metadata: ObjectMeta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)

    @property
    def holder(self) -> str:
        """Who holds the lease; empty when nobody does."""
        return self.spec.holder_identity or ""

    @property
    def held_by_shard(self) -> bool:
        """Whether the lease says that its own shard holds it (shard name = lease name)."""
        return self.holder != "" and self.holder == self.metadata.name

    @property
    def ring(self) -> str | None:
        """The ring whose shard this is; `None` for a lease that is no shard's."""
        return self.metadata.label(LEASE_RING_LABEL)

    @property
    def instance(self) -> str | None:
        """The process that wrote the lease; `None` when its author does not say."""
        return (self.metadata.annotations or {}).get(INSTANCE_ANNOTATION)

    @property
    def fenced(self) -> bool:
        """Whether the shard promises to refuse writes once its lease has run out."""
        return (self.metadata.annotations or {}).get(FENCED_ANNOTATION) == "true"


def render_micro_time(moment: datetime) -> str:
    """Write `moment` (aware) as MicroTime: UTC with exactly six fractional digits.

    `isoformat()` alone drops the fraction when it is zero, and the API server
    then refuses the Lease.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_micro_time(text: str | None) -> datetime | None:
    """Read a MicroTime; `None` for a missing or malformed one (never an error)."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
