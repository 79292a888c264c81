"""How long each point of the space waits for a shard that works there, and each object for its reconcile there.

No label says whom an object waits for: its point says it, by who is named there and whose lease holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from shardsdk.protocol.labels import RingLabels
from tests.simulation.ranges.holdings import Holdings
from tests.simulation.ranges.liveness import LOOKED_AT
from tests.simulation.vocabulary import RING_OF_KIND, Doing
from tests.simulation.waiting import Wait, Waiting, Waits

if TYPE_CHECKING:
    from tests.simulation.storage import Version
    from tests.simulation.world import AnyShard, World


class RangeWaits(Waits):
    """The waits of one run; inherited because the same hinders a ring, and takes as long, however it assigns."""

    def __init__(self, world: World, holdings: Holdings) -> None:
        super().__init__(world)
        self._holdings = holdings
        #: Which processes have begun a reconcile of an object since it changed hands, and of which generation.
        self._begun: dict[str, dict[str, int]] = {}

    def bound(self, wait: Wait) -> float:
        """The same; while somebody is named whom the leader has never seen, what is free waits for that as well."""
        return super().bound(Wait.MOVE if wait is Wait.SHARD else wait)

    def began(self, doing: Doing) -> None:
        """A reconcile begins."""
        super().began(doing)
        main = self.world.index.mains.get(doing.uid)
        if main is not None:
            begun = self._begun.setdefault(doing.uid, {})
            if self.world.checkers.holds(doing):
                begun.clear()  # one that is late to learn that it does not takes nothing from whoever does
            begun[doing.process] = main.doc["metadata"]["generation"]

    def _look_at_objects(
        self, ring: RingLabels, shards: Mapping[str, AnyShard], working: frozenset[str]
    ) -> Iterator[Waiting]:
        available, twin = self.world.liveness.available(ring.ring), self.world.names.twin
        if any(twin(name) in available for name in available):
            # Those of one name get nothing, and what one of them has stays its own.
            self.world.hindrances.hinder(ring.ring)
        places = [self._holdings.place(uid) for uid, _ in self._mains(ring)]
        for point in dict.fromkeys((*LOOKED_AT, *(place[1] for place in places if place is not None))):
            found = self._wait_at(ring.ring, point, shards, working)
            if found is not None:
                yield f"point {point:016x} of ring {ring.ring}", *found
        yield from self._unreconciled(ring, shards, working)

    def _wait_at(
        self, ring: str, point: int, shards: Mapping[str, AnyShard], working: frozenset[str]
    ) -> tuple[str | None, Wait] | None:
        """Whom a point waits for, and for what; `None`: a shard works there, or nobody promises anything."""
        holdings = self._holdings
        named = holdings.named_at(ring, point)
        holder = holdings.holder(ring, point)
        stuck = self.world.poison.hung_shard
        if (named == holder and named in working) or (stuck and stuck in (named, holder)):
            return None
        if holder is not None:
            if holder not in working:
                return holder, Wait.TAKEOVER
            return (holder, Wait.ACKNOWLEDGEMENT) if not self._runs_in_what_goes(ring, shards[holder]) else None
        if named is None:
            return None, Wait.SHARD
        if named not in working:
            return named, Wait.MOVE
        return named, Wait.HOLD

    def _runs_in_what_goes(self, ring: str, shard: AnyShard) -> bool:
        """Whether a shard reconciles where it is to give away what it holds: it may give all of that away at once."""
        assignment = self._holdings.named(ring)
        going = self._holdings.held(shard.name)
        if assignment is not None:
            going = going - assignment.of(shard.name)
        places = [self._holdings.place(uid) for uid, running in self._running.items() if shard.identity in running]
        return any(place is not None and place[1] in going for place in places)

    def _unreconciled(
        self, ring: RingLabels, shards: Mapping[str, AnyShard], working: frozenset[str]
    ) -> Iterator[Waiting]:
        for uid, version in self._mains(ring):
            place = self._holdings.place(uid)
            shard = self._holdings.owner(*place) if place is not None else None
            if shard is None or shard not in working or self._is_full(shards[shard]):
                continue
            begun = self._begun.get(uid, {}).get(shards[shard].identity)
            if begun == version.doc["metadata"]["generation"] or self.world.poison.excuses(version):
                continue
            if self.world.in_scope(ring, version.key.namespace):
                yield uid, shard, Wait.RECONCILE

    def _mains(self, ring: RingLabels) -> list[tuple[str, Version]]:
        return [(uid, each) for uid, each in self.world.index.mains.items() if RING_OF_KIND[each.doc["kind"]] is ring]
