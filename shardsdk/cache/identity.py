"""Which objects a shard works on: those that name it, or those whose hash lies in its ranges (`shardsdk.ranges`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shardsdk.cache.objects import Request, metadata_of
from shardsdk.kube.selectors import Selector, absent, equals, join, not_in
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import Resource
from shardsdk.protocol.ranges import HashBy
from shardsdk.protocol.verdict import Verdict, judge

if TYPE_CHECKING:
    from shardsdk.protocol.namespaces import CoveredNamespaces


class Identity(Protocol):
    """A shard of a ring, and how it knows its objects."""

    @property
    def ring(self) -> RingLabels:
        """Its ring."""
        ...

    @property
    def shard(self) -> str:
        """Its name."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """What makes a child this shard's; empty where labels mean nothing."""
        ...

    @property
    def hash_by(self) -> HashBy | None:
        """What of an object is hashed; `None`: objects are known by their labels."""
        ...

    @property
    def covered(self) -> CoveredNamespaces | None:
        """The namespaces whose objects it may have; `None`: labels tell."""
        ...

    def judge(self, thing: object) -> Verdict:
        """What this shard does with an object."""
        ...

    def selector(self, own: Selector | None = None) -> Selector:
        """This shard's objects, of those that `own` selects, as far as labels tell."""
        ...

    def unassigned(self, own: Selector | None = None, *, or_others: bool = False) -> Selector | None:
        """What no shard has yet, of what `own` selects, or another one has; `None`: labels do not tell."""
        ...


@dataclass(frozen=True, slots=True)
class ShardIdentity:
    """The shard called `shard` of a ring that assigns objects by labels."""

    ring: RingLabels
    shard: str

    @property
    def labels(self) -> Mapping[str, str]:
        """What makes a child this shard's."""
        return {self.ring.shard: self.shard}

    @property
    def hash_by(self) -> HashBy | None:
        """Nothing is hashed."""
        return None

    @property
    def covered(self) -> None:
        """Labels tell."""
        return

    def judge(self, thing: object) -> Verdict:
        """What this shard does with an object."""
        return judge(metadata_of(thing).labels, self.ring, self.shard)

    def selector(self, own: Selector | None = None) -> Selector:
        """This shard's objects, of those that `own` selects."""
        mine = equals(self.ring.shard, self.shard)
        return Selector(mine) if own is None else Selector(join(mine, own.labels), own.fields)

    def unassigned(self, own: Selector | None = None, *, or_others: bool = False) -> Selector:
        """What no shard has yet, of what `own` selects, `or_others` have."""
        nobodys = not_in(self.ring.shard, {self.shard}) if or_others else absent(self.ring.shard)
        return Selector(nobodys) if own is None else Selector(join(nobodys, own.labels), own.fields)


def facts_of(shard: Identity, resource: Resource, request: Request) -> dict[str, object]:
    """What a log line about one of a shard's objects says besides its message."""
    return {
        "ring": shard.ring.ring,
        "shard": shard.shard,
        "resource": str(resource.group_resource),
        "namespace": request.namespace,
        "object": request.name,
    }
