"""Moving an owner together with the objects that it controls.

Does: carry out the order in which a group changes hands.  Of an owner whose
shard is gone: put the drain label on it, renew the hold on the shard's lease,
read the children consistently, patch them, and the owner last.  Of an owner
that nobody has (acknowledged, or never placed): read the children, patch them,
the owner last.  So whoever reconciles the owner sees its children, and a shard
that comes back in between finds its objects draining, never half moved.

Refuses: to move an owner whose children it could not move, and to trust what
was read before the owner was let go.  One read of the children serves every
group that was waiting when it began.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sharder.controllers.children import read_children, select_children
from sharder.controllers.past import Past
from sharder.controllers.seen import ItemKey, Placed, SeenMeta, SeenObject, seen
from sharder.core import patches
from sharder.core.decisions import Decision, Target, desire_main
from sharder.core.keys import resource_key
from shardsdk.errors import FenceClosed, NotFound, Retry, ShardingError
from shardsdk.kube.api import Fence

if TYPE_CHECKING:
    from sharder.controllers.placer import Placer

log = logging.getLogger(__name__)

#: Owners that one read of the children serves at most.
MAX_BATCH: Final = 1000
#: Batches under way at once: one reads while another patches.
MAX_BATCHES: Final = 2
#: Conflicts on one child, or on one owner, that are answered by reading it again.
MAX_CONFLICTS: Final = 5
#: How long a group waits that could not be moved, at first and at most; doubles.
RETRY_SECONDS: Final = (0.05, 10.0)
#: Groups that could not be moved and are remembered; the oldest may be tried again too soon.
MAX_HELD_UP: Final = 10_000


@dataclass(slots=True)
class Group:
    """An owner on its way; `shard` is the one that is gone (`None`: nobody has the owner).

    `let_go`: nobody works on it from here on, as long as its labels stay.
    `stale`: a write met a newer version than `meta`.
    """

    key: ItemKey
    placed: Placed
    meta: SeenMeta
    since: float
    shard: str | None
    children: list[tuple[Placed, SeenMeta]] = field(default_factory=list)
    let_go: bool = False
    stale: bool = False


@dataclass(slots=True)
class HeldUp:
    """An owner that could not be moved in this version, and how often in a row; not again before `until`."""

    key: ItemKey
    version: str
    times: int
    until: float


class GroupMover:
    """The groups of one ring."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._waiting: dict[str, Group] = {}
        self._moving: set[str] = set()
        self._held_up: dict[str, HeldUp] = {}
        self._past = Past()
        self._wake = asyncio.Event()
        self._batches = asyncio.Semaphore(MAX_BATCHES)

    def drained(self, meta: SeenMeta) -> None:
        """Our own write has asked an owner to go that was not draining: nothing of it has moved yet."""
        shard = meta.label(self._placer.labels.shard)
        # Its shard may have been faster than the answer, and the group on its way.
        begun = meta.uid in self._moving or self._past.target(meta.uid) is not None
        if shard is not None and not begun:
            self._past.drained(meta.uid, shard)

    def stays(self, meta: SeenMeta) -> None:
        """An owner has a shard and does not drain; whatever was begun with it has ended."""
        if meta.uid not in self._moving and meta.uid not in self._waiting:
            self._past.ended(meta.uid)

    def submit(self, key: ItemKey, placed: Placed, meta: SeenMeta) -> None:
        """Have an owner moved that is unassigned or stranded; once at a time."""
        if meta.uid in self._moving or self._is_held_up(meta):
            return
        if self._past.is_old(meta, self._placer.around.clock.monotonic()):
            return
        shard = meta.label(self._placer.labels.shard)
        since = self._placer.take_first_seen(key)
        waiting = self._waiting.get(meta.uid)
        self._waiting[meta.uid] = Group(key, placed, meta, waiting.since if waiting else since, shard)
        self._wake.set()

    def retry(self) -> None:
        """Shards came, or one more may be taken from: try at once what was held up."""
        for held_up in self._held_up.values():
            held_up.until = 0.0
            self._placer.queue.add(held_up.key)

    def _is_held_up(self, meta: SeenMeta) -> bool:
        held_up = self._held_up.get(meta.uid)
        if held_up is None or held_up.version != meta.resource_version:
            return False
        return self._placer.around.clock.monotonic() < held_up.until

    def _hold_up(self, group: Group) -> None:
        """Try again later, the longer the more often it has failed."""
        before = self._held_up.pop(group.meta.uid, None)
        times = before.times + 1 if before is not None else 0
        seconds = min(RETRY_SECONDS[0] * 2.0**times, RETRY_SECONDS[1])
        until = self._placer.around.clock.monotonic() + seconds
        if len(self._held_up) >= MAX_HELD_UP:
            del self._held_up[next(iter(self._held_up))]
        self._held_up[group.meta.uid] = HeldUp(group.key, group.meta.resource_version, times, until)
        self._placer.again(group.key, seconds)

    async def run(self) -> None:
        """Move groups until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wake.wait()
                await self._batches.acquire()
                batch = self._take_batch()
                if batch:
                    tasks.create_task(self._run_batch(batch))
                else:
                    self._batches.release()

    def _take_batch(self) -> list[Group]:
        batch: list[Group] = []
        for group in self._waiting.values():
            if not batch or group.placed == batch[0].placed:
                batch.append(group)
            if len(batch) == MAX_BATCH:
                break
        for group in batch:
            del self._waiting[group.meta.uid]
            self._moving.add(group.meta.uid)
        if not self._waiting:
            self._wake.clear()
        return batch

    async def _run_batch(self, batch: list[Group]) -> None:
        left = {group.meta.uid: group for group in batch}
        try:
            trying = batch
            for _ in range(MAX_CONFLICTS):
                for group in await self._try_batch(trying):
                    del left[group.meta.uid]
                    self._held_up.pop(group.meta.uid, None)
                stale = [group for group in left.values() if group.stale]
                same = await asyncio.gather(*map(self._look_again, stale))
                trying = [group for group, unchanged in zip(stale, same, strict=True) if unchanged]
                if not trying:
                    break
        except FenceClosed:
            log.info("groups not moved: the leadership or the hold has run out", extra={"ring": self._placer.name})
        except ShardingError as error:
            log.warning("groups not moved, will retry", extra={"ring": self._placer.name, "error": str(error)})
        except Exception:
            log.exception("groups not moved, will retry", extra={"ring": self._placer.name})
        finally:
            self._moving.difference_update(group.meta.uid for group in batch)
            self._batches.release()
        for group in left.values():
            self._hold_up(group)

    async def _try_batch(self, batch: list[Group]) -> list[Group]:
        """Go through every step once; the groups that have moved."""
        ready = await self._let_go(batch)
        await self._read_children(ready)
        moved = await asyncio.gather(*(self._try(self._move, group) for group in ready))
        return [group for group, done in zip(ready, moved, strict=True) if done]

    async def _look_again(self, group: Group) -> bool:
        """Whether a group that met a conflict may start over at once, with its owner as it is now.

        An owner that is written all the time has changed again by the time that the
        queue would offer it; one whose labels say something else is decided anew.
        """
        shard, drain = self._placer.labels.shard, self._placer.labels.drain
        before, resource = group.meta, group.placed.subject.resource
        found = await self._placer.around.api.find(resource, before.name, before.namespace or None)
        if found is None or found.metadata.uid != before.uid:
            return False
        group.meta, group.children, group.stale = seen(found).metadata, [], False
        return all(group.meta.label(key) == before.label(key) for key in (shard, drain))

    async def _try(self, step: Callable[[Group], Awaitable[bool]], group: Group) -> bool:
        try:
            async with self._placer.slots:
                return await step(group)
        except FenceClosed:
            return False
        except ShardingError as error:
            group.stale = error.retry is Retry.REFRESH
            if not group.stale:
                log.warning("group not moved, will retry", extra=self._extra(group, error))
            return False
        except Exception as error:
            log.exception("group not moved, will retry", extra=self._extra(group, error))
            return False

    def _extra(self, group: Group, error: Exception) -> dict[str, str]:
        meta, resource = group.meta, str(group.placed.subject.resource.group_resource)
        where = {"resource": resource, "namespace": meta.namespace, "object": meta.name}
        return {"ring": self._placer.name, **where, "error": str(error)}

    # -- letting go ------------------------------------------------------

    async def _let_go(self, batch: list[Group]) -> list[Group]:
        """The groups that nobody works on from here on, whatever comes back."""
        await self._clear_doubts(batch)
        batch = [group for group in batch if not group.stale]
        # One that starts over after a conflict has been let go: its labels are what they were then.
        stranded = [group for group in batch if group.shard is not None and not group.let_go]
        drained = await asyncio.gather(*(self._try(self._drain, group) for group in stranded))
        gone = {group.shard for group, done in zip(stranded, drained, strict=True) if done and group.shard is not None}
        # The renewal begins after the last drain was answered: had the shard come
        # back before one of them, the lease would no longer be ours to renew.
        renewed = {shard for shard in gone if await self._renew(shard)}
        for group, done in zip(stranded, drained, strict=True):
            group.let_go = done and group.shard in renewed
        return [group for group in batch if group.shard is None or group.let_go]

    async def _clear_doubts(self, batch: list[Group]) -> None:
        """Have owners looked at again whose last write had no answer, once it can no longer be executed."""
        doubtful = [group for group in batch if self._past.take_doubt(group.meta.uid)]
        for group in doubtful:
            group.stale = True
        if doubtful:
            await self._placer.around.api.writes_settled()

    async def _renew(self, shard: str) -> bool:
        return await self._placer.around.holds.renew(self._placer.name, shard)

    def _fences(self, shard: str | None) -> tuple[Fence, ...] | None:
        """What a write that takes something away from `shard` goes under; `None`: it may not."""
        if shard is None or shard in self._placer.membership.available:
            return ()
        hold = self._placer.around.holds.hold(self._placer.name, shard)
        return (hold,) if hold is not None else None

    async def _drain(self, group: Group) -> bool:
        fences = self._fences(group.shard)
        if fences is None or not fences:
            return False
        began = group.meta.label(self._placer.labels.drain) is None
        # Also one that drains already: the answer proves that it still does, in this version.
        patch = patches.drain(self._placer.labels, group.meta.resource_version)
        answer = await self._placer.write(group.placed, group.meta, patch, fences)
        group.meta = answer.metadata
        if began and group.shard is not None:
            self._past.ended(group.meta.uid)
            self._past.drained(group.meta.uid, group.shard)
        return True

    # -- children --------------------------------------------------------

    async def _read_children(self, batch: list[Group]) -> None:
        if not batch:
            return
        placer = self._placer
        owners = {group.meta.uid: group for group in batch}
        sources = [self._past.source(uid) for uid in owners]
        selector = select_children(placer.labels, sources, placer.membership.available)
        main = batch[0].placed.subject.main
        namespaces = (group.meta.namespace for group in batch)
        async for child, meta in read_children(placer.around.api, placer.placed, main, selector, namespaces):
            reference = meta.controller
            if reference is not None and (group := owners.get(reference.uid)) is not None:
                group.children.append((child, meta))

    # -- moving ----------------------------------------------------------

    def _target(self, group: Group) -> str | None:
        """Where the group goes: where it began to go, or else the ring's answer."""
        membership = self._placer.membership
        kept = self._past.target(group.meta.uid)
        if kept is not None and kept in membership.available:
            return kept
        main = group.placed.subject.resource
        desired = desire_main(resource_key(main, group.meta.namespace, group.meta.name), membership)
        return desired.name if isinstance(desired, Target) else None

    async def _move(self, group: Group) -> bool:
        target = self._target(group)
        fences = self._fences(group.shard)
        if target is None or fences is None or (group.shard is not None and not fences):
            return False
        begun = self._past.target(group.meta.uid)
        self._past.began(group.meta.uid, target)
        if begun is not None and begun != target:
            return False  # some children may be where the read did not look
        for child, meta in group.children:
            if not await self._move_child(group, child, meta, target):
                return False
        labels = self._placer.labels
        patch = patches.assign(labels, target, group.meta.resource_version, clear_drain=True)
        try:
            answer = await self._placer.write(group.placed, group.meta, patch, fences)
        except NotFound:
            self._past.ended(group.meta.uid)
            return True
        except ShardingError as error:
            if error.retry is Retry.BACKOFF:
                self._past.doubt(group.meta.uid)
            raise
        self._past.ended(group.meta.uid)
        decision = Decision.ASSIGN if group.shard is None else Decision.MOVE
        now = self._placer.around.clock.monotonic()
        self._past.wrote(answer.metadata, now)
        self._placer.note(group.placed, decision, now - group.since)
        if group.shard is not None:
            self._placer.around.holds.moved(self._placer.name, group.shard)
        return True

    async def _move_child(self, group: Group, child: Placed, meta: SeenMeta, target: str) -> bool:
        labels = self._placer.labels
        current: SeenMeta | None = meta
        for _ in range(MAX_CONFLICTS):
            assert current is not None
            shard = current.label(labels.shard)
            if shard == target:
                return True
            fences = self._fences(shard)
            if fences is None:
                assert shard is not None
                self._placer.around.holds.look_at(self._placer.name, shard)
                return False
            patch = patches.assign(labels, target, current.resource_version)
            try:
                await self._placer.write(child, current, patch, fences)
            except NotFound:
                return True
            except ShardingError as error:
                if error.retry is not Retry.REFRESH:
                    raise
                current = await self._still_a_child(group, child, current)
                if current is None:
                    return True
                continue
            self._placer.note(child, Decision.ASSIGN if shard is None else Decision.MOVE, 0.0)
            if fences and shard is not None:
                self._placer.around.holds.moved(self._placer.name, shard)
            return True
        return False

    async def _still_a_child(self, group: Group, child: Placed, meta: SeenMeta) -> SeenMeta | None:
        resource = child.subject.resource
        found = await self._placer.around.api.find(resource, meta.name, meta.namespace or None)
        if found is None:
            return None
        obj: SeenObject = seen(found)
        reference = obj.metadata.controller
        return obj.metadata if reference is not None and reference.uid == group.meta.uid else None
