"""What users do to objects, labels, leases and namespaces, within the rules and against them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from shardsdk.errors import ShardingError
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import LEASES, NAMESPACES, Resource
from shardsdk.testing.processes import outside
from tests.simulation.collecting import owner_uid
from tests.simulation.simapi import SimApi
from tests.simulation.storage import Version
from tests.simulation.vocabulary import IN_RING, PIECES, PLAINS, RING_OF, WORKS

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Main objects at most.
MAX_OBJECTS = 24


class Users:
    """Carries out their actions; `api` is what they write with."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.api = SimApi(world.server, world.link("user"), world.clock)

    # -- objects ---------------------------------------------------------------
    def create_work(self, rng: Random) -> None:
        self._create(WORKS, rng, {"keys": [f"k{number}" for number in range(rng.randint(0, 3))], "serial": 0,
                                   "cleans": rng.random() < 0.2})  # fmt: skip

    def create_plain(self, rng: Random) -> None:
        self._create(PLAINS, rng, {"keys": [], "serial": 0})

    def _create(self, resource: Resource, rng: Random, spec: dict[str, Any]) -> None:
        if sum(1 for _ in self.world.storage.objects(resource)) >= MAX_OBJECTS:
            return
        name = f"{resource.plural[0]}{rng.getrandbits(16):04x}"
        metadata: dict[str, Any] = {"namespace": rng.choice(self.world.namespaces)}
        metadata |= {"generateName": f"{name}-"} if rng.random() < 0.2 else {"name": name}
        self.begin(self.api.create(resource, {"metadata": metadata, "spec": spec}, metadata["namespace"]))

    def touch_work(self, rng: Random) -> None:
        work = self.pick(WORKS, rng)
        if work is not None and not self.world.poison.excuses(work):
            spec = dict(work.doc["spec"])
            spec["serial"] += 1
            key = f"t{spec['serial']}"
            # A key twice is two children, by the user's own wish; a work that was replaced counts from 0 again.
            if rng.random() < 0.4 and len(spec["keys"]) < 4 and key not in spec["keys"]:
                spec["keys"] = [*spec["keys"], key]
            self.patch(WORKS, work, {"spec": spec})

    def delete_work(self, rng: Random) -> None:
        self.delete(WORKS, self.pick(WORKS, rng))

    def recreate_work(self, rng: Random) -> None:
        work = self.pick(WORKS, rng)
        if work is not None:
            # Also one that is spoiled is made again as it should be: only the old one is mended later.
            spec = {**work.doc["spec"], "serial": 0}
            metadata: dict[str, Any] = {"name": work.key.name, "namespace": work.key.namespace}
            if rng.random() < 0.5:
                # From a manifest that was read back, or a backup: with the labels that it had.
                metadata["labels"] = dict(work.doc["metadata"].get("labels") or {})
            body = {"metadata": metadata, "spec": spec}

            async def again() -> None:
                await self.api.delete(WORKS, work.key.name, work.key.namespace)
                await self.api.create(WORKS, body, work.key.namespace)

            self.begin(again())

    def delete_piece(self, rng: Random) -> None:
        self.delete(PIECES, self.pick(PIECES, rng))

    # -- labels, leases, namespaces ----------------------------------------------

    def remove_label(self, rng: Random) -> None:
        resource = rng.choice((WORKS, PLAINS))
        self._patch_labels(resource, self.pick(resource, rng), shard=True)

    def remove_both_labels(self, rng: Random) -> None:
        resource = rng.choice((WORKS, PLAINS))
        self._patch_labels(resource, self.pick(resource, rng), shard=True, drain=True)

    def remove_piece_label(self, rng: Random) -> None:
        self._patch_labels(PIECES, self.pick(PIECES, rng), shard=True)

    def drain_by_hand(self, rng: Random) -> None:
        resource = rng.choice((WORKS, PLAINS))
        found = self.pick(resource, rng)
        if found is not None:
            self.patch(resource, found, {"metadata": {"labels": {RING_OF[resource].drain: "by-hand"}}})

    def _patch_labels(
        self, resource: Resource, found: Version | None, *, shard: bool = False, drain: bool = False
    ) -> None:
        if found is None:
            return
        ring = RING_OF[resource]
        labels = {name: None for name, wanted in ((ring.shard, shard), (ring.drain, drain)) if wanted}
        self.patch(resource, found, {"metadata": {"labels": labels}})

    def delete_lease(self, rng: Random) -> None:
        self.delete(LEASES, self._shard_lease(rng))

    def empty_lease(self, rng: Random) -> None:
        self.empty(self._shard_lease(rng))

    def empty(self, lease: Version | None) -> None:
        """Have a lease say that nobody holds it."""
        if lease is not None:
            self.patch(LEASES, lease, {"spec": {"holderIdentity": ""}})

    def toggle_namespace(self, rng: Random) -> None:
        key = Key("", rng.choice(self.world.namespaces))
        found = self.world.storage.get(NAMESPACES, key)
        if found is not None and self.world.plan.select_namespaces:
            self.world.liveness.disturb()
            value = "no" if found.label(IN_RING) == "yes" else "yes"
            self.patch(NAMESPACES, found, {"metadata": {"labels": {IN_RING: value}}})

    # -- how -------------------------------------------------------------------

    def pick(self, resource: Resource, rng: Random) -> Version | None:
        """Some object of a resource; of controlled ones one that has an owner."""
        found = sorted(self.world.storage.objects(resource), key=lambda version: version.key)
        if resource == PIECES:
            found = [each for each in found if owner_uid(each) is not None]
        return rng.choice(found) if found else None

    def _shard_lease(self, rng: Random) -> Version | None:
        found = [each for each in self.world.storage.objects(LEASES) if each.label(LEASE_RING_LABEL)]
        return rng.choice(sorted(found, key=lambda version: version.key)) if found else None

    def patch(self, resource: Resource, found: Version, body: dict[str, Any]) -> None:
        """Send a merge patch."""
        self.world.note(f"user patches {resource.plural} {found.key}: {body}")
        self.begin(self.api.patch(resource, found.key.name, found.key.namespace or None, body))

    def delete(self, resource: Resource, found: Version | None) -> None:
        """Send a deletion."""
        if found is not None:
            self.world.note(f"user deletes {resource.plural} {found.key}")
            self.begin(self.api.delete(resource, found.key.name, found.key.namespace or None))

    def begin(self, attempt: Awaitable[object]) -> None:
        """Do something beside everything else; an error is the user's own affair."""
        self.world.calm_from(self.world.now)

        async def run() -> None:
            with suppress(ShardingError):
                await attempt

        body: Coroutine[Any, Any, None] = run()
        task = outside(body)
        # Kept until it is done: a loop holds its tasks weakly.
        _BACKGROUND.add(task)
        task.add_done_callback(_BACKGROUND.discard)


_BACKGROUND: set[asyncio.Task[None]] = set()
