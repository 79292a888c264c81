"""Objects that are deleted just as they change hands, and stay for a while, until somebody else has cleaned up."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Final

from shardsdk.kube.store import Key
from shardsdk.protocol.objects import Resource
from tests.simulation.server import Service
from tests.simulation.storage import Author, Version
from tests.simulation.users import Users
from tests.simulation.vocabulary import PIECES, PLAINS, RING_OF, WORKS

if TYPE_CHECKING:
    from tests.simulation.world import World

USER: Final = Author("user")
#: A finalizer of somebody's who is not sharded.
FOREIGN_FINALIZER: Final = "sim.example.dev/others"
#: How often it is looked for an object that changes hands, and for how many seconds.
LOOK_SECONDS: Final = 0.05
LOOKS: Final = 200


class Endings:
    """Carries out the action of that name."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._world: World = users.world

    def end_in_transit(self, rng: Random) -> None:
        """The next objects that drain, or have no shard, are deleted; some of them have children that stay, too."""
        for _ in range(rng.randint(1, 3)):
            self._look(Random(rng.getrandbits(32)), LOOKS)

    def _look(self, rng: Random, looks: int) -> None:
        resource = rng.choice((WORKS, WORKS, PLAINS, PIECES))
        ring, stored = RING_OF[resource], self._world.storage.objects(resource)
        there = self._world.liveness.available(ring.ring)
        moving = [
            each for each in stored
            if (each.label(ring.shard) not in there or each.label(ring.drain) is not None)
            and not each.doc["metadata"].get("deletionTimestamp")
            and self._world.in_scope(ring, each.key.namespace)
        ]  # fmt: skip
        if self._world.plan.ranges:
            moving = [found] if (found := self._users.pick(resource, rng)) is not None else []
        if moving and self._world.server.service is Service.UP:
            self._end(resource, rng.choice(sorted(moving, key=lambda version: version.key)), rng)
        elif looks:
            self._world.later(LOOK_SECONDS, lambda: self._look(rng, looks - 1))

    def _end(self, resource: Resource, found: Version, rng: Random) -> None:
        world = self._world
        if rng.random() < 0.7:
            doc = deepcopy(found.doc)
            doc["metadata"]["finalizers"] = [*(doc["metadata"].get("finalizers") or ()), FOREIGN_FINALIZER]
            world.storage.replace(resource, found, doc, USER)
            world.poison.mend_later(
                rng.uniform(0.1, 4.0) * world.timings.lease, lambda: self._let_go(resource, found.key, found.uid)
            )
        world.note(f"user deletes {resource.plural} {found.key} ({found.uid}), which changes hands")
        world.storage.delete(resource, found.key, USER, {})

    def _let_go(self, resource: Resource, key: Key, uid: str) -> None:
        found = self._world.storage.get(resource, key)
        if found is None or found.uid != uid:
            return
        if self._world.server.service is not Service.UP:
            self._world.poison.mend_later(1.0, lambda: self._let_go(resource, key, uid))
            return
        doc = deepcopy(found.doc)
        kept = [each for each in doc["metadata"].get("finalizers") or () if each != FOREIGN_FINALIZER]
        doc["metadata"]["finalizers"] = kept
        self._world.note(f"somebody has cleaned up after {resource.plural} {key}")
        self._world.storage.replace(resource, found, doc, USER)
