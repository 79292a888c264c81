"""The only code of the leader that writes labels; `kubectl sharding cleanup` takes them off where no ring is.

Does: find the fence that a write needs, bound the writes under way, patch the
labels of one object in the version that was decided by, and note what came of
it: for the lease of the shard that it was taken from, for the metrics, for people.

Refuses: to decide, to try again, and to read, but for what an answer means.
"""

from __future__ import annotations

import asyncio

from msgspec import json

from sharder.backlog.objects import ItemKey, RingResource
from sharder.backlog.scope import Members
from sharder.backlog.waiting import WaitingSince
from sharder.core import patches
from sharder.core.decisions import Decision
from sharder.core.membership import Membership
from sharder.core.ringspec import Role
from sharder.placement.followers import Follower
from sharder.placement.rejections import Refusals, Undone
from sharder.placement.slots import MAX_WRITES, WRITE_SECONDS, Slots
from sharder.takeover.controller import TakeoverController
from sharder.takeover.leadership import Leadership
from shardsdk.errors import (
    BadRequest,
    Conflict,
    FenceClosed,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ShardingError,
    may_be_executed,
)
from shardsdk.kube.absence import judge_absence
from shardsdk.kube.api import Fence, PatchKind
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.names import shown_name
from shardsdk.protocol.objects import GroupResource, SlimMeta, SlimObject


class _DrainsStill(Invalid):
    """An object has gone to another shard, and drains as before."""


class LabelWriter:
    """Writes the labels of one ring's objects.

    Every write raises what the API server answers, Conflict also when the membership that it was
    decided by has changed meanwhile, Invalid where the labels are in the answer as they were before,
    Crowded where its resource does not answer, and FenceClosed where its object is on a shard whose
    lease is not held (any more).
    """

    def __init__(
        self,
        ring: str,
        labels: RingLabels,
        members: Members,
        leadership: Leadership,
        takeover: TakeoverController,
        *,
        concurrent_writes: int,
        waiting: WaitingSince,
    ) -> None:
        self.refusals = Refusals(labels)
        self._lead = leadership
        self._takeover = takeover
        self._ring = ring
        self._labels = labels
        self._members = members
        self._slots = Slots(min(concurrent_writes, MAX_WRITES), leadership.clock)
        self._waiting = waiting
        #: Until when a write may be executed that has ended without an answer.
        self.unanswered_until = float("-inf")
        self._finishing = False
        self._under_way = 0
        self._idle = asyncio.Event()

    async def finish(self) -> None:
        """Send nothing more, and return once everything that was sent has ended; whoever writes waits for ever."""
        self._finishing = True
        while self._under_way:
            self._idle.clear()
            await self._idle.wait()

    def crowded(self, resource: RingResource) -> bool:
        """Whether a write to this resource would end with Crowded now."""
        return self._slots.crowded(resource.subject.resource.group_resource)

    def is_news(self, resource: RingResource, error: ShardingError) -> bool:
        """Whether the log is to have a line of what failed with an object of this resource."""
        return self.refusals.is_news(resource, error, self._lead.clock.monotonic())

    def may_take_from(self, shard: str | None) -> bool:
        """Whether objects of `shard` may go to others: it is available, or its lease is held."""
        return self._is_there(shard) or self._hold(shard) is not None

    async def drain(self, key: ItemKey, resource: RingResource, meta: SlimMeta, decided_by: Membership) -> None:
        """Ask an available shard to let go of the object, as was `decided_by` this membership."""
        await self._patch(resource, meta, self._draining(meta), (self._lead.fence,), decided_by=decided_by)
        self._note(key, resource, Decision.DRAIN)

    async def drain_stranded(self, resource: RingResource, meta: SlimMeta) -> SlimMeta:
        """Put the drain label on what a shard has that is gone: if it comes back, it works on it no more.

        Also on what carries it already: the answer proves that it still does, in this version.
        """
        fences = self._lead.fence, self._hold_of(meta)
        return (await self._patch(resource, meta, self._draining(meta), fences, more_follows=True)).metadata

    async def assign(
        self,
        key: ItemKey | None,
        resource: RingResource,
        meta: SlimMeta,
        target: str,
        *,
        clear_drain: bool = False,
        in_family: bool = False,
        follower: Follower | None = None,
    ) -> SlimMeta:
        """Give the object to `target`; returns it as it is then.

        `key` None: since when it has been waiting is another object's business.  `follower`: the object, if
        it follows its owner by itself; Conflict is raised also when it was overtaken.  Without a hold, a
        write goes under the confirmed lead where late it would do harm: to a child that follows its
        owner from one living shard to another, and to what is moved `in_family`, because the next
        leader may have moved the rest of the family, and not this object.
        """
        shard = meta.label(self._labels.shard)
        main = resource.role is not Role.CONTROLLED
        if shard is None and main and clear_drain and meta.label(self._labels.drain) is not None:
            # Where its drain label comes back with each write, its next shard has let go of it by now.
            self.refusals.check_pause(resource, meta, self._lead.clock.monotonic())
        patch = patches.assign(self._labels, target, meta.resource_version, clear_drain=clear_drain)
        answer = await self._take(resource, meta, patch, follower, confirmed=in_family or shard is not None)
        self._note(key, resource, Decision.ASSIGN if shard is None else Decision.MOVE)
        return answer

    def is_refused_lately(self, kind: GroupResource) -> bool:
        """Whether the API server has refused to change some object of this resource in the last minutes."""
        return self.refusals.any_lately_of(kind, self._lead.clock.monotonic())

    async def may_assign(self, resource: RingResource, meta: SlimMeta, target: str) -> bool:
        """Whether the API server lets the object be given to `target`, as a dry run tells; False is noted as a refusal.

        True also where a dry run cannot tell.  Raises: what a patch may mend that is sent again.
        """
        api, listed, namespace = self._lead.api, resource.subject.resource, meta.namespace or None
        # Of no version: nothing is stored, and the object may have changed since it was seen.
        patch: patches.Patch = {"metadata": {"labels": {self._labels.shard: target}}}
        try:
            async with self._slots.of(listed.group_resource):
                await api.raw(
                    "PATCH", listed.path(namespace, meta.name), query=[("dryRun", "All")],
                    headers={"Content-Type": PatchKind.MERGE.value}, body=json.encode(patch),
                    timeout_seconds=WRITE_SECONDS[resource.subject.role],
                )  # fmt: skip
        except NotFound as error:
            meant = await judge_absence(api, listed, meta.name, namespace, meta.uid, error)
        except (BadRequest, Forbidden, Invalid, MethodNotAllowed) as error:
            meant = error
        else:
            return True
        # That a webhook takes no dry runs is said by a bad request, and says nothing of the patch.
        if not isinstance(meant, Forbidden | Invalid):
            return True
        self.refusals.note(resource, meta, patch, meant, self._lead.clock.monotonic())
        return False

    async def release(
        self, key: ItemKey, resource: RingResource, meta: SlimMeta, *, follower: Follower | None = None
    ) -> None:
        """Take the ring's labels off the object; `follower` as for `assign`."""
        shard = meta.label(self._labels.shard)
        if resource.was_main and meta.label(self._labels.drain) is None:
            # As its shard would let go of it: anything else the webhook, which is still asked about controlled
            # resources, takes for a mistake, and puts the label back.  These two writes come back by the watch: what
            # is refused is not tried again for that.
            self.refusals.check_pause(resource, meta, self._lead.clock.monotonic())
            meta = await self.drain_stranded(resource, meta)
        patch = patches.release(self._labels, meta.resource_version)
        await self._take(resource, meta, patch, follower, confirmed=shard is not None)
        self._note(key, resource, Decision.RELEASE)

    async def _take(
        self,
        resource: RingResource,
        meta: SlimMeta,
        patch: patches.Patch,
        follower: Follower | None,
        *,
        confirmed: bool,
    ) -> SlimMeta:
        """Patch what takes an object away from whoever has it."""
        shard = meta.label(self._labels.shard)
        lead = self._lead
        # A main object of a shard that is there is asked back, never taken.
        if shard is None or (self._is_there(shard) and resource.role is Role.CONTROLLED):
            fences = (lead.fence, lead.confirmed) if confirmed else (lead.fence,)
            return (await self._patch(resource, meta, patch, fences, follower)).metadata
        try:
            answer = await self._patch(resource, meta, patch, (lead.fence, self._hold_of(meta)), follower)
        except _DrainsStill:
            self._takeover.moved(shard)
            raise
        self._takeover.moved(shard)
        return answer.metadata

    async def _patch(
        self,
        resource: RingResource,
        meta: SlimMeta,
        patch: patches.Patch,
        fences: tuple[Fence, ...],
        follower: Follower | None = None,
        *,
        decided_by: Membership | None = None,
        more_follows: bool = False,
    ) -> SlimObject:
        membership = decided_by or self._members.membership
        again = Undone(
            meta.resource_version, patch["metadata"]["labels"], not self._is_there(meta.label(self._labels.shard))
        )
        self.refusals.check_undone(resource, meta, again, self._lead.clock.monotonic())
        undone: Undone | None = None
        try:
            async with self._slots.of(resource.subject.resource.group_resource):
                if self._members.membership != membership:
                    raise Conflict("the ring's membership has changed")
                if self._finishing:
                    await asyncio.Event().wait()
                if follower is not None:
                    follower.send()
                answer = await self._send(resource, meta, patch, fences)
            if (version := answer.metadata.resource_version) != meta.resource_version:
                undone = again._replace(version=version)
            self._check_taken(resource, meta, patch, answer.metadata)
        except ShardingError as error:
            now = self._lead.clock.monotonic()
            self.refusals.note(resource, meta, patch, error, now, undone=undone)
            raise
        if not more_follows:  # else the write that follows shows whether the object changes hands
            self.refusals.forget(resource, meta, self._lead.clock.monotonic())
        return answer

    async def _send(
        self, resource: RingResource, meta: SlimMeta, patch: patches.Patch, fences: tuple[Fence, ...]
    ) -> SlimObject:
        self._under_way += 1
        seconds, api = WRITE_SECONDS[resource.subject.role], self._lead.api
        named = (resource.subject.resource, meta.name, meta.namespace or None)
        try:
            return await api.patch(
                *named, patch, model=SlimObject, metadata_only=True, fences=fences, timeout_seconds=seconds
            )
        except NotFound as error:
            meant = await judge_absence(api, *named, meta.uid, error)
            if meant is error:
                raise
            raise meant from error
        except BaseException as error:
            if may_be_executed(error):
                self.unanswered_until = max(self.unanswered_until, self._lead.clock.monotonic() + seconds)
            raise
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    def _check_taken(self, resource: RingResource, meta: SlimMeta, patch: patches.Patch, answer: SlimMeta) -> None:
        """Raises: Invalid, where somebody's admission has undone the patch, which is as good as refused."""
        asked = patch["metadata"]["labels"]
        changed = [each for each in (self._labels.shard, self._labels.drain) if each in asked]
        changed = [each for each in changed if asked[each] != meta.label(each)]
        # Whose it is decides, where that was to change: a drain label that went alone is no step.
        if changed and answer.label(changed[0]) == meta.label(changed[0]):
            raise Invalid(
                f"patch {shown_name(meta.name)}: the answer has its labels as before;"
                " an admission webhook puts them back"
            )
        # A shard that is given what drains lets go of it at once.
        given = asked.get(self._labels.shard) is not None and resource.role is not Role.CONTROLLED
        if given and self._labels.drain in asked and answer.label(self._labels.drain) is not None:
            raise _DrainsStill(
                f"patch {shown_name(meta.name)}: the answer has its drain label; an admission webhook puts it back"
            )

    def _note(self, key: ItemKey | None, resource: RingResource, decision: Decision) -> None:
        seconds = 0.0
        if key is not None:
            seconds = self._lead.clock.monotonic() - self._waiting.of(key)
            self._waiting.end(key)
        self._lead.counters.labelled(self._ring, resource, decision, seconds)

    def _draining(self, meta: SlimMeta) -> patches.Patch:
        return patches.drain(self._labels, meta.resource_version)

    def _is_there(self, shard: str | None) -> bool:
        return shard is None or shard in self._members.membership.available

    def _hold(self, shard: str | None) -> Fence | None:
        return self._takeover.fence_for(shard) if shard is not None else None

    def _hold_of(self, meta: SlimMeta) -> Fence:
        shard = meta.label(self._labels.shard)
        hold = self._hold(shard)
        if hold is None:
            # It is offered again once the lease is ours.
            raise FenceClosed(f"the lease of shard {shard} is not held")
        return hold
