"""Leader election with client-go's semantics: at most one of several candidates leads.

    elector = LeaderElector(client, namespace="default", name="my-controller", ...)
    await elector.run(lead)     # waits, then runs lead(hold); LeaseLost if it was lost

Guarantees, each named by a test in tests/unit/shardsdk/lease/test_election.py:

- A candidate takes over once the leader's lease has not changed for its duration
  by the candidate's own clock; whatever times the Lease shows are never compared.
- `lead` is cancelled when no renewal was confirmed for `renew_deadline`, counted
  from before the last confirmed one was sent, also while a request hangs.
- `hold` is closed before another candidate may lead; give it to the client that
  `lead` writes through, and a leader that overslept writes nothing.
- The lease is released once `lead` has ended, so that the next one need not wait.
  One that was lost runs out: nothing is to wait for an API server that is out of reach.

Where it differs from client-go, it is stricter: a leader that sees another one,
or another process under its own identity, stops at once instead of at its
deadline, a candidate waits for another process under its own identity as for any
other, and every write is conditional.

Refuses: to end a `lead` that swallows its cancellation; `on_deadline` is called
when its hold has ended, where a process should end itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.events.recorder import EventType, Regarding
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.lease import pod
from shardsdk.lease.claim import Claim
from shardsdk.lease.hold import Hold
from shardsdk.lease.steps import Loss, LossKind, Phase
from shardsdk.lease.tenure import Goodbye, Listener, Tenure
from shardsdk.lease.timings import LeaseTimings
from shardsdk.logs import logger_of
from shardsdk.protocol.labels import is_label_key, is_label_value
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES

log: Final = logger_of(__name__)

#: What a leader does; it ends by itself, or is cancelled when it must stop leading.
Lead = Callable[[Hold], Awaitable[None]]

#: Source: client-go resourcelock, RecordEvent.
_EVENT_REASON: Final = "LeaderElection"


class Recorder(Protocol):
    """Takes Events; `shardsdk.events.recorder.EventRecorder` is one."""

    def event(self, regarding: Regarding, event_type: EventType, reason: str, message: str) -> None:
        """Record an Event, without waiting."""
        ...


class LeaderElector:
    """One candidate for one Lease; `run` may be called again once it has returned.

    `identity` must be unique among processes, those before included; it defaults to hostname_uuid.  A Lease that
    names it and was not written by this elector is waited for like another's.
    `on_started`, `on_stopped` and `on_new_leader` (also told of the first leader
    seen, and of itself) must not block; what they raise is logged.
    `on_renewed` is told of each confirmed write: when its sending began and when
    its answer came, by `clock.monotonic()`; the former is as much earlier as that
    clock was found to have missed in between.  `on_deadline` is called when the
    hold has ended and `lead` has not.  The Lease bears `labels` from the first
    write on.  `settled` is awaited between the end of `lead` and the release; by
    default it is `api.writes_settled`.

    Raises: ConfigurationError for an empty identity, and for names that no namespace, or Lease, can have, or labels.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str | None = None,
        timings: LeaseTimings | None = None,
        clock: Clock,
        rng: random.Random,
        on_renewed: Callable[[float, float], None] | None = None,
        on_started: Callable[[], None] | None = None,
        on_stopped: Callable[[], None] | None = None,
        on_new_leader: Callable[[str], None] | None = None,
        on_deadline: Callable[[], None] | None = None,
        recorder: Recorder | None = None,
        labels: Mapping[str, str] | None = None,
        release_on_stop: bool = True,
        settled: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        given = f"{pod.hostname()}_{pod.make_uuid(rng)}" if identity is None else identity
        self.identity: str = pod.check_identity(given)
        self.timings: Final = timings or LeaseTimings()
        self._api = api
        self._namespace = pod.check_namespace(namespace)
        self._name = pod.check_election_name(name)
        self._clock = clock
        self._rng = rng
        self._on_renewed = on_renewed
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._on_new_leader = on_new_leader
        self._on_deadline = on_deadline
        self._recorder = recorder
        self._labels = _check_labels(labels or {})
        self._settled = settled or api.writes_settled
        self._goodbye = Goodbye(release=release_on_stop)
        self._lease: Lease | None = None
        self._reported = ""
        self._term: _Term | None = None
        self._written = frozenset[str]()

    @property
    def leader(self) -> str:
        """Identity of the leader last seen; empty: nobody leads, or the Lease was not read yet."""
        return self._lease.holder if self._lease else ""

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads and may write."""
        if self._term is None:
            return False
        tenure = self._term.tenure
        return tenure.phase is Phase.HOLDING and tenure.hold.remaining() > 0

    @property
    def lost(self) -> bool:
        """Whether `run` is under way and has lost the lease."""
        return self._term is not None and self._term.loss is not None

    async def run(self, lead: Lead) -> None:
        """Wait for leadership, run `lead(hold)` under it, and give it up when `lead` has ended.

        Cancelled from outside, it cancels `lead`, waits for it and releases.

        Raises: LeaseLost when leadership was lost, what `lead` raises, and
        ConfigurationError when the Lease can never be written.
        """
        term = self._term = _Term(self, self._api)
        try:
            await term.run(lead)
        finally:
            self._term, self._written = None, term.tenure.written

    def _make_tenure(self, listener: Listener) -> Tenure:
        duration = int(self.timings.lease_duration)
        claim = Claim(self._namespace, self._name, self.identity, duration, earlier=self._written, labels=self._labels)
        hold = Hold(str(claim), self._clock)
        return Tenure(claim, self.timings, hold, clock=self._clock, rng=self._rng, listener=listener)

    def _observed(self, lease: Lease) -> None:
        self._lease = lease
        if lease.holder and lease.holder != self._reported:
            self._reported = lease.holder
            _tell(self._on_new_leader, lease.holder)

    def _renewed(self, sent: float, answered: float) -> None:
        _tell(self._on_renewed, sent, answered)

    def _started(self) -> None:
        self._record("became leader")
        _tell(self._on_started)

    def _stopped(self) -> None:
        self._record("stopped leading")
        _tell(self._on_stopped)

    def _overdue(self) -> None:
        _tell(self._on_deadline)

    def _record(self, what: str) -> None:
        if self._recorder is not None and self._lease is not None:
            regarding = Regarding.of(LEASES, self._lease.metadata)
            self._recorder.event(regarding, EventType.NORMAL, _EVENT_REASON, f"{self.identity} {what}")


class _Term:
    """One candidacy: from waiting for the lease to having left it."""

    def __init__(self, elector: LeaderElector, api: Api) -> None:
        self._elector = elector
        self._api = api
        self._turn = asyncio.Event()
        self.loss: Loss | None = None
        self._leading: asyncio.Future[None] | None = None
        self.tenure = elector._make_tenure(
            Listener(
                acquired=self._turn.set,
                lost=self._lost,
                overdue=elector._overdue,
                renewed=elector._renewed,
                observed=elector._observed,
            )
        )

    def _lost(self, loss: Loss) -> None:
        self.loss = loss
        self._turn.set()

    async def run(self, lead: Lead) -> None:
        keeper = asyncio.create_task(self.tenure.run(self._api), name=f"election-{self._elector._name}")
        try:
            await self._next_turn(keeper)
            if self.loss is None:
                await self._lead(lead, keeper)
        except Exception as error:
            if self.loss is not None:
                raise LeaseLost(self.loss.message) from error
            raise
        finally:
            await self._leave(keeper)
        if self.loss is not None:
            raise LeaseLost(self.loss.message)

    async def _lead(self, lead: Lead, keeper: asyncio.Task[bool]) -> None:
        """Run `lead` until it ends or the lease is lost."""
        self._elector._started()
        leading = self._leading = asyncio.ensure_future(lead(self.tenure.hold))
        lost = asyncio.ensure_future(self._next_turn(keeper))
        try:
            await asyncio.wait((leading, lost), return_when=asyncio.FIRST_COMPLETED)
            if keeper.done() and self.loss is None:
                self.loss = Loss(LossKind.DEADLINE, f"the keeper of lease {self._elector._name} has ended")
                await asyncio.wait((lost,))
                _ = lost.cancelled() or lost.exception()  # it was told of that, too
        finally:
            lost.cancel()
            leading.cancel()
            try:
                await asyncio.wait((leading,))
            finally:
                self._elector._stopped()
        failure = None if leading.cancelled() else leading.exception()
        if failure is not None:
            raise failure

    async def _next_turn(self, keeper: asyncio.Task[bool]) -> None:
        """Wait until the lease is acquired or lost.  Raises: what ended the keeper."""
        turn = asyncio.ensure_future(self._turn.wait())
        try:
            await asyncio.wait((turn, keeper), return_when=asyncio.FIRST_COMPLETED)
        finally:
            turn.cancel()
        self._turn.clear()
        if keeper.done():
            keeper.result()

    async def _leave(self, keeper: asyncio.Task[bool]) -> None:
        """Give the lease up, now that `lead` has ended; a cancellation meanwhile leaves it to run out."""
        self.tenure.hold.close()
        try:
            ended = self._leading is None or self._leading.done()
            releases = ended and self.loss is None and await self._settle()
            self.tenure.leave(self._elector._goodbye if releases else Goodbye(release=False))
            await asyncio.wait((keeper,))
        finally:
            keeper.cancel()
        with suppress(Exception, asyncio.CancelledError):
            keeper.exception()

    async def _settle(self) -> bool:
        """Wait until no write of `lead` can be executed any more; `False`: nobody knows."""
        if self._leading is None:
            return True
        return await self.tenure.settle([self._elector._settled], self._elector.timings.lease_duration)


def _check_labels(labels: Mapping[Any, Any]) -> dict[str, str]:
    """Raises: ConfigurationError for what no object can bear: such a Lease could never be written."""
    for key, value in labels.items():
        if not (isinstance(key, str) and isinstance(value, str) and is_label_key(key) and is_label_value(value)):
            raise ConfigurationError(f"{key!r}: {value!r} cannot be a label of an election's Lease")
    return dict(labels)


def _tell(callback: Callable[..., None] | None, *arguments: object) -> None:
    if callback is None:
        return
    try:
        callback(*arguments)
    except Exception:
        log.exception("A callback of the leader election failed")
