"""The children that have to move with their owners, as watches show them while many owners change hands.

Does: hold what is not where the ring wants its owner, so that a family need not
read all children of all owners; and prove when that is complete for a family.

A watch may lag.  What proves it is a patch of ours: begun after the owner was let
go, answered, and then shown by the watch.  Whatever its last shard had made before
has come by then, because a watch shows the changes of a resource in their order.
Any child that moves is such a patch, whosever it is.

Refuses: to believe a watch for any other reason (that it is quiet, that versions
of other resources are older, that it was complete some time ago), and to wait for
a proof that nobody is about to bring.  Without one the children are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from sharder.backlog.objects import RingResource, controls, slim
from sharder.backlog.scope import Members, RingScope
from sharder.core.keys import resource_key
from sharder.core.membership import Membership
from sharder.core.ringspec import ResolvedMain, Role
from sharder.placement.slots import WRITE_SECONDS
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Reflector
from shardsdk.protocol.objects import SlimMeta, SlimObject

#: How long a family waits for the watch to show a patch, at most; a watch is some milliseconds late as a rule.
PROOF_SECONDS: Final = 1.0
#: How long owners wait for the watches to be complete before they are drained.
READY_SECONDS: Final = 5.0
#: How long the watches go on when no owner is asked back any more.
IDLE_SECONDS: Final = 60.0
#: Children of one resource held at most; are there more, then they are read.
MAX_CHILDREN: Final = 50_000

_BY_OWNER: Final = "owner"


@dataclass(slots=True, eq=False)
class ChildPatch:
    """A patch of a child that is under way or was answered; `shown` are the versions that the watch has shown since."""

    child: RingResource
    namespace: str
    name: str
    began: float
    shown: tuple[str, ...] = ()
    answered: str | None = None


class Families:
    """Watches of one ring's controlled resources; only while owners change hands."""

    def __init__(self, scope: RingScope, members: Members, api: Api, *, clock: Clock, rng: Random) -> None:
        self._scope = scope
        self._members = members
        self._api = api
        self._clock = clock
        self._rng = rng
        #: Called whenever a watch is complete.
        self.when_complete: list[Callable[[], None]] = []
        self._membership = Membership()
        self._watches: dict[RingResource, Reflector[SlimObject]] = {}
        self._too_many = False
        self._began_at = self._wanted_at = 0.0
        self._wanted = asyncio.Event()
        self._ended = asyncio.Event()
        self._news = asyncio.Event()
        self._awaited: dict[tuple[RingResource, str, str], ChildPatch] = {}
        #: When the latest patch began that the watch has shown.
        self._patched_at: dict[RingResource, float] = {}

    # -- running -----------------------------------------------------------

    async def run(self) -> None:
        """Watch while it is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._ended.clear()
            self._start()
            try:
                async with asyncio.TaskGroup() as tasks:
                    running = [tasks.create_task(watch.run()) for watch in self._watches.values()]
                    await self._ended.wait()
                    for task in running:
                        task.cancel()
            finally:
                self._watches = {}
                self._awaited.clear()
                self._patched_at.clear()
                self._tell()

    def want(self) -> None:
        """Many owners may be about to change hands."""
        self._wanted_at = self._clock.monotonic()
        if self._children() and not self._wanted.is_set():
            self._began_at = self._wanted_at
            self._wanted.set()

    def look(self, *, settled: bool) -> None:
        """End the watches once the ring is `settled`, or nobody has asked for them for a while."""
        idle = self._clock.monotonic() - self._wanted_at >= IDLE_SECONDS
        if self._wanted.is_set() and (idle or settled):
            self._wanted.clear()
            self._ended.set()
        # What a list has shown, or nothing, is waited for by nobody any more.
        late = self._clock.monotonic() - WRITE_SECONDS[Role.CONTROLLED] - PROOF_SECONDS
        for key in [key for key, patch in self._awaited.items() if patch.began < late]:
            del self._awaited[key]

    def set_membership(self) -> None:
        """Children belong elsewhere now: all are looked at again."""
        self._membership, self._too_many = self._members.membership, False
        self.restart()

    def restart(self) -> None:
        """List anew."""
        self._began_at = self._clock.monotonic()
        for watch in self._watches.values():
            watch.restart()

    @property
    def ready(self) -> bool:
        """Whether owners may be drained: the watches are complete, or it takes too long to wait for them."""
        if not self._wanted.is_set() or self._too_many or self._clock.monotonic() - self._began_at >= READY_SECONDS:
            return True
        return bool(self._watches) and all(watch.position is not None for watch in self._watches.values())

    def _start(self) -> None:
        self._membership, self._too_many = self._members.membership, False
        for child in self._children():
            self._watches[child] = Reflector(
                self._api, child.subject.resource, model=SlimObject, metadata_only=True,
                keep=lambda obj, child=child: self._differs(child, obj),  # type: ignore[misc]
                transform=lambda obj, child=child: self._shown(child, obj),  # type: ignore[misc]
                on_synced=self._complete, indexes={_BY_OWNER: _owner},
                name=f"{self._scope.name}/{child.subject.resource.plural}/families",
                clock=self._clock, rng=self._rng,
            )  # fmt: skip

    def _complete(self) -> None:
        for tell in self.when_complete:
            tell()

    def _children(self) -> list[RingResource]:
        return [
            each for each in self._scope.resources.values() if each.subject.role is Role.CONTROLLED and not each.removed
        ]

    def _of(self, main: ResolvedMain) -> Iterator[tuple[RingResource, Reflector[SlimObject] | None]]:
        for child in self._children():
            if child.subject.main.resource == main.resource:
                yield child, self._watches.get(child)

    # -- what a family asks ---------------------------------------------------

    def find(self, main: ResolvedMain, owner: SlimMeta, target: str) -> list[tuple[RingResource, SlimMeta]] | None:
        """The children of `owner` that are not on `target`, as far as is known; `None`: read them."""
        if self._membership != self._members.membership:
            return None
        if self._too_many or any(watch is None or watch.position is None for _, watch in self._of(main)):
            return None
        goes_there = self._membership.target(resource_key(main.resource, owner.namespace, owner.name)) == target
        return self.known(main, owner) if goes_there else None

    def known(self, main: ResolvedMain, owner: SlimMeta) -> list[tuple[RingResource, SlimMeta]]:
        """Those children of `owner` that watches have shown to be on another shard than it will be; there may be more.

        One kind that cannot be watched, or has too many, hides no other.
        """
        watches = [(child, watch) for child, watch in self._of(main) if watch is not None]
        found = ((child, each) for child, watch in watches for each in watch.store.by_index(_BY_OWNER, owner.uid))
        return [(child, obj.metadata) for child, obj in found if controls(main, owner, child, obj.metadata)]

    async def is_complete(self, main: ResolvedMain, since: float) -> bool:
        """Whether all that was made before `since` (monotonic) has been shown; waits while that may be proven."""
        clock = self._clock
        until = clock.monotonic() + PROOF_SECONDS
        while missing := {child for child, _ in self._of(main) if self._patched_at.get(child, float("-inf")) < since}:
            coming = {each.child for each in self._awaited.values() if each.began >= since}
            if missing - coming or clock.monotonic() >= until:
                return False
            try:
                async with asyncio.timeout(until - clock.monotonic()):
                    await self._news.wait()
            except TimeoutError:
                return False
        return True

    # -- what proves it --------------------------------------------------------

    def begin(self, child: RingResource, meta: SlimMeta) -> ChildPatch:
        """A patch of a child is about to be sent."""
        patch = ChildPatch(child, meta.namespace, meta.name, self._clock.monotonic())
        if child in self._watches:
            self._awaited[child, meta.namespace, meta.name] = patch
        return patch

    def answered(self, patch: ChildPatch, version: str) -> None:
        """The patch was answered, and made this version."""
        patch.answered = version
        self._check(patch)

    def failed(self, patch: ChildPatch) -> None:
        """The patch failed, and proves nothing."""
        key = patch.child, patch.namespace, patch.name
        if self._awaited.get(key) is patch:
            del self._awaited[key]
            self._tell()

    def _check(self, patch: ChildPatch) -> None:
        key = patch.child, patch.namespace, patch.name
        if patch.answered in patch.shown and self._awaited.get(key) is patch:
            del self._awaited[key]
            self._patched_at[patch.child] = max(patch.began, self._patched_at.get(patch.child, patch.began))
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # -- the watches -------------------------------------------------------

    def _differs(self, child: RingResource, obj: SlimObject) -> bool:
        key = child.subject.key_of(obj.metadata)
        if key is None:
            return False
        target, watch = self._membership.target(key), self._watches.get(child)
        if watch is not None and len(watch.store) >= MAX_CHILDREN:
            self._too_many = True
            return False
        return target is not None and obj.metadata.label(self._scope.labels.shard) != target

    def _shown(self, child: RingResource, obj: SlimObject) -> SlimObject:
        meta, watch = obj.metadata, self._watches.get(child)
        patch = self._awaited.get((child, meta.namespace, meta.name))
        # A list shows objects in any order, so it proves nothing of others (and `find` refuses until it is complete).
        if patch is not None and watch is not None and watch.position is not None:
            patch.shown = (*patch.shown, meta.resource_version)
            # The store has it when this event has been taken in, which is before anybody else's turn.
            self._check(patch)
        return SlimObject(slim(meta, self._scope.labels))


def _owner(obj: SlimObject) -> tuple[str, ...]:
    reference = obj.metadata.controller
    return (reference.uid,) if reference is not None else ()
