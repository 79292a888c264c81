"""A tenure: one process's time with one Lease, from waiting for it to leaving it.

It carries out what the keeper (shardsdk/lease/keeper.py) decides, moves the hold,
and tells the owner what happens; on any event loop, also on one in a thread of its
own.  It knows nothing of the work that the lease covers.

Guarantees (tests/unit/shardsdk/lease/test_shardlease.py, in virtual time):

- The loss of the lease is told at the deadline, also while a request hangs, and
  within `TICK_SECONDS` of waking up from a suspension; before it is logged.
- The hold is closed before the lease is given up, and once this ends for
  whatever reason.

Does not guarantee: anything while a handler of log lines holds its loop.  An owner
whose work must not outlast the hold has that watched (`shardsdk.lease.hold`).

To end the work is the owner's; until the owner has called `leave`, the lease is
kept or, once lost, left to run out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, assert_never

from shardsdk.errors import AlreadyExists, ConfigurationError, NotFound, RetryRule, ShardingError, may_be_executed
from shardsdk.kube.api import Api
from shardsdk.kube.backoff import asked_by
from shardsdk.kube.clock import Clock
from shardsdk.kube.cut import is_broken
from shardsdk.kube.lapses import lapses_of
from shardsdk.lease.claim import Claim
from shardsdk.lease.hold import Hold
from shardsdk.lease.keeper import Keeper
from shardsdk.lease.refusals import explain
from shardsdk.lease.steps import Left, Loss, LossKind, Moment, Phase, Read, Stop, Wait, Write
from shardsdk.lease.timings import LeaseTimings
from shardsdk.logs import logger_of
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import HashRanges

log: Final = logger_of(__name__)

#: How often the clock is looked at.  The event loop's own timers stand still
#: while a machine is suspended, the keeper's clock does not.
TICK_SECONDS: Final = 1.0
#: The loop's timers need not go as fast as the keeper's clock: what is left after a wait is not halved for ever.
_SHORTEST_WAIT_SECONDS: Final = 0.001
#: How long an owner that leaves waits for a renewal under way: cutting it short
#: would cost a connection, and a read to find out what became of it.
_FINISH_SECONDS: Final = 0.5
#: How long a request that was told to stop may take to do so.
_CANCEL_SECONDS: Final = 1.0
#: How often it is told that the lease cannot be acquired, for one and the same reason.
_TELL_SECONDS: Final = 60.0
_LEFT: Final = frozenset({Phase.LEFT})
_NOT_SEEKING: Final = frozenset(Phase) - {Phase.SEEKING}
_NOT_HOLDING: Final = frozenset(Phase) - {Phase.HOLDING}


@dataclass(frozen=True, slots=True)
class Goodbye:
    """How a lease is left.

    `release` False: it just runs out.  `grace_seconds` above zero: it is left to
    the next incarnation of its holder for so long, else to anyone at once.
    `failed`: because of a failure, as the Lease then says.
    """

    release: bool = True
    grace_seconds: int = 0
    failed: bool = False


def _ignore(*_: object) -> None:
    """What an owner does who does not want to know."""


@dataclass(frozen=True, slots=True)
class Listener:
    """What the owner is told, on the tenure's own loop; nothing of it may block or raise."""

    #: The lease is held.
    acquired: Callable[[], None] = _ignore
    #: It is lost: the work must stop now.
    lost: Callable[[Loss], None] = _ignore
    #: The hold has ended and the work under it has not.
    overdue: Callable[[], None] = _ignore
    #: A write was confirmed: when its sending began and when its answer came, by the monotonic clock; the former is
    #: as much earlier as that clock was found to have missed in between.
    renewed: Callable[[float, float], None] = _ignore
    #: A write was confirmed that holds the ranges of this number.
    held: Callable[[int], None] = _ignore
    #: The Lease was read or written.
    observed: Callable[[Lease], None] = _ignore


class Tenure:
    """Seeks a lease, keeps it, and leaves it when told to; `run` is called once."""

    def __init__(
        self, claim: Claim, timings: LeaseTimings, hold: Hold, *, clock: Clock, rng: random.Random, listener: Listener
    ) -> None:
        self.hold = hold
        self._claim = claim
        self._keeper = Keeper(claim, timings)
        self._clock = clock
        self._lapses = lapses_of(clock)
        self._rng = rng
        self._listener = listener
        self._wake = asyncio.Event()
        self._leaving = asyncio.Event()
        self._goodbye = Goodbye()
        self._told, self._told_at = "", 0.0
        self._requesting = False

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self._keeper.phase

    @property
    def written(self) -> frozenset[str]:
        """What a later tenure of this process has as `Claim.earlier`."""
        return self._keeper.written

    def identify(self, instance: str, owed: HashRanges | None = None) -> None:
        """From the next write on: which instance seeks the lease, and what ranges it is to hold as it is acquired."""
        self._keeper.identify(instance, owed)

    def promise_fence(self) -> None:
        """Say in the Lease, from now on, that writes are fenced."""
        self._keeper.promise_fence()
        self._wake.set()

    def tell_leaving(self) -> None:
        """Say in the Lease, at once, that its holder is about to leave."""
        self._keeper.tell_leaving(self._moment())
        self._wake.set()

    def hold_ranges(self, ranges: HashRanges, number: int) -> None:
        """Say in the Lease, at once, that these are held; `Listener.held` is told when that was confirmed."""
        self._keeper.hold_ranges(ranges, number)
        self._wake.set()

    def tell_counts(self, counts: str) -> None:
        """Say this of namespaces with the next renewal, and those after it."""
        self._keeper.tell_counts(counts)

    def _hurry(self) -> None:
        """The clock may have missed some time, and the hold is shorter by it: renew now."""
        self._keeper.hurry(self._moment())
        self._wake.set()

    def leave(self, goodbye: Goodbye) -> None:
        """The work has ended, or will not begin: give the lease up and end."""
        self._goodbye = goodbye
        self._leaving.set()

    async def settle(self, settlers: Iterable[Callable[[], Awaitable[None]]], seconds: float) -> bool:
        """Wait on the owner's loop until no write of the work can be executed any more; `False`: nobody knows."""
        try:
            async with asyncio.timeout(seconds):
                for settled in settlers:
                    await settled()
        except Exception as error:
            late = isinstance(error, TimeoutError)
            why = f"a write has had no answer for {seconds:.0f} s" if late else repr(error)
            log.warning(
                "Writes may still be under way; the %s is left to run out: %s",
                self._claim, why, exc_info=None if late else error, extra=self._fields(),
            )  # fmt: skip
            return False
        return True

    async def run(self, api: Api) -> bool:
        """Run to the end; `True`: the Lease does not say any more that this process holds it.

        Raises: ConfigurationError when the lease can never be acquired.
        """
        unsubscribe = self._lapses.subscribe_here(self._hurry)
        try:
            await self._drive(api, _NOT_SEEKING)
            if self._keeper.phase is Phase.HOLDING and not self._leaving.is_set():
                log.info("Acquired the %s", self._claim, extra=self._fields())
                self._listener.acquired()
                if await self._keep(api):
                    await self._wait_for_end_of_work()
            return await self._say_goodbye(api)
        finally:
            unsubscribe()
            self.hold.close()

    async def _keep(self, api: Api) -> bool:
        """Keep the lease until it is lost, or the owner leaves (`False`); whatever else ends this is a loss as well."""
        failure: Exception | None = None
        try:
            await self._drive(api, _NOT_HOLDING)
        except Exception as error:
            failure = error
            loss: Loss | None = Loss(LossKind.DEADLINE, f"the keeper of the {self._claim} failed: {error!r}")
        else:
            loss = self._keeper.loss
            if loss is None and not self._leaving.is_set():
                loss = Loss(LossKind.DEADLINE, f"the keeper of the {self._claim} has stopped")
        if loss is None:
            return False
        # First the owner, then who reads of it: a handler of log lines may wait for a network that is gone.
        self.hold.lose(taken=loss.kind is LossKind.TAKEN)
        self._listener.lost(loss)
        log.error("Lost the lease: %s", loss.message, exc_info=failure, extra=self._fields())
        return True

    async def _drive(self, api: Api, until: frozenset[Phase]) -> None:
        """Do what the keeper says until it is in one of these phases, or until the owner leaves."""
        worker = asyncio.create_task(self._work(api, until))
        others: list[asyncio.Task[Any]] = [asyncio.create_task(self._leaving.wait())]
        if self._keeper.phase is Phase.HOLDING:
            others.append(asyncio.create_task(self._watch()))
        try:
            await asyncio.wait((worker, *others), return_when=asyncio.FIRST_COMPLETED)
            if self._leaving.is_set() and self._requesting:
                await asyncio.wait((worker,), timeout=_FINISH_SECONDS)
            for task in (worker, *others):
                if task.done():
                    task.result()
        finally:
            for task in (worker, *others):
                task.cancel()
            if self._keeper.loss is None:
                # One request at a time.  After a loss nothing may wait, and nothing but a release can follow.
                await asyncio.wait((worker,), timeout=_CANCEL_SECONDS)

    async def _work(self, api: Api, until: frozenset[Phase]) -> None:
        while self._keeper.phase not in until and not self._leaving.is_set():
            match self._keeper.next(self._moment()):
                case Wait() as wait:
                    await self._pause(wait)
                case Read() | Write() as request:
                    self._requesting = True
                    try:
                        await self._request(api, request)
                    finally:
                        self._requesting = False
                case Stop() | Left():
                    return
                case unknown:
                    assert_never(unknown)

    async def _watch(self) -> None:
        """Notice the deadline, whatever the request under way does."""
        while self._keeper.phase is Phase.HOLDING:
            assert self._keeper.deadlines is not None
            left = self._keeper.deadlines.step_down_at - self._clock.monotonic()
            await self._clock.sleep(min(left, TICK_SECONDS))
            self._keeper.check(self._moment())

    async def _pause(self, wait: Wait) -> None:
        if wait.why and wait.why != self._told:
            log.info("Waiting for the %s: %s", self._claim, wait.why, extra=self._fields())
        self._told = wait.why
        self._wake.clear()
        # Whether it was woken or time has passed, the keeper is asked again.
        seconds = max(wait.seconds, _SHORTEST_WAIT_SECONDS)
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _request(self, api: Api, request: Read | Write) -> None:
        """Send one request and tell the keeper what came of it."""
        try:
            async with asyncio.timeout(request.timeout_seconds):
                lease = await self._send(api, request)
        except TimeoutError:
            self._fail(f"no answer within {request.timeout_seconds:.1f} s")
        except ShardingError as error:
            self._take_error(request, error)
        else:
            self._take_answer(request, lease)

    async def _send(self, api: Api, request: Read | Write) -> Lease | None:
        namespace, name = self._claim.namespace, self._claim.name
        match request:
            case Read(seconds):
                try:
                    return await api.get(LEASES, name, namespace, model=Lease, timeout_seconds=seconds)
                except NotFound:
                    return None
            case Write(body, create=True, timeout_seconds=seconds):
                return await api.create(LEASES, body, namespace, model=Lease, timeout_seconds=seconds)
            case Write(body, timeout_seconds=seconds):
                return await api.patch(
                    LEASES, name, namespace, body, model=Lease, metadata_only=False, timeout_seconds=seconds
                )
            case unknown:
                assert_never(unknown)

    def _take_answer(self, request: Read | Write, lease: Lease | None) -> None:
        at = self._moment()
        before, confirmed = self._keeper.confirmed, self._keeper.held.confirmed
        if lease is None or isinstance(request, Read):
            self._keeper.saw(lease, at)
        else:
            self._keeper.wrote(lease, at)
        if lease is not None:
            self._listener.observed(lease)
        deadlines, sent = self._keeper.deadlines, self._keeper.confirmed
        if self._keeper.phase is Phase.HOLDING and deadlines and sent and sent is not before:
            self.hold.extend(deadlines.hold_ends_at, sent.missed)
            self._listener.renewed(sent.at - (self._lapses.seconds - sent.missed), at.monotonic)
        if self._keeper.phase is Phase.HOLDING and self._keeper.held.confirmed != confirmed:
            self._listener.held(self._keeper.held.confirmed)

    def _take_error(self, request: Read | Write, error: ShardingError) -> None:
        """Sort by what the error means here.  Raises: `error`, if the lease can never be acquired."""
        at = self._moment()
        create = isinstance(request, Write) and request.create
        if (
            isinstance(error, AlreadyExists)
            or error.retry is RetryRule.REFRESH
            or (isinstance(error, NotFound) and not create)
        ):
            self._keeper.refused(at, str(error))
            return
        if isinstance(error, ConfigurationError) and self._keeper.phase is Phase.SEEKING:
            raise error
        rejected = isinstance(request, Write) and not may_be_executed(error)
        why = explain(self._claim, request, error)
        self._fail(why, asked_by(error), rejected=rejected, broken=is_broken(error))

    def _fail(self, why: str, asked_seconds: float = 0.0, *, rejected: bool = False, broken: bool = False) -> None:
        at = self._moment()
        if self._keeper.phase is Phase.HOLDING:
            left = max(self.hold.left_to_end(), 0.0)
            log.warning(
                "Could not renew the %s, which is held for %.1f s more: %s",
                self._claim, left, why, extra=self._fields(),
            )  # fmt: skip
        elif self._keeper.phase is Phase.SEEKING and (
            why != self._told or at.monotonic - self._told_at >= _TELL_SECONDS
        ):
            # Here, and not when it waits: after a request that took long there is no wait.
            log.warning("Could not acquire the %s yet: %s", self._claim, why, extra=self._fields())
            self._told, self._told_at = why, at.monotonic
        self._keeper.failed(at, why, retry_after_seconds=asked_seconds, rejected=rejected, broken=broken)

    async def _wait_for_end_of_work(self) -> None:
        """Wait for the owner, who was told of the loss, and is told once more when the hold ends."""
        while not self._leaving.is_set() and (left := self.hold.left_to_end()) > 0:
            await _wait(self._leaving, min(left, TICK_SECONDS))
        if not self._leaving.is_set():
            self._listener.overdue()
            await self._leaving.wait()

    async def _say_goodbye(self, api: Api) -> bool:
        """Close the fence first: nothing may be written once others may take the lease."""
        self.hold.close()
        if not self._goodbye.release:
            return False
        self._keeper.leave(self._moment(), grace_seconds=self._goodbye.grace_seconds, failed=self._goodbye.failed)
        self._leaving.clear()
        await self._drive(api, _LEFT)
        left = self._keeper.next(self._moment())
        clean = isinstance(left, Left) and left.clean
        if clean and self._keeper.deadlines is not None:
            log.info("Left the %s", self._claim, extra=self._fields())
        if not clean:
            log.warning("Could not release the %s; it will run out", self._claim, extra=self._fields())
        return clean

    def _moment(self) -> Moment:
        # What is missed is read first: what is found out in between lets a hold end earlier, never later.
        missed = self._lapses.seconds
        return Moment(self._clock.monotonic(), self._clock.now(), self._rng.random(), missed)

    def _fields(self) -> dict[str, str]:
        fields = {"namespace": self._claim.namespace, "lease": self._claim.name}
        return fields if self._claim.ring is None else {**fields, "ring": self._claim.ring, "shard": self._claim.holder}


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for `event`, but not longer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
