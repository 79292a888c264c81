"""What users, backup tools and other webhooks do to objects that controllers would rather not see.

Children that fit no model, objects that cannot be written, children that
change their owners or come back from a backup with an old label, manifests
that replace whole objects.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Final

from shardsdk.protocol.objects import LEASES, Resource
from tests.simulation.collecting import owner_uid
from tests.simulation.poison import Refusal
from tests.simulation.server import Service
from tests.simulation.storage import Author, Doc, Version
from tests.simulation.users import Users
from tests.simulation.vocabulary import (
    CLAIMED_BY,
    FAMILY,
    KEY,
    PIECES,
    PLAINS,
    POISONED,
    RING_OF,
    SHARDS_NAMESPACES,
    STRAY,
    WORKS,
    key_of,
)

USER: Final = Author("user")


class Tampering:
    """Carries out their actions."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._world = users.world
        self._made = 0

    # -- objects that cannot be handled ----------------------------------------

    def spoil_piece(self, rng: Random) -> None:
        """A child's key becomes a list: it fits no model until somebody mends it."""
        piece = self._users.pick(PIECES, rng)
        if piece is None:
            return

        def spoil(doc: Doc) -> None:
            doc["spec"] = {"key": [key_of(piece)]}

        def mend(doc: Doc) -> None:
            doc["spec"] = {"key": key_of(piece)}

        self._poison_for_a_while(PIECES, piece, rng, spoil, mend)

    def spoil_work(self, rng: Random) -> None:
        """A main object fits no model for a while; it can still be given away."""
        work = self._users.pick(WORKS, rng)
        if work is None or not isinstance(work.doc["spec"]["serial"], int):
            return
        serial = work.doc["spec"]["serial"]

        def spoil(doc: Doc) -> None:
            doc["spec"] = {**doc["spec"], "serial": [serial]}

        def mend(doc: Doc) -> None:
            doc["spec"] = {**doc["spec"], "serial": serial + 1}

        self._poison_for_a_while(WORKS, work, rng, spoil, mend)

    def upset_index(self, rng: Random) -> None:
        """A child that the controller's own index cannot look at."""
        piece = self._users.pick(PIECES, rng)
        if piece is None:
            return

        def spoil(doc: Doc) -> None:
            doc["metadata"]["annotations"] = {**(doc["metadata"].get("annotations") or {}), POISONED: "yes"}

        def mend(doc: Doc) -> None:
            doc["metadata"]["annotations"] = {
                name: value for name, value in doc["metadata"].get("annotations", {}).items() if name != POISONED
            }

        self._poison_for_a_while(PIECES, piece, rng, spoil, mend)

    def hang_writes(self, rng: Random) -> None:
        """Nobody can write an object: each write takes ten seconds and fails."""
        self._refuse(rng, Refusal.HANGS)

    def deny_writes(self, rng: Random) -> None:
        """Nobody can write an object: each write is denied at once."""
        self._refuse(rng, Refusal.DENIED)

    def _refuse(self, rng: Random, refusal: Refusal) -> None:
        resource = rng.choice((PIECES, PIECES, WORKS, PLAINS))
        found = self._users.pick(resource, rng)
        if found is None or self._world.poison.refuses(resource, found.key):
            return
        poison, key = self._world.poison, found.key
        self._world.note(f"writes of {resource.plural} {key} from now on: {refusal.value}")
        family = poison.spread(found)
        poison.refuse(resource, key, refusal)

        def mend() -> None:
            self._world.note(f"writes of {resource.plural} {key} pass again")
            poison.refuse(resource, key, None)
            poison.withdraw(family)

        poison.mend_later(self._seconds(rng), mend)

    def fail_resource(self, rng: Random) -> None:
        """Nobody can write any object of one resource: a validating webhook of somebody's is broken."""
        resource, refusal = rng.choice((PIECES, WORKS, PLAINS)), rng.choice(list(Refusal))
        poison = self._world.poison
        if not poison.refuse_all(resource, refusal):
            return
        self._world.note(f"writes of all {resource.plural} from now on: {refusal.value}")

        def mend() -> None:
            self._world.note(f"writes of {resource.plural} pass again")
            poison.refuse_all(resource, None)

        poison.mend_later(self._seconds(rng), mend)

    def refuse_in_namespace(self, rng: Random) -> None:
        """A policy denies all writes of one resource in one namespace, as long as somebody wants it to."""
        world, namespace, resource = (
            self._world,
            rng.choice(self._world.namespaces),
            rng.choice((PIECES, PIECES, WORKS)),
        )
        poison, refusal = world.poison, rng.choice(list(Refusal))
        if not poison.refuse_all(resource, refusal, namespace):
            return
        world.note(f"writes of {resource.plural} in {namespace} from now on: {refusal.value}")

        def mend() -> None:
            world.note(f"writes of {resource.plural} in {namespace} pass again")
            poison.refuse_all(resource, None, namespace)

        poison.mend_later(self._seconds(rng), mend)

    def refuse_dry_runs(self, rng: Random) -> None:
        """Somebody's webhook says nothing of side effects: no dry run of an object is taken until that is mended."""
        server = self._world.server
        server.takes_dry_runs = False
        self._world.note("dry runs of objects are refused from now on")

        def mend() -> None:
            server.takes_dry_runs = True

        self._world.poison.mend_later(self._seconds(rng), mend)

    def refuse_leases(self, rng: Random) -> None:
        """Somebody's webhook refuses all writes of leases in a namespace of the shards', and spares the leader's."""
        world, refusal, namespace = self._world, rng.choice(list(Refusal)), rng.choice(SHARDS_NAMESPACES)
        keys = [each.key for each in world.storage.objects(LEASES) if each.key.namespace == namespace]
        seconds = rng.uniform(0.3, 4.0) * world.timings.lease
        world.note(f"writes of {len(keys)} leases for {seconds:.1f} s: {refusal.value}")
        # Then shards that are back wait for nothing any more, and what others had is taken over a duration later.
        world.hindrances.hinder(None, seconds + 3 * world.plan.shard_timings.lease)
        for key in keys:
            world.poison.refuse(LEASES, key, refusal)

        def mend() -> None:
            world.note("writes of leases pass again")
            for key in keys:
                world.poison.refuse(LEASES, key, None)

        world.poison.mend_later(seconds, mend)

    def _poison_for_a_while(
        self,
        resource: Resource,
        found: Version,
        rng: Random,
        spoil: Callable[[Doc], None],
        mend: Callable[[Doc], None],
    ) -> None:
        poison = self._world.poison
        if poison.excuses(found):
            return
        # First, so that no backup is taken with it: nobody would mend it when that is put back.
        family = poison.spread(found)
        if not self._edit(resource, found, spoil):
            poison.withdraw(family)
            return
        self._world.note(f"{resource.plural} {found.key} ({found.uid}) is spoiled")

        def mended() -> None:
            current = self._world.storage.get(resource, found.key)
            if current is not None and current.uid == found.uid and not self._edit(resource, current, mend):
                poison.mend_later(1.0, mended)
                return
            self._world.note(f"{resource.plural} {found.key} is mended")
            poison.withdraw(family)

        poison.mend_later(self._seconds(rng), mended)

    def _seconds(self, rng: Random) -> float:
        return rng.uniform(1.0, 8.0) * self._world.timings.lease

    def _edit(self, resource: Resource, found: Version, change: Callable[[Doc], None]) -> bool:
        """Store a changed object at once; False: the API server is away."""
        if self._world.server.service is not Service.UP:
            return False
        doc = deepcopy(found.doc)
        change(doc)
        self._world.storage.replace(resource, found, doc, USER)
        return True

    # -- children that come from elsewhere -----------------------------------------

    def adopt_piece(self, rng: Random) -> None:
        """A child is orphaned, and another work is told to adopt it."""
        piece, work = self._users.pick(PIECES, rng), self._users.pick(WORKS, rng)
        if piece is None or work is None or piece.key.namespace != work.key.namespace:
            return
        if owner_uid(piece) == work.uid or self._world.poison.excuses(piece) or self._world.poison.excuses(work):
            return
        self._made += 1
        key, world = f"a{self._made}", self._world
        world.note(f"user has works {work.key} ({work.uid}) adopt piece {piece.key} ({piece.uid}) as {key}")
        orphaned = {
            "metadata": {"ownerReferences": None, "labels": {CLAIMED_BY: work.key.name, KEY: key}},
            "spec": {"key": key},
        }

        async def have_adopted() -> None:
            await self._users.api.patch(PIECES, piece.key.name, piece.key.namespace, orphaned)
            current = world.storage.get(WORKS, work.key)
            if current is not None:
                spec = {"keys": [*current.doc["spec"]["keys"], key], "claims": True}
                await self._users.api.patch(WORKS, work.key.name, work.key.namespace, {"spec": spec})

        self._users.begin(have_adopted())

    def stray_piece(self, rng: Random) -> None:
        """A backup tool restores a child with the label that it had once: of another shard than its owner's."""
        world = self._world
        work = self._users.pick(WORKS, rng)
        others = [each.name for each in world.working_shards(FAMILY.ring)]
        others = sorted({name for name in others if work is not None and name != work.label(FAMILY.shard)})
        if work is None or not others or world.poison.excuses(work) or not world.in_scope(FAMILY, work.key.namespace):
            return  # outside the ring's namespaces the resync finds it, which may take its whole period
        self._made += 1
        key, label = f"{STRAY}{self._made}", rng.choice(others)
        reference = {
            "apiVersion": WORKS.api_version, "kind": WORKS.kind, "name": work.key.name, "uid": work.uid,
            "controller": True,
        }  # fmt: skip
        name = f"{work.key.name}-{key}"
        metadata = {"name": name, "namespace": work.key.namespace, "ownerReferences": [reference],
                    "labels": {FAMILY.shard: label}}  # fmt: skip
        world.note(f"a backup tool restores piece {name} of {work.uid} with the label of {label}")
        world.checkers.strays.come(name, work.uid)

        body = {"metadata": metadata, "spec": {"key": key}}
        self._users.begin(self._users.api.create(PIECES, body, work.key.namespace))

    # -- labels ----------------------------------------------------------------------

    def relabel_by_hand(self, rng: Random) -> None:
        """Somebody names another living shard; the webhook alone sees that, so what it misses is taken back by hand."""
        world, resource = self._world, rng.choice((WORKS, PLAINS))
        ring, found = RING_OF[resource], self._users.pick(resource, rng)
        if found is None or found.label(ring.shard) is None or world.poison.excuses(found):
            return
        others = sorted({each.name for each in world.working_shards(ring.ring)} - {found.label(ring.shard)})
        if not others or not world.in_scope(ring, found.key.namespace):
            return
        label, after = rng.choice(others), rng.uniform(1.0, 5.0)
        body = {"metadata": {"labels": {ring.shard: label}}}
        world.note(f"user patches {resource.plural} {found.key}: {body}")

        async def relabel() -> None:
            """A webhook that does not answer may hold it up for longer than whoever made it meant to wait."""
            try:
                await self._users.api.patch(resource, found.key.name, found.key.namespace, body)
            finally:
                world.poison.mend_later(after, take_back)

        def unlabel(doc: Doc) -> None:
            labels = doc["metadata"].get("labels") or {}
            doc["metadata"]["labels"] = {name: each for name, each in labels.items() if name != ring.shard}

        def take_back() -> None:
            current = world.storage.get(resource, found.key)
            if current is None or current.uid != found.uid or current.label(ring.shard) != label:
                return
            if not self._edit(resource, current, unlabel):
                world.poison.mend_later(1.0, take_back)

        self._users.begin(relabel())

    def name_the_gone(self, rng: Random) -> None:
        """Past the webhook an object gets the name of a shard that has no Lease any more, from an old backup, say."""
        resource = rng.choice((WORKS, PLAINS))
        ring, found = RING_OF[resource], self._users.pick(resource, rng)
        if found is None or self._world.poison.excuses(found) or not self._world.in_scope(ring, found.key.namespace):
            return
        self._world.note(f"{resource.plural} {found.key} gets the name of a shard that is gone")

        def label(doc: Doc) -> None:
            doc["metadata"]["labels"] = {**(doc["metadata"].get("labels") or {}), ring.shard: f"{ring.ring[:3]}-gone"}

        self._edit(resource, found, label)

    # -- whole objects ---------------------------------------------------------------

    def shrink_work(self, rng: Random) -> None:
        """A work wants one child less; its shard deletes it."""
        work = self._users.pick(WORKS, rng)
        if work is not None and work.doc["spec"]["keys"]:
            self._users.patch(WORKS, work, {"spec": {"keys": work.doc["spec"]["keys"][1:]}})

    def replace_object(self, rng: Random) -> None:
        """A manifest without labels replaces a whole object; one that drains, if there is any."""
        resource = rng.choice((WORKS, PLAINS))
        found = self._users.pick(resource, rng)
        draining = [each for each in self._world.storage.objects(resource) if each.label(RING_OF[resource].drain)]
        if draining:
            found = rng.choice(sorted(draining, key=lambda version: version.key))
        if found is None or self._world.poison.excuses(found):
            return
        spec = {**found.doc["spec"], "serial": found.doc["spec"]["serial"] + 1}
        body = {"metadata": {"name": found.key.name, "namespace": found.key.namespace}, "spec": spec}
        self._world.note(f"user replaces {resource.plural} {found.key} ({found.uid})")
        self._users.begin(self._users.api.update(resource, body))
