"""Whose an object is: by its shard label, or by its hash, the ring's RingAssignment and the shards' Leases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from sharder.core.hashring import HashRing
from sharder.core.keys import main_key
from shardsdk.errors import ConfigurationError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.kube.selectors import Selector, equals
from shardsdk.protocol.labels import LEASE_RING_LABEL, RingLabels
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES, ObjectMeta
from shardsdk.protocol.ranges import (
    NOWHERE,
    RING_ASSIGNMENTS,
    SPACE,
    HashBy,
    HashRanges,
    Named,
    RingAssignment,
    parse_assignment,
    point_of,
    render_bound,
)

#: What is counted as written in a handover.
OBJECTS, ASSIGNMENT, LEASE = "objects", "the RingAssignment", "leases, to say what is held"

#: Characters of a hash that are shown.
_DIGITS = len("0x000000")


class Data(msgspec.Struct, frozen=True, rename="camel"):
    """A Secret or ConfigMap."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class Owners(Protocol):
    """Tells owners of a ring's objects, from what anybody can read."""

    @property
    def reflectors(self) -> Sequence[Reflector[Any]]:
        """What it watches besides the objects; run them."""
        ...

    @property
    def counts(self) -> Sequence[str]:
        """What a handover may write: the keys of `writes` that mean something here."""
        ...

    def holders_of(self, thing: Data) -> Sequence[str]:
        """The shards that may be working on an object, whether they live or not; more than one is a mistake."""
        ...

    def leaving(self, thing: Data) -> str:
        """What shows that the object is changing hands; empty: it stays."""
        ...

    def is_to_move(self, secret: Data, living: Collection[str]) -> bool:
        """Whether it will change hands although nothing shows that yet, with no other shards than these."""
        ...

    def misplaced(self, thing: Data) -> str:
        """What the object has that it should not have here; empty: nothing."""
        ...

    def describe(self, shard: str, namespaces: Sequence[str]) -> str:
        """Where a shard's objects lie, of these namespaces, for people; empty where no hash is shown."""
        ...


class ByLabels:
    """An object is the shard's that its label names."""

    reflectors: Sequence[Reflector[Any]] = ()
    counts: Sequence[str] = (OBJECTS,)

    def __init__(self, labels: RingLabels) -> None:
        self._labels = labels

    def holders_of(self, thing: Data) -> Sequence[str]:
        """The one of the label."""
        shard = thing.metadata.label(self._labels.shard)
        return () if shard is None else (shard,)

    def leaving(self, thing: Data) -> str:
        """The label by which a shard is asked for it."""
        return "is draining" if thing.metadata.label(self._labels.drain) is not None else ""

    def is_to_move(self, secret: Data, living: Collection[str]) -> bool:
        """Its place on the ring is another: it was placed by somebody who knew of other shards."""
        meta = secret.metadata
        place = _ring(frozenset(living)).owner(main_key("", "Secret", meta.namespace, meta.name))
        return self.holders_of(secret) != (place,)

    def misplaced(self, thing: Data) -> str:
        """Labels are what this is about."""
        return ""

    def describe(self, shard: str, namespaces: Sequence[str]) -> str:
        """Nobody sees the hash of a ring by labels."""
        return ""


@lru_cache(maxsize=8)
def _ring(shards: frozenset[str]) -> HashRing:
    return HashRing(shards)


class ByRanges:
    """An object is the shard's whose Lease says that it holds the hash of the object's namespace.

    `on_change` is called when that may have changed, for whatever objects; `writes` counts who wrote what for it.
    """

    counts: Sequence[str] = (OBJECTS, ASSIGNMENT, LEASE)

    def __init__(
        self, api: Api, ring: str, namespace: str, clock: Clock, writes: Counter[str], on_change: Callable[[], None]
    ) -> None:
        self.named = Named(HashBy.NAMESPACE, {})
        self.held: dict[str, HashRanges] = {}
        self._writes = writes
        self._on_change = on_change
        self._leases = Reflector(
            api, LEASES, namespace=namespace, selector=Selector(equals(LEASE_RING_LABEL, ring)), model=Lease,
            metadata_only=False, handler=self._on_lease, clock=clock, rng=random.Random(),
        )  # fmt: skip
        self._assignments = Reflector(
            api, RING_ASSIGNMENTS, selector=Selector(fields=f"metadata.name={ring}"), model=RingAssignment,
            metadata_only=False, handler=self._on_assignment, clock=clock, rng=random.Random(),
        )  # fmt: skip
        self.reflectors: Sequence[Reflector[Any]] = (self._leases, self._assignments)

    def _on_lease(self, delta: Delta[Lease]) -> None:
        lease = delta.object
        name, before = lease.metadata.name, self.held.get(lease.metadata.name, NOWHERE)
        # A lease that is gone, was released, or was acquired by the sharder holds nothing.
        there = delta.kind is not EventKind.DELETED and lease.held_by_shard
        now = (lease.held_ranges or NOWHERE) if there else NOWHERE
        if now == before:
            return  # a renewal
        self.held[name] = now
        self._writes[LEASE] += 1
        self._on_change()

    def _on_assignment(self, delta: Delta[RingAssignment]) -> None:
        if delta.old is not None and delta.old.spec == delta.object.spec:
            return  # its status
        try:
            self.named = parse_assignment(delta.object.spec)
        except ConfigurationError:
            return  # as shards do: what makes no sense changes nothing
        self._writes[ASSIGNMENT] += 1
        self._on_change()

    def holders_of(self, thing: Data) -> Sequence[str]:
        """Whoever holds its hash, by the Leases."""
        point = point_of(thing.metadata.namespace)
        return tuple(shard for shard, ranges in self.held.items() if point in ranges)

    def leaving(self, thing: Data) -> str:
        """The RingAssignment names nobody, or somebody else."""
        named = self.named.shard_at(point_of(thing.metadata.namespace))
        return "" if (named,) == self.holders_of(thing) else f"is changing hands (named: {named or 'nobody'})"

    def is_to_move(self, secret: Data, living: Collection[str]) -> bool:
        """What is named moves at once."""
        return False

    def misplaced(self, thing: Data) -> str:
        """A label: nobody has any business to write one."""
        return f"carries labels: {', '.join(thing.metadata.labels)}" if thing.metadata.labels else ""

    def describe(self, shard: str, namespaces: Sequence[str]) -> str:
        """Its namespaces and its ranges."""
        ranges = self.held.get(shard, NOWHERE)
        mine = sum(point_of(namespace) in ranges for namespace in namespaces)
        spans = ", ".join(f"{_short(start)} to {_short(end)}" for start, end in ranges)
        return f"{mine:>2} namespaces, hashes {spans or 'none'}"


def _short(bound: int) -> str:
    """A bound by its first digits: as many as tell namespaces apart that differ at their end."""
    return {0: "the first", SPACE: "the last"}.get(bound, f"{render_bound(bound)[:_DIGITS]}…")
