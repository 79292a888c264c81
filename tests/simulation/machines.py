"""Machines that a hypervisor stops together with their clocks: nothing on them knows afterwards that time has passed.

Neither do their timers: what a request or a sleep had left when the machine stopped, it has left when that goes on.
What shows it is the `Date` of the first answer to a request that is sent after
the wake-up.  Until then the product promises nothing: what a process sends in
those milliseconds is excused, and what it sends afterwards is not, whether that
answer was understood or not.  Where it cannot show the stop (its connection was
idle, the answers are slow), the process is excused until it has renewed its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from math import floor, inf
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shardsdk.kube.clock import Clock
from shardsdk.kube.lapses import DRIFT, MEMORY_SECONDS, NOTICED_SECONDS, RESOLUTION_SECONDS, Lapses, ServerClock
from shardsdk.testing.processes import ProcessState
from shardsdk.testing.virtual import SkewedClock, VirtualClock
from tests.simulation.timers import StoppedTimers
from tests.simulation.vocabulary import RATES

if TYPE_CHECKING:
    from tests.simulation.replicas import ReplicaProcess
    from tests.simulation.shards import ShardProcess
    from tests.simulation.world import World

#: A stop that lasts longer is noticed, whatever the clocks' rates.
LEAST_SECONDS: Final = NOTICED_SECONDS + RESOLUTION_SECONDS
#: How much less a second without an answer shows: what clocks may drift apart, and how fast this machine's may go.
_DRIFT: Final = DRIFT + max(RATES) - 1.0
#: Actions that stop a machine; without any of them no clock has to be compared with another.
STOPS: Final = frozenset({
    "stop_shards_machine", "stop_leaders_machine", "stop_shard_in_renewal", "stop_leader_in_renewal", "force_away",
})  # fmt: skip


class Standstill(NamedTuple):
    """That a machine stood still for so many seconds.

    `overlooked` is called by an answer that was to show it and did not, `renewed` once its process's lease is renewed.
    """

    seconds: float
    went_on_at: float
    overlooked: Callable[[], None]
    renewed: Callable[[], None]


class MachineClock(SkewedClock):
    """The clock of a machine that may be stopped; inherited because it differs in nothing else."""

    __slots__ = ("lapses", "unnoticed")

    def __init__(self, clock: VirtualClock, **skew: float) -> None:
        super().__init__(clock, **skew)
        self.lapses = Lapses()
        self.unnoticed: Standstill | None = None

    def stood_still(self, seconds: float) -> None:
        """It did not go for so long, until now; nobody has looked at it meanwhile."""
        self._boot -= seconds * self._rate
        self._ahead -= timedelta(seconds=seconds)


@dataclass(slots=True)
class Machines:
    """Which machines of one run stand still, and which do not know yet that they did."""

    world: World
    _stopped: dict[str, tuple[ShardProcess | ReplicaProcess, float, StoppedTimers]] = field(default_factory=dict)
    #: Since when processes did not know that their machines had stood still last, and when they noticed that.
    _unaware: dict[str, tuple[float, float]] = field(default_factory=dict)
    _went_on_at: dict[str, float] = field(default_factory=dict)

    def clock_of(self, process: str, rng: Random) -> SkewedClock:
        """The clock of the machine that a process runs on."""
        ahead, boot = rng.uniform(-3600, 3600), rng.uniform(0, 1e5)
        rate = self.world.rate(process)
        if STOPS.isdisjoint(action.what for action in self.world.plan.actions):
            return SkewedClock(self.world.clock, ahead_seconds=ahead, boot_seconds=boot, rate=rate)
        return MachineClock(self.world.clock, ahead_seconds=ahead, boot_seconds=boot, rate=rate)

    def stop(self, who: ShardProcess | ReplicaProcess, seconds: float) -> None:
        """Stop the machine that `who` runs on for a while."""
        if who.process.state is not ProcessState.RUNNING or not isinstance(who.clock, MachineClock):
            return
        self.world.note(f"the machine of {who.identity} stands still for {seconds:.1f} s, and its clock with it")
        self.world.trouble(who.identity)
        self._stopped[who.identity] = who, self.world.now, StoppedTimers(who.process)
        who.process.pause()
        self.world.later(seconds, lambda: self._wake(who.identity))

    def resume(self, who: Any) -> None:
        """Let a process that was merely paused go on, unless its machine stands still."""
        if who.identity not in self._stopped and who.process.state is ProcessState.PAUSED:
            self._went_on_at[who.identity] = self.world.now
            who.process.resume()

    def goes_on_now(self, process: str) -> bool:
        """Whether a process goes on at just this moment: whatever was due meanwhile happens at once, in any order."""
        return self._went_on_at.get(process) == self.world.now

    def wake_all(self) -> None:
        """Let every machine go on."""
        for process in list(self._stopped):
            self._wake(process)

    def _wake(self, process: str) -> None:
        if process not in self._stopped:
            return
        who, since, timers = self._stopped.pop(process)
        clock, seconds = who.clock, self.world.now - since
        if who.process.state is not ProcessState.PAUSED:
            return
        assert isinstance(clock, MachineClock)
        self.world.note(f"the machine of {process} goes on")
        clock.stood_still(seconds)
        timers.go_on(seconds)
        unaware_since, noticed_at = self._unaware.get(process, (self.world.now, 0.0))
        self._unaware[process] = unaware_since if noticed_at == inf else self.world.now, inf
        ends: list[Callable[[], None]] = []

        def noticed() -> None:
            ends[0]()
            self.world.note(f"{process} notices that its machine stood still")
            self.world.mark("stop of a machine noticed")
            ends_judging()

        def ends_judging() -> None:
            clock.unnoticed = None
            ends_excuse()

        def ends_excuse() -> None:
            since, until = self._unaware[process]
            self._unaware[process] = since, min(until, self.world.now)

        def overlooked() -> None:
            ends_judging()
            what = f"{process} has had an answer, and does not know that its machine stood still for {seconds:.1f} s"
            self.world.checkers.violate("notices a stop", what)

        clock.unnoticed = Standstill(seconds, self.world.now, overlooked, ends_excuse)
        ends.append(clock.lapses.subscribe(noticed))
        self.resume(who)

    def is_unaware(self, process: str, at: float | None = None) -> bool:
        """Whether a process did not know at that moment (`None`: now) that its machine had stood still.

        At the very moment at which it notices it has yet to do what it does about that.
        """
        since, noticed_at = self._unaware.get(process, (inf, -inf))
        return since <= (self.world.now if at is None else at) <= noticed_at


class Comparison:
    """One client's comparison of its clock with the API server's, as shardsdk.kube.sessions makes it."""

    def __init__(self, clock: MachineClock) -> None:
        self._clock = clock
        self._server_clock = ServerClock()
        #: When the last answer came that the next is compared with, and how long that had taken.
        self._answered = (-inf, 0.0)
        #: The stop that the first answer after it has been judged by; those that follow are compared with that one.
        self._judged: Standstill | None = None

    def watch(self, execute: Callable[[], Any]) -> tuple[Callable[[], Any], Callable[[], None]]:
        """A request that notes when it is executed, and what to do once it is answered."""
        began, asked_at = self._clock.monotonic(), asyncio.get_running_loop().time()
        sent = began + self._clock.lapses.least
        dates: list[int] = []

        def dated() -> Any:
            dates.append(floor(asyncio.get_running_loop().time()))
            return execute()

        def compare() -> None:
            if dates:
                self._server_clock.compare("connection", sent, self._clock.monotonic, dates[0], self._clock.lapses)
                self._judge(began, asked_at)

        return dated, compare

    def _judge(self, began: float, asked_at: float) -> None:
        """Whether the answer to a request was to show a stop, and nobody has noticed any."""
        now, stop = self._clock.monotonic(), self._clock.unnoticed
        if stop is not None and stop is not self._judged:
            if asked_at <= stop.went_on_at:
                return
            self._judged = stop
            before, took = self._answered
            shown = LEAST_SECONDS + took + (now - began) + _DRIFT * (now - before) + self._server_clock.apart
            if now - before <= MEMORY_SECONDS and stop.seconds > shown:
                stop.overlooked()
        self._answered = now, now - began

    def renewed(self, asked_at: float) -> None:
        """A renewal of the process's own lease that was sent at that moment has been confirmed."""
        stop = self._clock.unnoticed
        if stop is not None and asked_at > stop.went_on_at:
            stop.renewed()


def comparison_of(clock: Clock) -> Comparison | None:
    """What a client compares; `None`: its machine is never stopped, so it need not."""
    return Comparison(clock) if isinstance(clock, MachineClock) else None
