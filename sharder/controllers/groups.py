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
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sharder.controllers.seen import ItemKey, Placed, SeenMeta, SeenObject, seen
from sharder.core import patches
from sharder.core.decisions import Decision, Target, desire_main
from sharder.core.keys import resource_key
from sharder.core.ringspec import Role
from shardsdk.errors import FenceClosed, NotFound, Retry, ShardingError
from shardsdk.kube.api import Fence
from shardsdk.kube.selectors import Selector, not_in
from shardsdk.protocol.objects import Resource
from shardsdk.runtime.objects import is_at_least

if TYPE_CHECKING:
    from sharder.controllers.placer import Placer

log = logging.getLogger(__name__)

#: Owners that one read of the children serves at most.
MAX_BATCH: Final = 1000
#: Batches under way at once: one reads while another patches.
MAX_BATCHES: Final = 2
#: Children are read by namespace while a batch spans no more than this many.
MAX_NAMESPACES: Final = 3
#: Conflicts on one child, or on one owner, that are answered by reading it again.
MAX_CONFLICTS: Final = 5
#: Sources remembered before those are dropped whose objects are no longer draining.
MAX_SOURCES: Final = 10_000


@dataclass(slots=True)
class Group:
    """An owner on its way; `shard` is the one that is gone (`None`: nobody has the owner).

    `stale`: a write met a newer version than `meta`.
    """

    key: ItemKey
    placed: Placed
    meta: SeenMeta
    since: float
    shard: str | None
    children: list[tuple[Placed, SeenMeta]] = field(default_factory=list)
    stale: bool = False


class GroupMover:
    """The groups of one ring."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._waiting: dict[str, Group] = {}
        self._moving: set[str] = set()
        #: Owners seen draining by this leader, with the shard that their children are on.
        self._sources: dict[str, str] = {}
        #: Targets of groups that were begun; kept while they are available.
        self._targets: dict[str, str] = {}
        #: Versions that our own writes gave to owners: what a watch shows from before them is old news.
        self._written: dict[str, str] = {}
        #: Owners whose last write had no answer: nobody knows whose they are.
        self._doubtful: set[str] = set()
        self._wake = asyncio.Event()
        self._batches = asyncio.Semaphore(MAX_BATCHES)

    def saw_draining(self, meta: SeenMeta) -> None:
        """An owner is asked to go, or about to be: its children are where it is.

        Only said while its shard is available, so before anything of it moved.
        """
        shard = meta.label(self._placer.labels.shard)
        if shard is None or shard not in self._placer.membership.available or meta.uid in self._moving:
            return
        if len(self._sources) >= MAX_SOURCES:
            draining = {uid for _, uid in self._placer.drains_since}
            self._sources = {uid: where for uid, where in self._sources.items() if uid in draining}
        self._sources[meta.uid] = shard

    def submit(self, key: ItemKey, placed: Placed, meta: SeenMeta) -> None:
        """Have an owner moved that is unassigned or stranded; once at a time."""
        if meta.uid in self._moving or self._is_old(meta):
            return
        shard = meta.label(self._placer.labels.shard)
        since = self._placer.take_first_seen(key)
        if len(self._targets) >= MAX_SOURCES:
            begun = self._waiting.keys() | self._moving
            for uid in self._targets.keys() - begun:
                # Forgotten halfway: its past is unknown from here on, so all children will be read.
                del self._targets[uid]
                self._sources.pop(uid, None)
        waiting = self._waiting.get(meta.uid)
        self._waiting[meta.uid] = Group(key, placed, meta, waiting.since if waiting else since, shard)
        self._wake.set()

    def _is_old(self, meta: SeenMeta) -> bool:
        """Whether we have written the owner since; a group begun by that would take children from their new shard."""
        written = self._written.get(meta.uid)
        return written is not None and not is_at_least(meta.resource_version, written)

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
        for uid, group in list(self._waiting.items()):
            if len(batch) == MAX_BATCH or (batch and group.placed != batch[0].placed):
                continue
            batch.append(self._waiting.pop(uid))
            self._moving.add(uid)
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
                stale = [group for group in left.values() if group.stale]
                same = await asyncio.gather(*map(self._look_again, stale))
                trying = [group for group, unchanged in zip(stale, same, strict=True) if unchanged]
                if not trying:
                    break
        except FenceClosed:
            log.info("groups not moved: the leadership or the hold has run out", extra={"ring": self._placer.name})
        except ShardingError as error:
            log.warning("groups not moved, will retry", extra={"ring": self._placer.name, "error": str(error)})
        finally:
            self._moving.difference_update(group.meta.uid for group in batch)
            self._batches.release()
        for group in left.values():
            self._placer.again(group.key, after_failure=True)

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
                log.warning(
                    "group not moved, will retry",
                    extra={
                        "ring": self._placer.name,
                        "namespace": group.meta.namespace,
                        "object": group.meta.name,
                        "error": str(error),
                    },
                )
            return False

    # -- letting go ------------------------------------------------------

    async def _let_go(self, batch: list[Group]) -> list[Group]:
        """The groups that nobody works on from here on, whatever comes back."""
        await self._clear_doubts(batch)
        batch = [group for group in batch if not group.stale]
        stranded = [group for group in batch if group.shard is not None]
        drained = await asyncio.gather(*(self._try(self._drain, group) for group in stranded))
        gone = {group.shard for group, done in zip(stranded, drained, strict=True) if done and group.shard}
        # The renewal begins after the last drain was answered: had the shard come
        # back before one of them, the lease would no longer be ours to renew.
        renewed = {shard for shard in gone if await self._renew(shard)}
        let_go = {
            group.meta.uid for group, done in zip(stranded, drained, strict=True) if done and group.shard in renewed
        }
        return [group for group in batch if group.shard is None or group.meta.uid in let_go]

    async def _clear_doubts(self, batch: list[Group]) -> None:
        """Have owners looked at again whose last write had no answer, once it can no longer be executed."""
        doubtful = [group for group in batch if group.meta.uid in self._doubtful]
        if doubtful:
            await self._placer.around.api.writes_settled()
        for group in doubtful:
            self._doubtful.discard(group.meta.uid)
            group.stale = True

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
        if group.meta.label(self._placer.labels.drain) is not None:
            return True
        patch = patches.drain(self._placer.labels, group.meta.resource_version)
        answer = await self._placer.write(group.placed, group.meta, patch, fences)
        group.meta = answer.metadata
        assert group.shard is not None
        self._sources[group.meta.uid] = group.shard
        return True

    # -- children --------------------------------------------------------

    async def _read_children(self, batch: list[Group]) -> None:
        if not batch:
            return
        owners = {group.meta.uid: group for group in batch}
        known = {uid: self._sources.get(uid) for uid in owners}
        selector = self._select_children(known.values())
        main = batch[0].placed.subject.main
        for child in self._placer.placed:
            subject = child.subject
            if child.retired or subject.role is not Role.CONTROLLED or subject.main.resource != main.resource:
                continue
            for namespace in self._namespaces(batch, subject.resource):
                async for objects in self._placer.around.api.stream(
                    subject.resource, namespace, selector=selector, model=SeenObject, metadata_only=True
                ):
                    for obj in objects:
                        reference = obj.metadata.controller
                        if reference is not None and (group := owners.get(reference.uid)) is not None:
                            group.children.append((child, obj.metadata))

    def _select_children(self, sources: Iterable[str | None]) -> Selector:
        """Children on one of `sources`, or on no available shard, or without one.

        An owner whose past this leader has not seen (`None`) may have been moved
        halfway by another: then every child is read.  What another owner's
        children cost is decoding them.
        """
        listed = list(sources)
        if None in listed:
            return Selector()
        others = self._placer.membership.available - set(listed)
        return Selector(labels=not_in(self._placer.labels.shard, others)) if others else Selector()

    def _namespaces(self, batch: list[Group], resource: Resource) -> list[str | None]:
        if not resource.namespaced:
            return [None]
        names = {group.meta.namespace for group in batch}
        if len(names) > MAX_NAMESPACES or "" in names:
            return [None]
        return sorted(names)  # type: ignore[return-value]

    # -- moving ----------------------------------------------------------

    def _target(self, group: Group) -> str | None:
        """Where the group goes: where it began to go, or else the ring's answer."""
        membership = self._placer.membership
        kept = self._targets.get(group.meta.uid)
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
        self._targets[group.meta.uid] = target
        for child, meta in group.children:
            if not await self._move_child(group, child, meta, target):
                return False
        labels = self._placer.labels
        patch = patches.assign(labels, target, group.meta.resource_version, clear_drain=True)
        try:
            answer = await self._placer.write(group.placed, group.meta, patch, fences)
        except NotFound:
            self._forget(group)
            return True
        except ShardingError as error:
            if error.retry is Retry.BACKOFF:
                self._doubtful.add(group.meta.uid)
            raise
        self._forget(group)
        self._remember(answer.metadata)
        decision = Decision.ASSIGN if group.shard is None else Decision.MOVE
        now = self._placer.around.clock.monotonic()
        self._placer.note(group.placed, decision, now - group.since)
        if group.shard is not None:
            self._placer.around.holds.moved(self._placer.name, group.shard)
        return True

    def _forget(self, group: Group) -> None:
        self._sources.pop(group.meta.uid, None)
        self._targets.pop(group.meta.uid, None)

    def _remember(self, meta: SeenMeta) -> None:
        if len(self._written) >= MAX_SOURCES:
            # By now the watches have shown the oldest.
            del self._written[next(iter(self._written))]
        self._written.pop(meta.uid, None)
        self._written[meta.uid] = meta.resource_version

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
