"""ShardLease: a shard's membership in its ring, as an async context manager.

    async with ShardLease(access, "my-ring") as lease:
        async with lease.client() as client:    # refuses writes once the lease has run out
            await work(client)                   # cancelled before anyone may take the lease

Guarantees:

- The body begins once the lease is held, and is cancelled when it is lost, before
  anyone else may take it; `LeaseLost` comes out of the `async with`
  (tests/unit/shardsdk/lease/test_shardlease.py, tests/integration/test_shardlease.py).
- Renewals go on while the body blocks its event loop, because they have a thread,
  a loop and a connection of their own (tests/integration/test_shardlease.py).
- The lease is given up only once the body has ended, with what it does in threads
  by `to_thread`, and its writes are settled,
  and not at all once it is lost: it runs out, unless the next process of its name
  takes it up (tests/unit/shardsdk/lease/test_shardlease.py).

Does not guarantee: that a body stops which swallows its cancellation, blocks its
loop or works in a thread.  Its writes through `lease.client()` are refused all the
same, and `on_deadline` is called, where a process should end itself.  Nor anything
about threads that it was not told of (`asyncio.to_thread`): those are the program's own to end.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import replace
from enum import Enum
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar

from shardsdk.errors import ConfigurationError, LeaseLost, RingChanged
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.doubts import check_open, past_owed
from shardsdk.kube.server import Access
from shardsdk.lease import pod
from shardsdk.lease.body import Body
from shardsdk.lease.claim import Claim
from shardsdk.lease.hold import Hold, watched
from shardsdk.lease.hosts import LoopHost, ThreadHost
from shardsdk.lease.incarnation import Incarnation, note_owed
from shardsdk.lease.steps import Loss, LossKind
from shardsdk.lease.tenure import Goodbye, Listener, Tenure
from shardsdk.lease.timings import LeaseTimings, check_restart_grace
from shardsdk.logs import logger_of
from shardsdk.protocol.labels import LEASE_STATE_LABEL, RingLabels, parse_ring_name
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import GroupResource
from shardsdk.protocol.ranges import NOWHERE, HashRanges

if TYPE_CHECKING:
    from shardsdk.kube.client import Client
    from shardsdk.lease.ring import ByRanges

log: Final = logger_of(__name__)

P = ParamSpec("P")
R = TypeVar("R")
#: Opens a connection for the keeper; called once, on the keeper's loop.
Connect = Callable[[], AbstractAsyncContextManager[Api]]

#: What the keeper may need beyond its hold to end, before it is abandoned.
_SPARE_SECONDS: Final = 2.0
#: What the label says of a lease whose shard no sharder has seen: nothing, or what was written of its predecessor.
#: Source: docs/wire-contract.md, states.
_NOT_LOOKED_AT: Final = (None, "dead", "orphaned")


class LeaseState(Enum):
    """What a `ShardLease` is at the moment."""

    WAITING = "waits for the lease"
    HELD = "holds the lease"
    LOST = "has lost the lease"
    LEFT = "is done with the lease"


class ShardLease:
    """Holds a shard's Lease while its body runs; entered once.

    `source` is how the keeper reaches the API server: an `Access`, or a function that opens a client without fence.
    `name` defaults to the host name, `namespace` to the pod's (POD_NAMESPACE, then that of `source`), `instance`, known
    once the lease is entered, to one of the pod's UID (POD_UID), else its seat's (shardsdk.lease.seat), else a random.

    `fenced`: whether the Lease promises that writes are refused once it has run out, which lets the sharder move this
    shard's objects sooner.  `None`: from the moment that `client()` has made a client; `True`: at once, if you make
    your clients with `fence=lease.fence` yourself; `False`: never, if you write through other clients as well.

    `restart_grace_seconds`: for how long the lease, once the body has ended, is kept for the next process of this name.

    `ranges`: its ring assigns ranges of hashes, as `read_assignment` says, and the body works where `hold_ranges` does.
    Without it a lease made from an `Access` is not sought in such a ring.  `mains`: what the body reconciles as main
    objects, which the Lease then says, for the sharder to tell where the ring lists it as controlled.

    `on_deadline` is called, in a thread that does nothing else, when the lease's hold has ended and the body has not,
    nor, of a lost lease, what there is to do after it.  Do not log there: that waits for handlers.  Without it, let the
    task enter the lease that is to be cancelled.

    Raises: ConfigurationError for names and durations that cannot be; when entered, also for the ring and the task.
    """

    def __init__(
        self,
        source: Access | Connect,
        ring: str,
        name: str | None = None,
        namespace: str | None = None,
        *,
        timings: LeaseTimings | None = None,
        fenced: bool | None = None,
        instance: str | None = None,
        restart_grace_seconds: int = 0,
        ranges: ByRanges | bool | None = False,
        mains: Iterable[GroupResource] = (),
        threaded: bool = True,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        on_deadline: Callable[[], None] | None = None,
    ) -> None:
        rng = rng or random.Random()
        self.ring: RingLabels = parse_ring_name(ring)
        self.name: str = pod.check_shard_name(name) if name else pod.shard_name()
        self.namespace: str = pod.lease_namespace(namespace, source, "the shard's Lease belongs: pass `namespace`")
        host = source.host if isinstance(source, Access) else None
        self._incarnation = Incarnation(self.ring.ring, self.name, self.namespace, host, instance, rng)
        self.timings: LeaseTimings = timings or LeaseTimings()
        self.fence: Hold = Hold(f"lease {self.namespace}/{self.name}", clock or SystemClock())
        #: Set on the body's loop when the lease is lost.
        self.lost: asyncio.Event = asyncio.Event()
        self.state: LeaseState = LeaseState.WAITING
        #: How it was lost; `None`: it was not.
        self.loss: Loss | None = None
        #: Whether a sharder says of the lease, as it was written last, that its shard is there.
        self.looked_at: bool = False
        #: Called on the body's loop with the number of `hold_ranges` that a confirmed write has said.
        self.on_held: Callable[[int], None] = lambda number: None
        self._source = source.of_shard(self.ring.ring, self.name) if isinstance(source, Access) else source
        self._clock = clock or SystemClock()
        self._rng = rng
        self._ranges = bool(ranges)
        self._threaded = threaded
        self._on_deadline = on_deadline
        self._fenced = fenced
        self._goodbye = Goodbye(grace_seconds=check_restart_grace(restart_grace_seconds))
        self._settlers: list[Callable[[], Awaitable[None]]] = []
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._error: BaseException | None = None
        self._host: LoopHost | ThreadHost | None = None
        self._body = Body(self.ring.ring, self.name, ended_by_force=on_deadline is not None)
        self._watched = ExitStack()
        self._tenure = self._make_tenure(rng, fenced=fenced is True, mains=frozenset(mains))

    def _make_tenure(self, rng: random.Random, *, fenced: bool, mains: frozenset[GroupResource]) -> Tenure:
        claim = Claim(
            self.namespace, self.name, self.name, int(self.timings.lease_duration),
            instance=self.instance, ring=self.ring.ring, fenced=fenced, mains=mains,
        )  # fmt: skip
        listener = Listener(
            acquired=lambda: self._tell(self._on_acquired),
            lost=lambda loss: self._tell(partial(self._on_lost, loss)),
            overdue=self._overdue,
            observed=self._observe,
            held=lambda number: self._tell(lambda: self.on_held(number)),
        )
        return Tenure(claim, self.timings, self.fence, clock=self._clock, rng=rng, listener=listener)

    @property
    def instance(self) -> str:
        """Which process of its name this is; another one, until that is gone, where a living one has it already."""
        return self._incarnation.instance

    def client(
        self,
        *,
        user_agent: str = "",
        qps: float | None = None,
        burst: int = 1,
        on_call: Callable[[str, int, float], None] | None = None,
    ) -> Client:
        """A client whose every write is fenced by this lease, and is waited for before the lease is released.

        Raises: ConfigurationError when the lease was not made from an `Access`.
        """
        if not isinstance(self._source, Access):
            raise ConfigurationError(
                "this ShardLease has no Access to make a client from: make it with fence=lease.fence"
            )
        from shardsdk.kube.client import Client  # brings aiohttp, which takes a third of a second

        client = Client(
            self._source, fence=self.fence, user_agent=user_agent, clock=self._clock,
            qps=qps, burst=burst, on_call=on_call,
        )  # fmt: skip
        self.settle_first(client.writes_settled)
        if self._fenced is None:
            self._fenced = True
            self._post(self._tenure.promise_fence)
        return client

    def settle_first(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Await `settled()` between the body's end and the release, as for `Client.writes_settled`."""
        self._settlers.append(settled)

    async def writes_settled(self) -> None:
        """Await all that is to be settled first: no write of this shard's that was sent can be executed later."""
        await asyncio.gather(past_owed([self.fence], self._clock), *(settled() for settled in self._settlers))

    def hold_ranges(self, ranges: HashRanges, number: int) -> None:
        """Say in the Lease, at once, that the body may be working in these ranges of hashes.

        `number` is one more than the last time; `on_held` is called with it once a write has said just that.
        """
        self.fence.owed_ranges = NOWHERE  # they are among these, for as long as the body says so
        self._post(partial(self._tenure.hold_ranges, ranges, number))

    def tell_counts(self, counts: str) -> None:
        """Say in the Lease, with its next renewal, how many objects are where (`render_counts`)."""
        self._post(partial(self._tenure.tell_counts, counts))

    def tell_leaving(self) -> None:
        """Say in the Lease, at once, that the body is about to end: it begins nothing new, and gives away what rests.

        The sharder gives this shard nothing more, and asks for what it has: go on with acknowledging drains.  The lease
        is renewed until the body ends.  With `restart_grace_seconds` nothing is said: the next process is to find all
        that this one had.
        """
        if not self._goodbye.grace_seconds:
            self._post(self._tenure.tell_leaving)

    def tell_failed(self) -> None:
        """Say in the Lease, once it is given up, that the body has ended in failure, as if it had raised an error."""
        self._goodbye = replace(self._goodbye, failed=True)

    async def to_thread(self, function: Callable[P, R], /, *arguments: P.args, **keywords: P.kwargs) -> R:
        """What `function` returns, called in a thread of the event loop's as by `asyncio.to_thread`.

        A thread cannot be cancelled: the body has not ended before `function` has, and the lease is not given up.  Let
        it look at `loss` now and then, which is a reason to stop, and tell it when the body is to end.

        Raises: LeaseLost where the lease is not held, or not any more when there is a thread for it; FenceClosed while
        that is in doubt; ConfigurationError on another event loop; what `function` raises.
        """
        return await self._body.call(partial(function, *arguments, **keywords), self._check_held)

    def _check_held(self) -> None:
        check_open(self.fence, "nothing is begun in a thread")
        if self.loss is not None:
            raise LeaseLost(f"{self.loss.message}: nothing is begun in a thread")

    async def __aenter__(self) -> Self:
        if self._host is not None:
            raise RuntimeError("a ShardLease is entered once; make another one")
        self._body.enter(ShardLease.__aenter__.__code__)
        self._tenure.identify(self._incarnation.begin())
        try:
            if not self._ranges and isinstance(self._source, Access):
                from shardsdk.lease.ring import refuse_ranges  # most are a manager's, which has read it

                await refuse_ranges(self._source, self.ring.ring, self._clock, self._rng)
            self._host = ThreadHost(f"lease-{self.name}") if self._threaded else LoopHost()
            self._host.start(self._run, self._on_end)
        except BaseException:
            self._incarnation.end(settled=True)
            raise
        try:
            await self._ready.wait()
            if self._threaded and self.state is LeaseState.HELD:
                self._watched.enter_context(watched(self.fence, self._on_deadline or self._body.tell_overdue))
        except (asyncio.CancelledError, RuntimeError):  # the latter where the system has no thread left
            await self._leave()
            raise
        if self._error is not None:
            self._incarnation.end(settled=True)
            raise self._error
        if self.loss is not None or self.state is not LeaseState.HELD:
            await self._leave()
            raise LeaseLost(self.loss.message if self.loss else f"the keeper of {self.fence.name} has ended")
        self._body.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, RingChanged) and self.loss is None:
            self.tell_failed()
        cancelled = await self._body.end(error)
        lost = self.loss
        if lost is None:  # else what its keeper waits for, such as a handler of log lines, may keep this loop as well
            self._watched.close()
        ours = self._body.uncancel() and kind is asyncio.CancelledError
        with self._watched:
            await self._leave()
        if cancelled is not None:
            raise cancelled
        if lost is not None and (ours or error is None):
            raise LeaseLost(lost.message) from error

    def _on_acquired(self) -> None:
        self.state = LeaseState.HELD
        self._incarnation.tell_owed(self.fence.owed_until - self._clock.monotonic())
        self._ready.set()

    def _on_lost(self, loss: Loss) -> None:
        """Cancel the body; from here on, all that is left is to end."""
        self.loss = loss
        self.state = LeaseState.LOST
        self.lost.set()
        self._ready.set()
        self._body.cancel()

    def _on_end(self, clean: bool, error: BaseException | None) -> None:
        """The keeper has ended: as it was told to, or because the lease can never be acquired; else it is a loss."""
        self._error = error
        if self._body.runs and self.loss is None:
            loss = Loss(LossKind.DEADLINE, f"the keeper of {self.fence.name} has ended: {error!r}")
            asyncio.get_running_loop().call_later(max(self.fence.left_to_end(), 0.0), self._overdue)
            self._on_lost(loss)
            log.error("Lost the lease: %s", loss.message, extra=self._where())
        elif self.state is not LeaseState.LOST:
            self.state = LeaseState.LEFT
        self._ended.set()
        self._ready.set()

    async def _leave(self) -> None:
        """Wait for the body's writes, have the lease given up, wait for that; a second cancellation cuts it short."""
        assert self._host is not None
        self.fence.close()
        settled = ended = False
        try:
            # Of a process before this one: it is not waited for, the lease runs out later than that.
            owes, self.fence.owed_until = self.fence.owed_until > self._clock.monotonic(), -math.inf
            settled = await self._settle()
            # Nor is a lost lease released: who follows finds it its own or waits it out, and no outage moves anything.
            keeps = settled and not owes and (self.loss is None or self._goodbye.grace_seconds > 0)
            self._post(partial(self._tenure.leave, self._goodbye if keeps else Goodbye(release=False)))
            async with asyncio.timeout(self.timings.lease_duration + _SPARE_SECONDS):
                await self._ended.wait()
            ended = True
        except TimeoutError:
            log.warning("The lease's keeper does not end; leaving it behind", extra=self._where())
            self._host.abandon()
        except asyncio.CancelledError:
            self._host.abandon()
            raise
        finally:
            self._incarnation.end(settled=settled and ended)

    async def _settle(self) -> bool:
        """Wait until no write of the body can be executed any more; `False`: nobody knows."""
        left = max(self.fence.left_to_end() / 2, 0.0)
        return await self._tenure.settle(self._settlers, left if self.loss else self.timings.lease_duration)

    def _where(self) -> dict[str, str]:
        return {"ring": self.ring.ring, "shard": self.name}

    # On the keeper's loop.

    async def _run(self) -> bool:
        try:
            async with self._connect() as api:
                return await self._tenure.run(api)
        finally:
            self.fence.close()

    def _connect(self) -> AbstractAsyncContextManager[Api]:
        if isinstance(self._source, Access):
            from shardsdk.kube.client import Client

            return Client(self._source, clock=self._clock)
        return self._source()

    def _observe(self, lease: Lease) -> None:
        self.looked_at = lease.metadata.label(LEASE_STATE_LABEL) not in _NOT_LOOKED_AT
        # Before anything is written: what another instance has written would be another's, and waited for.
        if not self._tenure.written and self._incarnation.succeed():
            self._tenure.identify(self.instance)
        goes_on = lease.spec.renew_time not in self._tenure.written and self._incarnation.goes_on_with(lease)
        if note_owed(self.fence, lease if goes_on else None, self._clock.monotonic()):
            self._tenure.identify(self.instance, self.fence.owed_ranges or None)

    def _overdue(self) -> None:
        # Else a thread watches the hold, whatever loops do.
        if not self._threaded and self._body.runs and self._on_deadline is not None:
            self._on_deadline()

    def _post(self, callback: Callable[[], None]) -> None:
        """To the keeper; before it has started, at once."""
        callback() if self._host is None else self._host.post(callback)

    def _tell(self, callback: Callable[[], None]) -> None:
        if self._host is not None:
            self._host.tell(callback)
