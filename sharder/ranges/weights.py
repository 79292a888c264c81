"""How much lies in each namespace, as shards report it, and how often ranges may move for that alone.

Guarantees: a count is believed only of a shard that holds the namespace's hash, so a
namespace that changes hands is not counted twice; and what was told last stays until
somebody else tells.  A leader that has just come knows no more than what leases say
now, and moves nothing for evenness' sake while that may be a part: shards that have
started or gained ranges a moment ago have yet to count.  Nobody's safety depends on
any of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from sharder.backlog.scope import Wanted
from sharder.cache.namespaces import Namespaces
from sharder.core.rangestatus import Loads, loads_by_namespace, loads_by_width
from shardsdk.kube.clock import Clock
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import NOWHERE, HashBy, Named, point_of, read_counts

#: Of a namespace of which nobody has told anything.
UNTOLD: Final = 1.0
#: After so long each shard has told that was there as the leader came.  Source: shardsdk.ranges.counts tells of what it
#: has worked on at two counts, a minute apart, and with its next renewal.
TOLD_SECONDS: Final = 180.0
#: Without a change of membership ranges move so often for the sake of evenness, and no oftener.
EVENINGS: Final = 3
EVENINGS_SECONDS: Final = 300.0


class ReportedWeights:
    """Of one ring's namespaces, as one leader has read them since it came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._told: dict[int, float] = {}
        self._in_part = False

    def read(self, leases: Iterable[Lease]) -> None:
        """Believe what these say of what they hold."""
        for lease in leases:
            counts = read_counts(lease.metadata.annotations) if lease.held_by_shard else {}
            if counts:
                held = lease.held_ranges or NOWHERE
                self._told.update((point, weight) for point, weight in counts.items() if point in held)

    def of(self, namespaces: Iterable[str]) -> dict[str, float]:
        """What is in each of these; the others are forgotten."""
        names = list(namespaces)
        points = {point_of(name) for name in names}
        self._told = {point: weight for point, weight in self._told.items() if point in points}
        self._in_part = 0 < len(self._told) < len(points)
        return {name: self._told.get(point_of(name), UNTOLD) for name in names}

    def unsure_for(self) -> float:
        """For how many seconds namespaces may be told of that seem empty, as `of` has given them last; 0: none is."""
        return max(0.0, self._since + TOLD_SECONDS - self._clock.monotonic()) if self._in_part else 0.0


def weights_by_point(weights: Mapping[str, float]) -> dict[int, float]:
    """The same by where namespaces lie."""
    points: dict[int, float] = {}
    for namespace, weight in weights.items():
        points[point_of(namespace)] = points.get(point_of(namespace), 0.0) + weight
    return points


class Weights:
    """What is in the namespaces of the ring that is wanted, by `reported` weights."""

    def __init__(self, namespaces: Namespaces, reported: ReportedWeights) -> None:
        self._namespaces = namespaces
        self._reported = reported

    def points(self, wanted: Wanted) -> Mapping[int, float]:
        """What lies where; of objects that are hashed by their uid nothing has to be known."""
        if wanted.ring.spec.hash_by is HashBy.UID:
            return {}
        return weights_by_point(self._by_namespace(wanted))

    def loads(self, named: Named, wanted: Wanted, shards: Collection[str]) -> Loads:
        """What each of `shards` has as it is `named`."""
        if wanted.ring.spec.hash_by is HashBy.UID:
            return loads_by_width(named, shards)
        return loads_by_namespace(named, shards, self._by_namespace(wanted))

    def _by_namespace(self, wanted: Wanted) -> dict[str, float]:
        covered = (
            each.metadata.name
            for each in self._namespaces.reflector.store
            if self._namespaces.covered(wanted.ring, each.metadata)
        )
        return self._reported.of(covered)


class Budget:
    """How often ranges may move although the same shards are there; `spend` it when they do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent: deque[float] = deque(maxlen=EVENINGS)

    def left_in(self) -> float:
        """In how many seconds they may; 0: now."""
        if len(self._spent) < EVENINGS:
            return 0.0
        return max(0.0, self._spent[0] + EVENINGS_SECONDS - self._clock.monotonic())

    def spend(self) -> None:
        """They move now."""
        self._spent.append(self._clock.monotonic())
