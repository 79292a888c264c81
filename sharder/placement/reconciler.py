"""One object at a time: take the one decision, write one conditional patch.

Does: look up the owner of a controlled object where the decision needs it, and
answer a conflict by reading that object again.

Refuses: to move an owner that has children (see handover), and to retry what no
retry can mend.
"""

from __future__ import annotations

import logging
from typing import Final

from sharder.backlog.backlog import Backlog
from sharder.backlog.objects import ItemKey, RingResource, slim
from sharder.backlog.scope import Members, RingScope
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
    is_owner,
)
from sharder.core.membership import Membership
from sharder.core.rights import rights_to_grant
from sharder.core.ringspec import Role
from sharder.placement.families import Families
from sharder.placement.followers import Follower, Followers
from sharder.placement.handover import Handovers
from sharder.placement.label_writer import LabelWriter
from sharder.placement.reading import Reader
from sharder.placement.resync import Resync
from sharder.placement.slots import Crowded
from sharder.placement.transit import Transit
from shardsdk.errors import NotFound, NotServed, RetryRule, ShardingError
from shardsdk.kube.doubts import FenceDoubted
from shardsdk.protocol.objects import SlimMeta, SlimObject
from shardsdk.queueing.queue import Priority

log = logging.getLogger(__name__)

#: When an object is looked at again whose resource does not answer.
CROWDED_SECONDS: Final = 1.0
#: Conflicts on one object that are answered by reading it again at once; then it waits its turn.
MAX_CONFLICTS: Final = 5


class Reconciler:
    """Reconciles the objects of one ring's backlog; any number may `run` side by side."""

    def __init__(
        self,
        scope: RingScope,
        members: Members,
        reader: Reader,
        *,
        backlog: Backlog,
        families: Families,
        transit: Transit,
        writer: LabelWriter,
        handovers: Handovers,
        followers: Followers,
        resync: Resync,
    ) -> None:
        self._scope = scope
        self._members = members
        self._reader = reader
        self._backlog = backlog
        self._families = families
        self._transit = transit
        self._writer = writer
        self._handovers = handovers
        self._followers = followers
        self._resync = resync

    async def run(self) -> None:
        """Work until the queue shuts down."""
        await self._backlog.queue.process(self._reconcile, self._failed)

    def _failed(self, key: ItemKey, error: Exception) -> None:
        queue = self._backlog.queue
        where = self._extra(key)
        if isinstance(error, Crowded):
            queue.add_after(key, CROWDED_SECONDS, Priority.BULK)
        elif not isinstance(error, ShardingError):
            log.error("object not placed, will retry", extra=where, exc_info=error)
            queue.add_rate_limited(key, Priority.BULK)
        elif self._writer.refusals.has(error) and (
            error.retry is not RetryRule.NEVER or self._backlog.informers.find(key)
        ):
            # What is told of it once a minute names one for all.
            log.debug("object refused, will retry", extra={**where, "error": str(error)})
            self._backlog.requeue_refused(key)
        elif error.retry is not RetryRule.NEVER or isinstance(error, FenceDoubted | NotServed):
            news = self._writer.is_news(self._scope.resources[key.resource], error)
            level = logging.WARNING if news else logging.DEBUG
            log.log(level, "object not placed, will retry", extra={**where, "error": str(error)})
            queue.add_rate_limited(key, Priority.BULK)
        else:
            level = logging.DEBUG if self._writer.refusals.has(error) else logging.WARNING
            log.log(level, "object not placed", extra={**where, "error": str(error)})
            queue.forget(key)

    def _extra(self, key: ItemKey) -> dict[str, str]:
        resource = str(self._scope.resources[key.resource].subject.resource.group_resource)
        return {"ring": self._scope.name, "resource": resource, "namespace": key.namespace, "object": key.name}

    async def _reconcile(self, key: ItemKey) -> None:
        backlog, resource = self._backlog, self._scope.resources.get(key.resource)
        if resource is None:
            return  # its resource has left the ring meanwhile
        if self._crowded(resource):
            backlog.queue.add_after(key, CROWDED_SECONDS, Priority.BULK)
            return
        obj, to_read = backlog.take(key)
        self._resync.taken()
        try:
            if to_read or (obj is None and backlog.queue.requeues(key)):
                obj = await self._read(resource, key)
            if await self._settle(key, resource, obj):
                return
        finally:
            self._transit.leave_unless_begun(key)
        backlog.end(key)
        self._handovers.forget(key)
        if to_read:
            self._transit.leave(key)

    def _crowded(self, resource: RingResource) -> bool:
        """Whether an object of this resource need not be begun with: it cannot be written, or its owner be read."""
        follows = resource.subject.role is Role.CONTROLLED
        return self._writer.crowded(resource) or (follows and self._reader.crowded(resource.subject.main.resource))

    async def _read(self, resource: RingResource, key: ItemKey) -> SlimObject | None:
        """The object as a consistent read shows it; `None`: it is gone."""
        found = await self._reader.find(resource.subject.resource, key.name, key.namespace or None)
        return SlimObject(slim(found.metadata, self._scope.labels)) if found is not None else None

    async def _settle(self, key: ItemKey, resource: RingResource, obj: SlimObject | None) -> bool:
        """Carry out the decision about an object, whatever happens to it meanwhile; False: it is gone."""
        conflicts = 0
        while obj is not None:
            try:
                await self._carry_out(key, resource, obj)
                return True
            except NotServed:
                raise  # it may be there all the same
            except NotFound:
                return False
            except ShardingError as error:
                conflicts += 1
                if error.retry is not RetryRule.REFRESH or conflicts > MAX_CONFLICTS:
                    raise
                obj = await self._read(resource, key)
        return False

    async def _carry_out(self, key: ItemKey, resource: RingResource, obj: SlimObject) -> None:
        owner = obj.metadata.controller if resource.subject.role is Role.CONTROLLED else None
        # What the ring lists no longer is no part of any family.
        if owner is None or resource.removed:
            await self._obey(key, resource, obj, await self._decide(resource, obj.metadata, None), None)
            return
        with self._followers.follow(owner.uid) as follower:
            await self._obey(key, resource, obj, await self._decide(resource, obj.metadata, follower), follower)

    async def _obey(
        self, key: ItemKey, resource: RingResource, obj: SlimObject, outcome: Outcome, follower: Follower | None
    ) -> None:
        meta = obj.metadata
        match outcome.decision:
            case Decision.IGNORE | Decision.KEEP | Decision.AWAIT:
                self._backlog.end(key)
                if outcome.decision is not Decision.AWAIT:
                    self._transit.leave(key)
                if outcome.decision is Decision.KEEP and resource.controls_others:
                    self._handovers.stays(key, meta)
            case Decision.DEFER:
                if self._backlog.informers.find(key):
                    self._backlog.defer(key)
                else:
                    self._backlog.end(key)
            case Decision.DRAIN if outcome.target is not None and self._scope.keeps_owners(resource):
                self._handovers.stays(key, meta)
                self._backlog.end(key)
                self._transit.leave(key)
            case Decision.DRAIN:
                if resource.controls_others:
                    self._handovers.stays(key, meta)
                await self._drain(key, resource, obj, outcome.target)
            case Decision.ASSIGN | Decision.MOVE if resource.controls_others:
                self._handovers.submit(key, resource, meta)
            case Decision.ASSIGN | Decision.MOVE | Decision.RELEASE:
                await self._relabel(key, resource, meta, outcome, follower)

    async def _drain(self, key: ItemKey, resource: RingResource, obj: SlimObject, target: str | None) -> None:
        """Ask its shard for an object; `target` None: it leaves the ring."""
        meta, leaves, membership = obj.metadata, target is None, self._members.membership
        shard = meta.label(self._scope.labels.shard)
        assert shard is not None
        if resource.controls_others and not leaves:
            self._families.want()
        # What leaves the ring is nobody's afterwards, however long that takes.
        if not leaves and not self._transit.enter(key, obj, shard):
            return
        if target is not None and not await self._may_go_along(resource, meta, target):
            # It stays with whoever works on it; passes find it again, ever less often.
            self._backlog.end(key)
            return
        await self._writer.drain(key, resource, meta, membership)
        self._backlog.leave_to_informers(key)
        if not leaves:
            self._transit.drains(key, shard)

    async def _may_go_along(self, owner: RingResource, meta: SlimMeta, target: str) -> bool:
        """Whether what an owner controls may be given to `target`, of kinds for which the right to patch is not enough.

        And of those of which something was refused lately.  Of no other is anything asked, and of children that no
        watch has shown by now it is taken for granted.
        """
        main, refused = owner.subject.main, self._writer.is_refused_lately
        kinds = [each.group_resource for each in main.controlled]
        doubtful = {each for each in kinds if rights_to_grant((each,)) or refused(each)}
        for child, each in self._families.known(main, meta) if doubtful else ():
            if child.subject.resource.group_resource not in doubtful:
                continue
            if not await self._writer.may_assign(child, each, target):
                return False
        return True

    async def _relabel(
        self, key: ItemKey, resource: RingResource, meta: SlimMeta, outcome: Outcome, follower: Follower | None
    ) -> None:
        if outcome.target is None:
            await self._writer.release(key, resource, meta, follower=follower)
        else:
            await self._writer.assign(
                key, resource, meta, outcome.target, clear_drain=self._drains(meta), follower=follower
            )
        self._backlog.end(key)
        self._transit.leave(key)

    async def _decide(self, resource: RingResource, meta: SlimMeta, follower: Follower | None) -> Outcome:
        scope, membership = self._scope, self._members.membership
        shard = meta.label(scope.labels.shard)
        if resource.removed and resource.subject.role is Role.CONTROLLED:
            # Whose child it was is not known any more; owners that leave go first, by acknowledgement.
            desired: Desired = Target(shard, by_owner=True) if shard and scope.owners_leave else OwnerUnassigned()
        elif resource.subject.role is Role.MAIN:
            desired = desire_main(resource.subject.key_of(meta), membership)
        else:
            desired = await self._desire_by_owner(resource, meta, membership, follower)
        return decide(
            Facts(
                role=resource.role,
                shard_label=shard,
                draining=self._drains(meta),
                in_scope=not resource.removed and scope.includes(resource, meta),
                desired=desired,
                membership=membership,
            )
        )

    async def _desire_by_owner(
        self, resource: RingResource, meta: SlimMeta, membership: Membership, follower: Follower | None
    ) -> Desired:
        reference, key = meta.controller, resource.subject.key_of(meta)
        if reference is None or key is None or follower is None:
            return NoKey()
        main = resource.subject.main.resource
        namespace = meta.namespace if main.namespaced else None
        owner = await self._reader.find(main, reference.name, namespace)
        exists = is_owner(reference.uid, owner.metadata if owner is not None else None)
        label = owner.metadata.label(self._scope.labels.shard) if owner is not None else None
        return desire_controlled(
            key, membership, owner_exists=exists, owner_label=label, owner_moves=follower.overtaken
        )

    def _drains(self, meta: SlimMeta) -> bool:
        return meta.label(self._scope.labels.drain) is not None
