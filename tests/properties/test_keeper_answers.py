"""The keeper and what may become of its requests: how long it holds at most, and what does not cost it the lease.

One process and its Lease.  A request may be lost or be executed long after the process has given it up, its answer
may be late, lost, or broken off; others write the Lease meanwhile.  A line is made from a seed.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardsdk.errors import AlreadyExists, Conflict, NotFound
from shardsdk.lease.keeper import Keeper
from shardsdk.lease.steps import Left, Moment, Phase, Read, Stop, Wait, Write
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.leases import Lease
from tests.keeper_driver import CLAIM, EPOCH, Driver

TIMINGS = LeaseTimings()
#: How long after it was sent a write may be executed whose sender has given it up.
LATE_SECONDS = (0.0, 1.0, 6.0, 20.0)
LABELLED = {"metadata": {"labels": {"alpha.sharding.timebertt.dev/state": "ready"}}}
TAKEN = {"spec": {"holderIdentity": "another"}}


@dataclass(frozen=True)
class Fate:
    """What becomes of a request: each of these shares of them, and how many seconds an answer takes."""

    answered_after: tuple[float, float] = (0.006, 0.006)
    #: The connection breaks: before the request is executed, or afterwards.
    broken_before: float = 0.0
    broken_after: float = 0.0
    #: Nothing is heard of it; it is executed by the way, later, or never.
    silent: float = 0.0
    #: Somebody answers in the API server's place.
    busy: float = 0.0
    #: Others label the Lease before it is executed.
    labelled: float = 0.0


class Line:
    """A keeper, the API server's Lease, and what is between them."""

    def __init__(self, seed: int, fate: Fate, timings: LeaseTimings = TIMINGS) -> None:
        self.rng = random.Random(seed)
        self.fate = fate
        self.timings = timings
        self.happened: Counter[str] = Counter()
        self.driver = Driver()
        self.driver.keeper = Keeper(CLAIM, timings)
        #: When the last write of ours was sent that the API server has accepted, and whether another has it since.
        self.accepted = -math.inf
        self.taken = False
        #: Writes that are executed after they were given up: when, when sent, what.
        self.late: list[tuple[float, float, Write]] = []

    @property
    def keeper(self) -> Keeper:
        return self.driver.keeper

    @property
    def holds(self) -> bool:
        return self.keeper.phase is Phase.HOLDING

    def moment(self) -> Moment:
        now = self.driver.now
        return Moment(now, EPOCH + timedelta(seconds=round(now, 6)), self.rng.random())

    def run(self, seconds: float) -> None:
        """Until then, or the loss of the lease."""
        end = self.driver.now + seconds
        while self.driver.now < end:
            match self.keeper.next(self.moment()):
                case Wait(pause):
                    self.pass_time(max(pause, 0.001))
                case Read() | Write() as request:
                    self.happened[type(request).__name__] += 1
                    self.send(request)
                case Stop() | Left():
                    return

    def pass_time(self, seconds: float) -> None:
        """Time goes by, and the deadline is looked at as it passes; a hold is never longer than it may be."""
        end = self.driver.now + seconds
        for when, sent, write in sorted(self.late, key=lambda each: each[0]):
            if when <= end:
                self.driver.now = max(self.driver.now, when)
                self.late.remove((when, sent, write))
                self.execute(write, sent)
                self.check()
        self.driver.now = end
        self.check()

    def check(self) -> None:
        self.keeper.check(self.moment())
        if self.holds:
            assert self.driver.now < self.accepted + self.timings.renew_deadline
        if self.keeper.deadlines is not None:
            latest = self.timings.after(self.accepted)
            assert self.keeper.deadlines.hold_ends_at <= latest.hold_ends_at, "it holds what nobody has granted"

    def send(self, request: Read | Write) -> None:
        """Send a request, and tell the keeper what came of it."""
        fate, limit, sent = self.fate, request.timeout_seconds, self.driver.now
        what = self.rng.random()
        if self.rng.random() < fate.labelled:
            self.meddle(LABELLED)
        if (what := what - fate.broken_before) < 0:
            self.pass_time(0.003)
            self.keeper.failed(self.moment(), "the connection broke", broken=True)
        elif (what := what - fate.silent) < 0:
            if isinstance(request, Write) and self.rng.random() < 0.7:
                self.late.append((sent + self.rng.choice(LATE_SECONDS), sent, request))
            self.pass_time(limit)
            self.keeper.failed(self.moment(), "no answer")
        elif (what := what - fate.busy) < 0:
            self.keeper.failed(self.moment(), "no backend", retry_after_seconds=self.rng.choice((0, 1, 60, math.inf)))
        else:
            self.answer(request, sent, limit, broken=what < fate.broken_after)

    def answer(self, request: Read | Write, sent: float, limit: float, *, broken: bool) -> None:
        took = self.rng.uniform(*self.fate.answered_after)
        self.pass_time(min(took, limit) / 2)
        answer = self.execute(request, sent)
        self.pass_time(min(took, limit) / 2)
        if took > limit or broken:
            self.keeper.failed(self.moment(), "the connection broke" if broken else "no answer", broken=broken)
        elif isinstance(answer, Exception):
            self.keeper.refused(self.moment(), str(answer))
        elif isinstance(request, Read):
            self.keeper.saw(answer, self.moment())
        else:
            assert answer is not None
            self.keeper.wrote(answer, self.moment())
        self.check()

    def execute(self, request: Read | Write, sent: float) -> Lease | Exception | None:
        try:
            answer = self.driver.execute(request)
        except (Conflict, AlreadyExists, NotFound) as error:
            self.happened["refused"] += isinstance(request, Write)
            return error
        if isinstance(request, Write):
            assert not self.taken, "a renewal was accepted over another's"
            self.accepted = max(self.accepted, sent)
        return answer

    def meddle(self, body: dict[str, Any]) -> None:
        if self.driver.lease_or_none is not None:
            self.driver.meddle(body)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_it_never_holds_longer_than_the_deadline_after_the_last_renewal_that_was_accepted(seed: int) -> None:
    rng = random.Random(seed)
    shares = {name: rng.choice((0.0, 0.02, 0.2)) for name in ("broken_before", "broken_after", "silent", "busy")}
    line = Line(seed, Fate((0.0, rng.choice((0.01, 1.0, 9.0))), labelled=rng.choice((0.0, 0.1)), **shares))
    line.run(rng.uniform(5, 120))
    if line.holds:
        line.meddle(TAKEN)
        line.taken = True
        line.run(60)
        assert not line.holds


@pytest.mark.parametrize("share", [0.1, 0.33, 0.42, 0.49])
@pytest.mark.parametrize("steady", [True, False])
@pytest.mark.parametrize("timings", [TIMINGS, LeaseTimings(3, 2, 0.4), LeaseTimings(60, 40, 8)])
def test_answers_that_take_less_than_half_the_deadline_keep_the_lease(
    timings: LeaseTimings, steady: bool, share: float
) -> None:
    longest = share * timings.renew_deadline
    line = Line(7, Fate((longest if steady else 0.0, longest)), timings)
    line.run(100 * timings.lease_duration)
    assert line.holds
    assert line.happened["refused"] == 0


@pytest.mark.parametrize(("share", "hours"), [(0.02, 4), (0.1, 4), (0.2, 1)])
@pytest.mark.parametrize("executed", [False, True])
def test_connections_that_break_do_not_cost_the_lease(executed: bool, share: float, hours: int) -> None:
    line = Line(11, Fate(broken_after=share) if executed else Fate(broken_before=share))
    line.run(hours * 3600)
    assert line.holds
    assert line.happened["refused"] == 0, "a write is built on what was read after the one that nobody answered"


def test_a_connection_that_breaks_each_time_is_no_reason_to_hurry() -> None:
    """As when an API server restarts: each process asks twice a period, spread by the jitter."""
    line = Line(13, Fate())
    line.run(1)
    line.fate = Fate(broken_before=1.0)
    line.run(60)
    assert not line.holds
    assert line.happened["Read"] + line.happened["Write"] <= 2 + 2 * TIMINGS.renew_deadline / TIMINGS.retry_period
