"""Leadership of a process: an election, and the work that only its winner does.

    Manager(election=Election("my-controller"))

It stands once: after a lost election whoever restarts the process brings back a
clean one.

A leader whose event loop is blocked cannot be told that its time is over, so a
thread watches the clock for it, and ends the process once its hold has ended
(tests/unit/shardsdk/lease/test_leadership.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from shardsdk.errors import ConfigurationError
from shardsdk.events.recorder import EventRecorder
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.server import Access
from shardsdk.lease import pod
from shardsdk.lease.election import LeaderElector
from shardsdk.lease.hold import Hold, watched
from shardsdk.lease.namesakes import warn_of_namesakes
from shardsdk.lease.timings import LeaseTimings
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)


@dataclass(frozen=True, slots=True)
class Election:
    """Of all replicas with an election of this `name` in `namespace`, one leads and runs the leader's controllers.

    `namespace` is the Lease's and defaults to the pod's, then the kubeconfig's; `timings` to the manager's.
    `identity` defaults to hostname_uuid.  Give each process one of its own: what a
    process of the same has not released (a StatefulSet's pod that was killed, say) is
    waited for like another's, for the lease's duration.  The callbacks are called on
    the event loop and must not block.

        Manager(election=Election("my-controller", timings=LeaseTimings.of(30)))
    """

    name: str
    namespace: str | None = None
    identity: str | None = None
    timings: LeaseTimings | None = None
    release_on_stop: bool = True
    on_started: Callable[[], None] | None = None
    on_stopped: Callable[[], None] | None = None
    on_new_leader: Callable[[str], None] | None = None


class Candidate:
    """One process's part in an election.

    `die` must end the process; it is called when work goes on after its time.
    Without `threaded` the event loop alone watches the time.
    """

    def __init__(
        self,
        election: Election,
        source: object,
        *,
        clock: Clock,
        rng: Random,
        threaded: bool,
        die: Callable[[], None],
    ) -> None:
        pod.check_election_name(election.name)
        if election.identity is not None:
            pod.check_identity(election.identity)
        for name in ("on_started", "on_stopped", "on_new_leader"):
            told = getattr(election, name)
            if told is not None and not callable(told):
                raise ConfigurationError(f"the election has {name}={told!r}, which is no function")
        self.election = election
        self.leads: bool = False
        #: Under which it has led, and which was lost; the work has ended.
        self.lost: Hold | None = None
        self.namespace: str = pod.lease_namespace(
            election.namespace, source, "the election's Lease belongs: pass Election(namespace=…)"
        )
        #: A server in memory has nobody else.
        self._in_a_cluster = isinstance(source, Access)
        self._clock = clock
        self._rng = rng
        self._threaded = threaded
        self._die = die
        self._settlers: list[Callable[[], Awaitable[None]]] = []

    def settle_first(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Await `settled()` between the end of the work and the release of the lease."""
        self._settlers.append(settled)

    async def run(self, api: Api, lead: Callable[[Hold], Awaitable[None]]) -> None:
        """Wait until it leads, run `lead(hold)`, give the lease up.

        Raises: LeaseLost, what `lead` raises, and what `LeaderElector.run` does.
        """
        election = self.election
        recorder = EventRecorder(api, election.name, self._clock, self._rng)
        elector = LeaderElector(
            api,
            namespace=self.namespace,
            name=election.name,
            identity=election.identity,
            timings=election.timings,
            clock=self._clock,
            rng=self._rng,
            on_started=election.on_started,
            on_stopped=election.on_stopped,
            on_new_leader=election.on_new_leader,
            on_deadline=self._die,
            recorder=recorder,
            release_on_stop=election.release_on_stop,
            settled=self._settle,
        )
        beside = [asyncio.create_task(recorder.run(), name="election-events")]
        if self._in_a_cluster:
            looking = warn_of_namesakes(api, self.namespace, election.name, self._clock)
            beside.append(asyncio.create_task(looking, name="election-namesakes"))
        try:
            await elector.run(lambda hold: self._lead(hold, lead, elector))
        finally:
            for each in beside:
                each.cancel()
            await asyncio.wait(beside)
            if self.lost is None:  # else whatever runs beside it is to be told at once
                await recorder.flush_in_passing()

    async def _lead(self, hold: Hold, lead: Callable[[Hold], Awaitable[None]], elector: LeaderElector) -> None:
        self.leads = True
        with watched(hold, self._die) if self._threaded else contextlib.nullcontext():
            try:
                await lead(hold)
            finally:
                self.leads = False
                if elector.lost:
                    self.lost = hold

    async def _settle(self) -> None:
        for settled in self._settlers:
            await settled()
