"""What people do to RingAssignments and to what leases hold, by hand."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import msgspec

from shardsdk.kube.store import Key
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import (
    HELD_RANGES_ANNOTATION,
    RING_ASSIGNMENTS,
    SPACE,
    HashRanges,
    Named,
    render_assignment,
)
from tests.simulation.storage import Version
from tests.simulation.users import Users
from tests.simulation.vocabulary import HASHES, RINGS

#: Specs that make no sense, each in another way.
_NONSENSE: tuple[dict[str, Any], ...] = (
    {"hashBy": "Name"},
    {"ranges": []},
    {"ranges": [{"start": "0x0000000000000010", "shard": "fam-0"}]},
    {"ranges": [{"start": "0", "shard": "fam-0"}]},
)


class Hands:
    """Carries out their edits."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._world = users.world

    def delete_assignment(self, rng: Random) -> None:
        self._users.delete(RING_ASSIGNMENTS, self._pick(rng))

    def spoil_assignment(self, rng: Random) -> None:
        """It makes no sense until the sharder writes it anew."""
        found = self._pick(rng)
        if found is not None:
            self._users.patch(RING_ASSIGNMENTS, found, {"spec": rng.choice(_NONSENSE)})

    def name_anybody(self, rng: Random) -> None:
        """Somebody names shards as they like: those there are, one that is not, and nobody."""
        found = self._pick(rng)
        if found is None:
            return
        ring = found.key.name
        there = {shard.name for shard in self._world.shards if shard.ring.ring == ring}
        names = sorted(there | {f"{ring[:3]}-nobody", ""})
        cuts = [0, *sorted(rng.randrange(1, SPACE) for _ in range(rng.randint(0, 4))), SPACE]
        parts: dict[str, list[tuple[int, int]]] = {}
        for start, end in pairwise(cuts):
            parts.setdefault(rng.choice(names), []).append((start, end))
        shards = {name: HashRanges.of(*spans) for name, spans in parts.items() if name}
        spec = msgspec.to_builtins(render_assignment(Named(HASHES[ring], shards)))
        self._users.patch(RING_ASSIGNMENTS, found, {"spec": spec})

    def claim_ranges(self, rng: Random) -> None:
        """Somebody writes into a lease that its shard holds more than it does, or what nobody can read."""
        shard = rng.choice(sorted({each.name for each in self._world.shards}) or [""])
        found = self._world.storage.get(LEASES, Key(self._world.namespace_of_shard(shard), shard))
        if found is not None:
            says = rng.choice(("nonsense", str(HashRanges.of((0, SPACE)))))
            self._users.patch(LEASES, found, {"metadata": {"annotations": {HELD_RANGES_ANNOTATION: says}}})

    def cover_others(self, rng: Random) -> None:
        """Somebody edits which namespaces a ring covers."""
        self._world.edits.cover_others(RINGS[rng.choice(sorted(RINGS))])

    def cover_by_labels(self, rng: Random) -> None:
        """Somebody edits it so that names of namespaces do not tell which; API servers of before take it."""
        self._world.edits.cover_by_labels(RINGS[rng.choice(sorted(RINGS))])

    def _pick(self, rng: Random) -> Version | None:
        return self._users.pick(RING_ASSIGNMENTS, rng)
