"""A shard's part of its ring, for a loop of one's own that holds a `ShardLease`, however the ring assigns its objects.

    ranges = await read_assignment(access, "my-ring")              # None: by labels
    lease = ShardLease(access, "my-ring", fenced=False, ranges=ranges)
    lease.settle_first(writes.settled)                             # whatever the loop writes through
    async with lease, Share(access, lease, ranges) as share:
        await lease.to_thread(work, share)

    for thing in list(label_selector=share.selector):              # in work(), in any thread, until share.stopping
        with share.work_on(namespace, uid) as mine:
            if mine:
                reconcile(thing, labels_of_children=share.labels)

Guarantees (tests/unit/shardsdk/process/test_share.py, on real servers tests/integration/test_examples.py):
of a ring by ranges, what `work_on` lets through is this shard's until its block ends, and what was written there has
its answer before another shard may have the object; when the body of the `async with` ends, nothing is let through any
more, and what runs has ended before the lease is given up.  A ring that is made again to assign otherwise ends it.

Does not guarantee: anything about work outside of such a block, nor that a block ends.  Of a ring by labels it lets
everything through, for `selector` lists nothing else: a drain is the loop's to see and to acknowledge.  A loop that
keeps what it has listed lists again when ranges are gained, and when the lease is confirmed after it was doubted
(`on_change`): what was not let through then may be now.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Final, Self

from shardsdk.cache.identity import ShardIdentity
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.server import Access
from shardsdk.lease.ring import ByRanges
from shardsdk.lease.shardlease import ShardLease
from shardsdk.process.ringcheck import RingCheck
from shardsdk.protocol.objects import SlimMeta
from shardsdk.protocol.ranges import EVERYWHERE, NOWHERE, HashBy, HashRanges
from shardsdk.ranges.holder import RangeHolder
from shardsdk.ranges.parts import Changes

#: How often it is looked whether a lease that was doubted is confirmed.
DOUBT_SECONDS: Final = 0.1


class Share:
    """Says which objects are this shard's while `lease` is held; entered once, within it.

    `source` is how the API server is read: an `Access`, or a function that opens a client.  `ranges` is what the ring
    says (`read_assignment`; `None`: it assigns by labels), and the lease was made with it.  Unless the loop writes
    through `lease.client()`, `lease.settle_first` is told what it writes through.  `on_change(working)` is called on
    the event loop with the ranges that are worked on now, whenever that changes; and, of a ring by labels too, when the
    lease is confirmed after `work_on` has said no for nothing but that it was not.  `namespaces` gives the namespace of
    each object that the loop knows, so that namespaces with many objects count for more when the ring is shared out;
    without it all count alike.

    Once `stopping` is set nothing begins any more: by whoever wants the loop to end, or when the body ends or is about
    to be cancelled, which a function in `lease.to_thread` learns in no other way.

    Raises: RingChanged out of the `async with`, whose body is cancelled, when the ring is made again to assign
    otherwise, or covers other namespaces: the process has to start anew.
    """

    def __init__(
        self,
        source: Access | Callable[[], AbstractAsyncContextManager[Api]],
        lease: ShardLease,
        ranges: ByRanges | None,
        *,
        on_change: Callable[[HashRanges], object] | None = None,
        namespaces: Callable[[], Iterable[str]] | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._source = source
        self._lease = lease
        self._ranges: Final = ranges
        identity = ShardIdentity(lease.ring, lease.name)
        #: What the objects to list are selected by, and what children are labelled with: nothing, where hashes tell.
        self.selector: Final = identity.selector().labels if ranges is None else ""
        self.labels: Final[Mapping[str, str]] = identity.labels if ranges is None else {}
        self._tell = on_change
        self._namespaces = namespaces
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self.stopping: Final = threading.Event()
        #: Guards what follows: blocks begin and end in any thread.
        self._lock: Final = threading.Lock()
        self._open = NOWHERE
        self._running: Counter[int] = Counter()
        #: Set, on the event loop, whenever a block has ended.
        self._ended = asyncio.Event()
        #: Set there, too: something was refused that might have begun if the lease had not been doubted.
        self._doubted = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeping: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def working(self) -> HashRanges:
        """Where work may begin this moment."""
        with self._lock:
            return self._open

    @contextmanager
    def work_on(self, namespace: str, uid: str = "") -> Iterator[bool]:
        """Whether an object is this shard's; if so, it stays its own until the block ends.

        It is none's while the lease is not sure to be held, as after the machine stood still: what is refused is to be
        asked for again after `on_change`.

        Raises: ValueError where the ring hashes uids, and `uid` is empty.
        """
        ranges, point = self._ranges, 0
        if ranges is not None:
            if ranges.hash_by is HashBy.UID and not uid:
                raise ValueError(f"ring {self._lease.ring.ring!r} hashes uids: pass metadata.uid")
            point = ranges.hash_by.point(SlimMeta(namespace=namespace, uid=uid))
        with self._lock:
            inside = point in self._open and (ranges is None or ranges.namespaces.covers(namespace))
            wanted = inside and not self.stopping.is_set()
            # What the event loop says is old if it does not run, and so is the lease then.
            begins = wanted and self._lease.fence.remaining() > 0
            if begins:
                self._running[point] += 1
        if wanted and not begins:
            self._post(self._doubted)
        try:
            yield begins
        finally:
            if begins:
                self._end_block(point)

    def _end_block(self, point: int) -> None:
        with self._lock:
            self._running[point] -= 1
            if not self._running[point]:
                del self._running[point]
        self._post(self._ended)

    def _post(self, event: asyncio.Event) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(event.set)

    # -- on the event loop --------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("a Share is entered once; make another one")
        self._loop = asyncio.get_running_loop()
        self._keeping = await asyncio.TaskGroup().__aenter__()
        self._task = self._keeping.create_task(self._keep(), name=f"share of {self._lease.name}")
        if self._ranges is None:
            self._set_open(EVERYWHERE)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        assert self._keeping is not None
        self.stopping.set()
        self._set_open(NOWHERE)
        while True:
            try:
                await self._no_block_in(lambda point: True)
                break
            except asyncio.CancelledError as why:  # whatever for: the lease must not be given up under a block
                kind, error, trace = type(why), why, why.__traceback__
        self._task.cancel()
        try:
            await self._keeping.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _keep(self) -> None:
        """Have what this shard is named for, for as long as the ring assigns as it did, until cancelled."""
        try:
            async with self._connect() as api:
                parts = [self._make_check(api).run(), self._tell_of_doubt(), self._stop_with_lease()]
                if self._ranges is not None:
                    parts.append(self._make_holder(api, self._ranges.hash_by).run())
                async with asyncio.TaskGroup() as tasks:
                    for part in parts:
                        tasks.create_task(part)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            # Before the body is cancelled: that waits for what is in threads, and they for this.
            self.stopping.set()
            self._set_open(NOWHERE)

    async def _stop_with_lease(self) -> None:
        await self._lease.lost.wait()
        self.stopping.set()

    def _make_check(self, api: Api) -> RingCheck:
        by, covered = self._ranges or (None, None)
        return RingCheck(
            api, self._lease.ring.ring, frozenset(), {}, shard=self._lease.name, hash_by=by, covered=covered,
            clock=self._clock, looked_at=lambda: self._lease.looked_at,
        )  # fmt: skip

    def _make_holder(self, api: Api, by: HashBy) -> RangeHolder:
        holder = RangeHolder(
            api, self._lease, by, ended=self._work_ended, on_change=lambda changes: self._follow(holder, changes),
            namespaces=self._namespaces, clock=self._clock, rng=self._rng,
        )  # fmt: skip
        return holder

    def _connect(self) -> AbstractAsyncContextManager[Api]:
        if not isinstance(self._source, Access):
            return self._source()
        from shardsdk.kube.client import Client  # brings aiohttp, which takes a third of a second

        return Client(self._source, clock=self._clock)

    def _follow(self, holder: RangeHolder, changes: Changes) -> None:
        self._set_open(holder.working)
        if changes.gained or changes.revoked:
            self._tell_working()

    async def _tell_of_doubt(self) -> None:
        """Whoever was refused for a doubt has it tried again when there is none; a lease that is lost ends this."""
        while True:
            await self._doubted.wait()
            while self._lease.fence.remaining() <= 0:
                await self._clock.sleep(DOUBT_SECONDS)
            self._doubted.clear()
            self._tell_working()

    def _tell_working(self) -> None:
        if self._tell is not None:
            assert self._loop is not None
            self._loop.call_soon(self._tell, self.working)

    def _set_open(self, ranges: HashRanges) -> None:
        with self._lock:
            self._open = ranges

    async def _work_ended(self, ranges: HashRanges) -> None:
        """Return when no block runs any more that began in these, where none begins now, and all writes have ended."""
        await self._no_block_in(lambda point: point in ranges)
        await self._lease.writes_settled()

    async def _no_block_in(self, inside: Callable[[int], bool]) -> None:
        while True:
            self._ended.clear()
            with self._lock:
                if not any(map(inside, self._running)):
                    return
            await self._ended.wait()
