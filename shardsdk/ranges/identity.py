"""Which objects are a shard's where its ring assigns ranges of hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from shardsdk.cache.objects import metadata_of
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.namespaces import CoveredNamespaces
from shardsdk.protocol.ranges import HashBy, HashRanges
from shardsdk.protocol.verdict import Verdict

EVERY_NAMESPACE: Final = CoveredNamespaces(without=frozenset())


class Held(Protocol):
    """What the shard has of the hash space this moment (`RangeHolder`)."""

    @property
    def working(self) -> HashRanges:
        """Where a reconcile may begin."""
        ...

    @property
    def ending(self) -> HashRanges:
        """Where none may begin any more, and some may still run."""
        ...


class RangeIdentity:
    """The shard called `shard` of a ring that assigns ranges of hashes of namespaces or uids."""

    def __init__(
        self, ring: RingLabels, shard: str, by: HashBy, namespaces: CoveredNamespaces = EVERY_NAMESPACE
    ) -> None:
        self.ring: RingLabels = ring
        self.shard: str = shard
        self.hash_by: HashBy = by
        self.covered: CoveredNamespaces = namespaces
        #: Asked each time; `None`: nothing is held yet.
        self.held: Held | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        """None: where an object lies says whose it is."""
        return {}

    def judge(self, thing: object) -> Verdict:
        """What this shard does with an object."""
        if self.held is None:
            return Verdict.IGNORE
        metadata = metadata_of(thing)
        if not self.covered.covers(metadata.namespace):
            return Verdict.IGNORE
        point = self.hash_by.point(metadata)
        if point in self.held.working:
            return Verdict.RECONCILE
        return Verdict.ACKNOWLEDGE if point in self.held.ending else Verdict.IGNORE

    def selector(self, own: Selector | None = None) -> Selector:
        """What `own` selects: caches ask for the ranges by themselves."""
        return own or Selector()

    def unassigned(self, own: Selector | None = None, *, or_others: bool = False) -> Selector | None:
        """Labels do not tell."""
        return None
