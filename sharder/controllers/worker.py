"""One object at a time: take the one decision, write one conditional patch.

Does: look up the owner of a controlled object where the decision needs it, and
answer a conflict by reading that object again.

Refuses: to move an owner that has children (see groups), and to retry what no
retry can mend.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sharder.controllers.seen import ItemKey, Placed, SeenMeta, SeenObject
from sharder.controllers.slots import Crowded
from sharder.controllers.working import work_off
from sharder.core.decisions import (
    Decision,
    Desired,
    Facts,
    NoKey,
    Outcome,
    OwnerUnassigned,
    Target,
    decide,
    desire_controlled,
    desire_main,
)
from sharder.core.membership import Membership
from sharder.core.ringspec import Role
from shardsdk.errors import NotFound, Retry, ShardingError
from shardsdk.runtime.queue import Priority

if TYPE_CHECKING:
    from sharder.controllers.placer import Placer

log = logging.getLogger(__name__)

#: When an object is looked at again whose resource does not answer.
CROWDED_SECONDS: Final = 1.0
#: Conflicts on one object that are answered by reading it again at once; then it waits its turn.
MAX_CONFLICTS: Final = 5


class Worker:
    """Works on the items of one placer's queue; any number may `run` side by side."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer

    async def run(self) -> None:
        """Work until the queue shuts down."""
        await work_off(self._placer.queue, self._place, self._failed)

    def _failed(self, key: ItemKey, error: Exception) -> None:
        queue = self._placer.queue
        where = self._extra(key)
        if isinstance(error, Crowded):
            queue.add_after(key, CROWDED_SECONDS, Priority.BULK)
        elif not isinstance(error, ShardingError):
            log.error("object not placed, will retry", extra=where, exc_info=error)
            queue.add_rate_limited(key, Priority.BULK)
        elif error.retry is not Retry.NEVER:
            log.warning("object not placed, will retry", extra={**where, "error": str(error)})
            queue.add_rate_limited(key, Priority.BULK)
        else:
            log.warning("object not placed", extra={**where, "error": str(error)})
            queue.forget(key)

    def _extra(self, key: ItemKey) -> dict[str, str]:
        resource = str(self._placer.placed[key.resource].subject.resource.group_resource)
        return {"ring": self._placer.name, "resource": resource, "namespace": key.namespace, "object": key.name}

    async def _place(self, key: ItemKey) -> None:
        placer = self._placer
        placed = placer.placed[key.resource]
        if placer.writer.crowded(placed):
            placer.queue.add_after(key, CROWDED_SECONDS, Priority.BULK)
            return
        obj = placer.take_latest(key)
        unseen = placer.take_unseen(key)
        try:
            if unseen or (obj is None and placer.queue.requeues(key)):
                obj = await placer.read_again(placed, key)
            if await self._settle(key, placed, obj):
                return
        finally:
            placer.transit.leave_unless_begun(key)
        placer.waiting.end(key)
        if unseen:
            placer.transit.leave(key)

    async def _settle(self, key: ItemKey, placed: Placed, obj: SeenObject | None) -> bool:
        """Carry out the decision about an object, whatever happens to it meanwhile; False: it is gone."""
        placer = self._placer
        conflicts = 0
        while obj is not None:
            try:
                await self._carry_out(key, placed, obj)
                return True
            except NotFound:
                return False
            except ShardingError as error:
                conflicts += 1
                if error.retry is not Retry.REFRESH or conflicts > MAX_CONFLICTS:
                    raise
                obj = await placer.read_again(placed, key)
        return False

    async def _carry_out(self, key: ItemKey, placed: Placed, obj: SeenObject) -> None:
        meta = obj.metadata
        outcome = await self._decide(placed, meta)
        match outcome.decision:
            case Decision.IGNORE | Decision.KEEP | Decision.AWAIT:
                self._placer.waiting.end(key)
                if outcome.decision is not Decision.AWAIT:
                    self._placer.transit.leave(key)
                if outcome.decision is Decision.KEEP and placed.grouped:
                    self._placer.groups.stays(meta)
            case Decision.DEFER:
                if self._placer.held(key):
                    self._placer.sweep.defer(key)
                else:
                    self._placer.waiting.end(key)
            case Decision.DRAIN:
                if placed.grouped:
                    self._placer.groups.stays(meta)
                await self._drain(key, placed, obj, leaves=outcome.target is None)
            case Decision.ASSIGN | Decision.MOVE if placed.grouped:
                self._placer.groups.submit(key, placed, meta)
            case Decision.ASSIGN | Decision.MOVE | Decision.RELEASE:
                await self._relabel(key, placed, meta, outcome)

    async def _drain(self, key: ItemKey, placed: Placed, obj: SeenObject, *, leaves: bool) -> None:
        placer, meta = self._placer, obj.metadata
        shard = meta.label(placer.labels.shard)
        assert shard is not None
        if placed.grouped and not leaves:
            placer.families.want()
        # What leaves the ring is nobody's afterwards, however long that takes.
        if not leaves and not placer.transit.enter(key, obj, shard):
            return
        await placer.writer.drain(key, placed, meta)
        if not leaves:
            placer.transit.drains(key, shard)

    async def _relabel(self, key: ItemKey, placed: Placed, meta: SeenMeta, outcome: Outcome) -> None:
        writer = self._placer.writer
        if outcome.target is None:
            await writer.release(key, placed, meta)
        else:
            await writer.assign(key, placed, meta, outcome.target, clear_drain=self._drains(meta))
        self._placer.transit.leave(key)

    async def _decide(self, placed: Placed, meta: SeenMeta) -> Outcome:
        placer = self._placer
        membership, shard = placer.membership, meta.label(placer.labels.shard)
        in_scope = placer.around.scope.covers(placer.ring, meta.namespace, unseen=shard is not None)
        if placed.retired and placed.subject.role is Role.CONTROLLED:
            # Whose child it was is not known any more; owners that leave go first, by acknowledgement.
            desired: Desired = Target(shard, by_owner=True) if shard and placer.owners_leave else OwnerUnassigned()
        elif placed.subject.role is Role.MAIN:
            desired = desire_main(placer.key_of(placed, meta), membership)
        else:
            desired = await self._desire_by_owner(placed, meta, membership)
        return decide(
            Facts(
                role=placed.subject.role,
                shard_label=shard,
                draining=self._drains(meta),
                in_scope=in_scope and not placed.retired,
                desired=desired,
                membership=membership,
            )
        )

    async def _desire_by_owner(self, placed: Placed, meta: SeenMeta, membership: Membership) -> Desired:
        reference, key = meta.controller, self._placer.key_of(placed, meta)
        if reference is None or key is None:
            return NoKey()
        main = placed.subject.main.resource
        namespace = meta.namespace if main.namespaced else None
        owner = await self._placer.around.api.find(main, reference.name, namespace)
        exists = owner is not None and owner.metadata.uid == reference.uid
        label = owner.metadata.label(self._placer.labels.shard) if owner is not None else None
        return desire_controlled(key, membership, owner_exists=exists, owner_label=label)

    def _drains(self, meta: SeenMeta) -> bool:
        return meta.label(self._placer.labels.drain) is not None
