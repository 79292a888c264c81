"""What the simulated controllers do: one child per key of a work, and a note on the object that they did it.

Reconciles take their time and write at their end, so that whoever gives an
object away too early is found out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

from shardsdk.errors import LeaseLost, NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import ObjectMeta, Resource
from tests.simulation.simapi import DOING
from tests.simulation.vocabulary import PIECES, RECONCILED, STRAY, Doing, Piece

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Every how manieth reconcile leaves a write behind, and for how long.
LEAVES_ONE_IN: Final = 4
LEFT_SECONDS: Final = 10.0


class Reconciling:
    """The reconciles of one process of one shard."""

    def __init__(self, world: World, shard: str, process: str, clock: Clock, rng: Random, *, fenced: bool) -> None:
        self.shard = shard
        self.process = process
        self._world = world
        self._clock = clock
        self._rng = rng
        self._fenced = fenced
        self._left: set[asyncio.Task[None]] = set()

    @contextmanager
    def begin(self, resource: Resource, meta: ObjectMeta, *, plain: bool = False) -> Iterator[None]:
        """A reconcile of one object begins, and what is written inside is its; `plain`: nobody can cancel it."""
        world = self._world
        world.stats.reconciles += 1
        doing = Doing(self.shard, self.process, resource, meta.uid, world.stats.reconciles, self._fenced, plain)
        world.checkers.began(doing)
        token = DOING.set(doing)
        try:
            yield
        finally:
            DOING.reset(token)
            world.checkers.ended(doing)

    async def work(
        self, api: Api, main: Resource, meta: ObjectMeta, keys: Collection[str], present: Sequence[Piece],
        reference: dict[str, Any], known: Collection[str] = (), cancelled: Callable[[], bool] = lambda: False,
    ) -> list[str]:  # fmt: skip
        """One child for each of `keys` and no other, then a note on children and object; gives the keys made.

        `present` are the children that the cache shows, `known` the keys of others;
        `cancelled` tells one that nobody can cancel to stop.

        Raises: LeaseLost, and whatever a write may raise.
        """
        note = f"{self.process}/{meta.generation}"
        await self._take_time(cancelled)
        made = []
        for key in keys:
            if key in known or any(piece.spec.key == key for piece in present):
                continue
            metadata = {"generateName": f"{meta.name}-{key}-", "namespace": meta.namespace,
                        "ownerReferences": [reference], "annotations": {RECONCILED: note}}  # fmt: skip
            await api.create(PIECES, {"metadata": metadata, "spec": {"key": key}}, meta.namespace)
            made.append(key)
            await self._take_time(cancelled)
        for piece in present:
            if piece.spec.key not in keys and not piece.spec.key.startswith(STRAY):
                with suppress(NotFound):
                    await api.delete(PIECES, piece.metadata.name, piece.metadata.namespace, uid=piece.metadata.uid)
                await self._take_time(cancelled)
            elif (piece.metadata.annotations or {}).get(RECONCILED) != note:
                # Unconditional, as server-side apply would be: only lease and fence guard it.
                patch = {"metadata": {"annotations": {RECONCILED: note}}}
                await api.patch(PIECES, piece.metadata.name, piece.metadata.namespace, patch)
                await self._take_time(cancelled)
        if (meta.annotations or {}).get(RECONCILED) != note:
            conditional = {"resourceVersion": meta.resource_version, "annotations": {RECONCILED: note}}
            await api.patch(main, meta.name, meta.namespace, {"metadata": conditional})
        return made

    async def _take_time(self, cancelled: Callable[[], bool]) -> None:
        scale = self._world.timings.scale
        longest = 15.0 if self._rng.random() < 0.15 else 1.5
        await self._clock.sleep(self._rng.random() * longest * scale)
        while self._world.hung == self.process:
            await self._clock.sleep(60.0)
        if cancelled():
            raise LeaseLost("the reconcile was cancelled")
        self._world.checkers.at_work.stepped(DOING.get())

    def leave_behind(self, api: Api, present: Sequence[Piece]) -> None:
        """A reconcile ends; some do not await all that they have started, and by then another shard has the object."""
        if present and self._world.stats.reconciles % LEAVES_ONE_IN == 0:
            left = asyncio.create_task(self._write_late(api, present[0].metadata))
            self._left.add(left)
            left.add_done_callback(self._left.discard)

    async def _write_late(self, api: Api, piece: ObjectMeta) -> None:
        await self._clock.sleep(LEFT_SECONDS * self._world.timings.scale)
        with suppress(ShardingError):
            await api.patch(PIECES, piece.name, piece.namespace, {"metadata": {"annotations": {RECONCILED: "late"}}})
