"""A script for what a shard lists of an owner that has just come: children that come between, or after, its lists.

Shards have to do with them all the same, and know them by these lists alone: the
watch that would show them is held up.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Any, Final

from shardsdk.kube.selectors import Selector
from shardsdk.kube.store import Key
from shardsdk.protocol.objects import Resource
from tests.simulation.network import Link
from tests.simulation.shards import ShardProcess
from tests.simulation.storage import Author, Version
from tests.simulation.vocabulary import FAMILY, PIECES, RECONCILED, WORKS

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Whoever makes and labels these children writes at the very moment of a list.
_HAND: Final = Author("user")


async def play_child_lists(world: World, rng: Random) -> None:
    """One shard after the other comes, and meets a child in one of both ways."""
    if world.plan.ranges:
        return  # nothing is labelled, and nobody lists
    await world.until(lambda: len(world.working_shards(FAMILY.ring)) > 1 and bool(world.index.pieces))
    for number in range(5):
        came = world.start_shard(f"fam-{60 + number}", FAMILY)
        trap = (_Between if number % 2 else _Amid)(world, came.link, came.name, came.identity)
        world.server.on_list.append(trap.on_list)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.5 * world.timings.lease):
                    await trap.sprung.wait()
                    await trap.play(rng)
                    await world.clock.sleep(rng.uniform(0.5, 1.0) * world.timings.lease)
        finally:
            world.server.on_list.remove(trap.on_list)
        if isinstance(came, ShardProcess):
            came.kill()


class _Trap:
    """Waits for a list of children by the process `identity`, for owners that it has not reconciled yet."""

    def __init__(self, world: World, link: Link, shard: str, identity: str) -> None:
        self.world = world
        self.link = link
        self.shard = shard
        self.identity = identity
        self.sprung = asyncio.Event()
        self.owner: Version | None = None
        self.child: Key | None = None

    def on_list(self, link: Link, resource: Resource, selector: Selector) -> None:
        """A list is executed next."""
        if link is not self.link or resource != PIECES:
            return
        self.listed("!" in selector.labels)

    def listed(self, unlabelled: bool) -> None:
        """It is of unlabelled children, or of those of this shard."""

    async def play(self, rng: Random) -> None:
        """What follows, once it has sprung."""

    def new_owner(self) -> Version | None:
        """One that this shard has, and is yet to reconcile."""
        for work in self.world.index.mains.values():
            by = (work.doc["metadata"].get("annotations") or {}).get(RECONCILED, "").rpartition("/")[0]
            ours = work.doc["kind"] == WORKS.kind and work.label(FAMILY.shard) == self.shard
            if ours and work.label(FAMILY.drain) is None and by != self.identity and not self._is_going(work):
                return work
        return None

    def _is_going(self, work: Version) -> bool:
        return bool(work.doc["metadata"].get("deletionTimestamp")) or self.world.poison.excuses(work)

    def hold_up(self) -> None:
        """The shard's watches of children show nothing for a while."""
        seconds = self.world.timings.lease
        self.world.server.stall_watch([self.link], seconds, PIECES)
        self.world.trouble(self.identity)
        self.world.hindrances.hinder(FAMILY.ring, 2 * seconds)
        self.world.calm_from(self.world.now + seconds)

    def make_child(self, owner: Version) -> None:
        """The owner wants one more, and somebody has made it."""
        world = self.world
        key = f"c{len(world.made_at)}"
        name = world.storage.name_for(PIECES, {"metadata": {
            "generateName": f"{owner.key.name}-{key}-", "namespace": owner.key.namespace,
            "ownerReferences": [{"apiVersion": WORKS.api_version, "kind": WORKS.kind, "name": owner.key.name,
                                 "uid": owner.uid, "controller": True}]}, "spec": {"key": key}})  # fmt: skip
        child = world.storage.create(PIECES, name, _HAND)
        self.child = child.key
        world.note(f"user makes piece {child.key} ({child.uid}) of {owner.uid}")

        def want(doc: dict[str, Any]) -> None:
            doc["spec"]["keys"] = [*doc["spec"]["keys"], key]

        self.edit(WORKS, owner.key, want)

    def edit(self, resource: Resource, key: Key, change: Any) -> None:
        """Store a changed object at once."""
        found = self.world.storage.get(resource, key)
        if found is not None:
            doc = deepcopy(found.doc)
            change(doc)
            self.world.storage.replace(resource, found, doc, _HAND)


class _Between(_Trap):
    """A child is there at the first of two lists, and is labelled before the second."""

    def listed(self, unlabelled: bool) -> None:
        if self.child is not None:
            child, self.child = self.child, None
            self.edit(PIECES, child, self._label)
            self.sprung.set()
        elif not self.sprung.is_set() and (owner := self.new_owner()) is not None:
            self.hold_up()
            self.make_child(owner)

    def _label(self, doc: dict[str, Any]) -> None:
        doc["metadata"]["labels"] = {FAMILY.shard: self.shard, **(doc["metadata"].get("labels") or {})}


class _Amid(_Trap):
    """The answer to a list is late; meanwhile the owner is drained, gets a child, and is given to its shard again."""

    def listed(self, unlabelled: bool) -> None:
        if not unlabelled and self.owner is None and (owner := self.new_owner()) is not None:
            self.owner = owner
            self.hold_up()
            self.link.answers_late = 0.25 * self.world.timings.lease
            self.sprung.set()

    async def play(self, rng: Random) -> None:
        assert self.owner is not None
        key = self.owner.key

        def drain(doc: dict[str, Any]) -> None:
            doc["metadata"]["labels"] = {**(doc["metadata"].get("labels") or {}), FAMILY.drain: "true"}

        def is_drained() -> bool:
            found = self.world.storage.get(WORKS, key)
            return found is None or found.label(FAMILY.shard) is None

        self.edit(WORKS, key, drain)
        await self.world.until(is_drained)
        owner = self.world.storage.get(WORKS, key)
        if owner is not None and not self._is_going(owner):
            self.make_child(owner)
