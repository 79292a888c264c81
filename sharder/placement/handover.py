"""Moving an owner together with the objects that it controls.

The order in which a family changes hands is a table, `sharder.core.handover`; here its
steps are taken.  So whoever reconciles the owner sees its children, and a shard that
comes back in between finds its objects draining, never half moved.

One read of the children serves every family of its main resource that was waiting when it
began, and one renewal of a fence every family of its shard; apart from that no family waits for another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sharder.backlog.backlog import REFUSED_SECONDS, Backlog
from sharder.backlog.objects import ItemKey, RingResource, controls, slim
from sharder.backlog.scope import Members, RingScope
from sharder.core.handover import Facts, Phase, Step, after, begin, choose_target, next_step
from sharder.core.keys import resource_key
from sharder.placement.children import Family, read_children
from sharder.placement.coalescing import CoalescedPer
from sharder.placement.expectations import Expectations
from sharder.placement.families import Families
from sharder.placement.followers import Followers
from sharder.placement.label_writer import LabelWriter
from sharder.placement.slots import Crowded
from sharder.placement.transit import Transit
from sharder.takeover.controller import TakeoverController
from shardsdk.errors import FenceClosed, NotFound, NotServed, RetryRule, ShardingError
from shardsdk.kube.api import Api
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import SlimMeta

log = logging.getLogger(__name__)

#: Owners that one read of the children, or one renewal of a hold, serves at most.
MAX_BATCH: Final = 1000
#: Families under way at once; their writes share the label writer's slots.
MAX_MOVING: Final = 1000
#: Conflicts on one child, or on one owner, that are answered by reading it again.
MAX_CONFLICTS: Final = 5
#: How long a family waits that could not be moved, at first and at most; doubles.
RETRY_SECONDS: Final = (0.05, 10.0)
#: Two moments closer than this are one.
INSTANT_SECONDS: Final = 1e-3
#: Families that could not be moved and are remembered; the oldest may be tried again too soon.
MAX_HELD_UP: Final = 10_000


@dataclass(slots=True)
class HeldUp:
    """An owner that could not be moved in this version, and how often in a row; not again before `until`."""

    version: str
    times: int
    until: float


class Handovers:
    """The families of one ring."""

    def __init__(
        self,
        scope: RingScope,
        members: Members,
        api: Api,
        takeover: TakeoverController,
        *,
        backlog: Backlog,
        families: Families,
        transit: Transit,
        writer: LabelWriter,
        followers: Followers,
        expectations: Mapping[int, Expectations],
        clock: Clock,
    ) -> None:
        self._scope = scope
        self._members = members
        self._api = api
        self._takeover = takeover
        self._backlog = backlog
        self._families = families
        self._transit = transit
        self._writer = writer
        self._followers = followers
        self._expectations = expectations
        self._clock = clock
        self._waiting: dict[str, Family] = {}
        self._held_up: dict[ItemKey, HeldUp] = {}
        self._wake = asyncio.Event()
        self._places = asyncio.Semaphore(MAX_MOVING)
        #: A lease whose renewal is not answered holds up no other shard's families.
        self._renewals = CoalescedPer[str | None, Family](self._renew, most=MAX_BATCH)
        #: A main resource whose children cannot be read holds up no others.
        self._reads = CoalescedPer[RingResource, Family](self._read, most=MAX_BATCH)

    def stays(self, key: ItemKey, meta: SlimMeta) -> None:
        """An owner has a shard and does not drain; whatever was begun with it has ended."""
        if not self._followers.is_moving(meta.uid) and meta.uid not in self._waiting:
            self._expected(key).ended(meta.uid)
            self.forget(key)

    def forget(self, key: ItemKey) -> None:
        """An owner is gone, or where it belongs: it is held up no more."""
        self._held_up.pop(key, None)

    def submit(self, key: ItemKey, resource: RingResource, meta: SlimMeta) -> None:
        """Have an owner moved that is unassigned or stranded; once at a time."""
        if self._followers.is_moving(meta.uid):
            self._backlog.defer(key)
            return
        if self._is_held_up(key, meta) or self._expected(key).is_stale(meta, self._clock.monotonic()):
            return
        shard = meta.label(self._scope.labels.shard)
        if shard is not None and key not in self._held_up:
            self._families.want()
        self._waiting[meta.uid] = Family(key, resource, meta, shard, let_go=shard is None)
        self._wake.set()

    def _expected(self, key: ItemKey) -> Expectations:
        return self._expectations[key.resource]

    def compact(self) -> None:
        """Let go of the room that a mass move has taken."""
        self._waiting, self._held_up = dict(self._waiting), dict(self._held_up)
        for expected in self._expectations.values():
            expected.prune(self._clock.monotonic())

    def retry(self) -> None:
        """Shards came, or one more may be taken from: try at once what was held up."""
        for key, held_up in self._held_up.items():
            held_up.until = 0.0
            self._backlog.enqueue(key)

    def _is_held_up(self, key: ItemKey, meta: SlimMeta) -> bool:
        held_up = self._held_up.get(key)
        if held_up is None or held_up.version != meta.resource_version:
            return False
        # It is offered again at that very moment, as the queue's clock has it.
        return self._clock.monotonic() < held_up.until - INSTANT_SECONDS

    def _hold_up(self, family: Family) -> None:
        """Try again later, the longer the more often it has failed."""
        before = self._held_up.pop(family.key, None)
        times = before.times + 1 if before is not None else 0
        # What no shard has waits for nothing but this patch.
        pauses = REFUSED_SECONDS if family.refused and family.shard is not None else RETRY_SECONDS
        seconds = double(pauses[0], times, pauses[1])
        if len(self._held_up) >= MAX_HELD_UP:
            del self._held_up[next(iter(self._held_up))]
        self._held_up[family.key] = HeldUp(family.meta.resource_version, times, self._clock.monotonic() + seconds)
        self._backlog.requeue_after(family.key, seconds)

    async def run(self) -> None:
        """Move families until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wake.wait()
                await self._places.acquire()
                if self._waiting:
                    uid = next(iter(self._waiting))
                    self._followers.begin(uid)
                    tasks.create_task(self._carry(uid, self._waiting.pop(uid)))
                else:
                    self._wake.clear()
                    self._places.release()

    async def _carry(self, uid: str, family: Family) -> None:
        try:
            moved = await self._try(family)
        finally:
            self._followers.end(uid)
            self._places.release()
        if not moved:
            self._hold_up(family)

    async def _try(self, family: Family) -> bool:
        """Whether it has moved, in the end; it goes on or starts over when an object has changed meanwhile."""
        try:
            for left in reversed(range(MAX_CONFLICTS)):
                try:
                    return await self._take_steps(family)
                except ShardingError as error:
                    if error.retry is not RetryRule.REFRESH or not await self._look_again(family) or not left:
                        raise
        except (FenceClosed, Crowded):
            pass
        except ShardingError as error:
            family.refused = self._writer.refusals.has(error)
            # What is told of refusals once a minute names one for all.
            level = logging.WARNING if self._writer.is_news(family.resource, error) else logging.DEBUG
            log.log(level, "family not moved, will retry", extra=self._extra(family, error))
        except Exception as error:
            log.exception("family not moved, will retry", extra=self._extra(family, error))
        return False

    async def _take_steps(self, family: Family) -> bool:
        unread = self._expected(family.key).is_unread(family.meta.uid)
        phase: Phase | None = begin(unread=unread, let_go=family.let_go, gathered=family.gathered)
        while phase is not Phase.MOVED:
            family.gathered = phase is Phase.GATHERED
            step = next_step(phase, lambda: self._facts(family)) if phase is not None else None
            if phase is None or step is None:
                return False
            succeeded = await self._take(step, family)
            phase = after(phase, succeeded=succeeded, let_go=family.let_go)
        return True

    def _facts(self, family: Family) -> Facts:
        in_scope = not family.resource.removed and self._scope.includes(family.resource, family.meta)
        goes, shards = (family.target, family.chosen_among, self._target(family)), self._members.membership
        return Facts(self._may_take(family), *goes, shards.staying, shards.available, in_scope)

    async def _take(self, step: Step, family: Family) -> bool:
        """Whether a step has succeeded."""
        match step:
            case Step.READ_OWNER:
                return await self._read_owner(family)
            case Step.DRAIN_OWNER:
                await self._drain(family)
            case Step.RENEW_FENCE:
                await self._renewals.join(family.shard, family)
                return family.let_go
            case Step.AWAIT_FOLLOWERS:
                await self._followers.settled(family.meta.uid)
            case Step.AIM:
                family.target, family.chosen_among = self._target(family), self._members.membership.staying
            case Step.LOOK_AT_WATCHES:
                family.since = self._clock.monotonic()
                family.children = self._find(family)
                return family.children is not None
            case Step.PATCH_CHILDREN:
                return await self._patch_children(family)
            case Step.AWAIT_WATCHES:
                return await self._await_watches(family)
            case Step.LIST_CHILDREN:
                await self._reads.join(family.resource, family)
                return family.children is not None
            case Step.PATCH_OWNER:
                await self._patch_owner(family)
        return True

    async def _read_owner(self, family: Family) -> bool:
        """Read an owner whose last write had no answer, once that can no longer be executed."""
        await self._api.writes_settled()
        same = await self._look_again(family)
        # What a watch shows that lags is older than this, and begins no family.
        self._expected(family.key).wrote(family.meta, self._clock.monotonic())
        self._expected(family.key).note_read(family.meta.uid)
        return same

    async def _look_again(self, family: Family) -> bool:
        """Whether a family that met a conflict may go on or start over at once, with its owner as it is now.

        An owner that is written all the time has changed again by the time that the
        queue would offer it; one whose labels say something else is decided anew.
        """
        shard, drain = self._scope.labels.shard, self._scope.labels.drain
        before, resource = family.meta, family.resource.subject.resource
        found = await self._api.find(resource, before.name, before.namespace or None)
        if found is None or found.metadata.uid != before.uid:
            return False
        family.meta, family.children = slim(found.metadata, self._scope.labels), None
        return all(family.meta.label(key) == before.label(key) for key in (shard, drain))

    def _extra(self, family: Family, error: Exception) -> dict[str, str]:
        meta, resource = family.meta, str(family.resource.subject.resource.group_resource)
        where = {"resource": resource, "namespace": meta.namespace, "object": meta.name}
        return {"ring": self._scope.name, **where, "error": str(error)}

    # -- letting go ------------------------------------------------------

    def _may_take(self, family: Family) -> bool:
        """Whether the family's shard is gone still and its lease is held; False: not any more, or it is back."""
        gone = family.shard not in self._members.membership.available
        return family.shard is None or (gone and self._writer.may_take_from(family.shard))

    async def _drain(self, family: Family) -> None:
        began = family.meta.label(self._scope.labels.drain) is None
        family.meta = await self._writer.drain_stranded(family.resource, family.meta)
        if began:
            self._expected(family.key).ended(family.meta.uid)

    async def _renew(self, batch: list[Family]) -> None:
        # It begins after the drain of each of them was answered.
        shard = batch[0].shard
        renewed = shard is None or await self._takeover.renew(shard)
        for family in batch:
            family.let_go = renewed

    async def _read(self, batch: list[Family]) -> None:
        main, busy = batch[0].resource.subject.main, self._followers.moving > 1
        await read_children(self._api, self._scope, main, batch, busy=busy)

    # -- moving ----------------------------------------------------------

    def _target(self, family: Family) -> str | None:
        key = resource_key(family.resource.subject.resource, family.meta.namespace, family.meta.name)
        return choose_target(self._expected(family.key).target(family.meta.uid), key, self._members.membership)

    def _find(self, family: Family) -> list[tuple[RingResource, SlimMeta]] | None:
        """The children that the watches show, if those can be asked."""
        if family.target is None:
            return None
        return self._families.find(family.resource.subject.main, family.meta, family.target)

    async def _await_watches(self, family: Family) -> bool:
        """Whether the watches prove that `children` are all that are left, once what they had shown has moved."""
        moved = {(child, meta.namespace, meta.name) for child, meta in family.children or ()}
        complete = await self._families.is_complete(family.resource.subject.main, family.since)
        late = self._find(family) if complete else None
        family.children = late and [each for each in late if (each[0], each[1].namespace, each[1].name) not in moved]
        return late is not None

    async def _patch_children(self, family: Family) -> bool:
        target = family.target
        assert target is not None
        self._expected(family.key).began(family.meta.uid, target)
        for child, meta in family.children or ():
            if not await self._move_child(family, child, meta, target):
                return False
        return True

    async def _patch_owner(self, family: Family) -> None:
        target = family.target
        assert target is not None
        try:
            owner = await self._writer.assign(
                family.key, family.resource, family.meta, target, clear_drain=True, in_family=True
            )
        except NotServed:
            raise  # it may be there all the same
        except NotFound:
            self._ended(family)
            return
        except ShardingError as error:
            if error.retry is RetryRule.BACKOFF:
                self._expected(family.key).note_unread(family.meta.uid)
            raise
        self._ended(family)
        self._expected(family.key).wrote(owner, self._clock.monotonic())

    def _ended(self, family: Family) -> None:
        self._expected(family.key).ended(family.meta.uid)
        self.forget(family.key)
        self._backlog.end(family.key)
        self._transit.leave(family.key)

    async def _move_child(self, family: Family, child: RingResource, meta: SlimMeta, target: str) -> bool:
        writer = self._writer
        current: SlimMeta | None = meta
        for _ in range(MAX_CONFLICTS):
            assert current is not None
            shard = current.label(self._scope.labels.shard)
            if shard == target or (child.was_main and shard in self._members.membership.available):
                return True  # it is there, or will be asked back by itself
            if not writer.may_take_from(shard):
                assert shard is not None
                self._takeover.enqueue(shard)
                return False
            try:
                await self._write_child(family, child, current, target)
            except NotServed:
                raise  # it may be there all the same; of a type that is gone for good the ring soon knows
            except NotFound:
                return True
            except ShardingError as error:
                if error.retry is not RetryRule.REFRESH:
                    raise
                current = await self._still_a_child(family, child, current)
                if current is None:
                    return True
                continue
            return True
        return False

    async def _write_child(self, family: Family, child: RingResource, meta: SlimMeta, target: str) -> None:
        patch = self._families.begin(child, meta)
        try:
            written = await self._writer.assign(None, child, meta, target, clear_drain=True, in_family=True)
        except BaseException as error:
            # Tried again, the family may have to go elsewhere: to where this child is now, perhaps.
            self._followers.note_unanswered(family.meta.uid, error)
            self._families.failed(patch)
            raise
        self._families.answered(patch, written.resource_version)

    async def _still_a_child(self, family: Family, child: RingResource, meta: SlimMeta) -> SlimMeta | None:
        resource = child.subject.resource
        found = await self._api.find(resource, meta.name, meta.namespace or None)
        if found is None:
            return None
        now = slim(found.metadata, self._scope.labels)
        return now if controls(family.resource.subject.main, family.meta, child, now) else None
