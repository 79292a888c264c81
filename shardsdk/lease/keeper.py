"""The keeper: how a process comes to hold a Lease, keeps it, notices that it lost it, and leaves it.

A state machine without I/O.  `next` says what to do, the answer goes back in by
one of `saw`, `wrote`, `refused` and `failed`, then `next` is asked again.  One
request is under way at a time.

    SEEKING --confirmed--> HOLDING --leave--> LEAVING --> LEFT
       |                      |                  ^
       +-----leave------------|------------------+
                              +--deadline, taken--> LOST --leave--> LEAVING or LEFT

Guarantees (tests/properties/test_keeper.py holds them against a hostile world):

- *A hold ends before anyone may take the lease.*  It counts from the moment
  before the confirmed write was sent, however late its answer came; a write
  without an answer extends nothing until a read finds its renewTime.
- *Lost is final.*  After LOST the machine never holds again.
- *Every write is conditional* on the resourceVersion last seen, or a plain create.
- *Another's lease is waited for* as long as the lease says, by our own clock,
  counted from when we saw it change; deleting or emptying it by hand does not
  shorten that, leaving it on purpose ends it at once.

Refuses: to compare any time in the Lease with a clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, assert_never

from shardsdk.lease.claim import (
    Claim,
    HeldRanges,
    Others,
    Relation,
    describe_other,
    describe_taker,
    released,
    render_create,
    render_grace,
    render_hold,
    render_release,
    renewal_of,
)
from shardsdk.lease.restores import changed_hands, is_older
from shardsdk.lease.steps import Action, Asked, Left, Loss, LossKind, Moment, Phase, Read, Stop, Wait, Write
from shardsdk.lease.timings import Deadlines, LeaseTimings
from shardsdk.protocol.leases import Lease, render_micro_time
from shardsdk.protocol.ranges import HashRanges

#: A refused write is tried again at once, but only so many times in a row:
#: more is no coincidence with a label patch, somebody fights for the lease.
MAX_REFUSALS: Final = 10


class Keeper:
    """One process's side of one Lease."""

    __slots__ = (
        "_asked", "_at_once", "_claim", "_clean", "_fresh", "_grace_seconds", "_hurried_at", "_known", "_last_failure",
        "_leave_until", "_next_at", "_others", "_refusals", "_timings", "_unanswered_before", "_unanswered_until",
        "_version", "_why", "_written", "confirmed", "deadlines", "held", "loss", "phase",
    )  # fmt: skip

    def __init__(self, claim: Claim, timings: LeaseTimings) -> None:
        self.phase: Phase = Phase.SEEKING
        #: When the write was sent that the hold counts from; `None` before the first.
        self.confirmed: Asked | None = None
        #: What follows from that; `None` before the first.
        self.deadlines: Deadlines | None = None
        self.loss: Loss | None = None
        #: The ranges of hashes that the Lease is to say are held.
        self.held: HeldRanges = HeldRanges()
        self._claim = claim
        self._timings = timings
        #: The Lease as last seen, and whether the next write may build on that.
        self._known: Lease | None = None
        self._fresh = False
        self._others = Others()
        #: The version that our last confirmed write made.
        self._version = ""
        #: renewTimes that may be in the Lease because we sent them, and since when.
        self._written: dict[str, Asked] = {}
        #: Until when a write may be executed that says we hold the lease and was not answered; minus infinity: there
        #: is none.  And what that was before the last one.
        self._unanswered_until = self._unanswered_before = -math.inf
        #: When the last request was sent.
        self._asked = Asked(-math.inf)
        self._next_at = self._hurried_at = -math.inf
        self._refusals, self._at_once = 0, False
        #: Why nothing is done before `_next_at`, and what failed since the last confirmed write.
        self._why = self._last_failure = ""
        self._leave_until = math.inf
        self._grace_seconds = 0
        self._clean = False

    @property
    def written(self) -> frozenset[str]:
        """The renewTimes by which this process knows the Lease for its own."""
        return frozenset(self._written) | (self._claim.earlier if self.confirmed is None else frozenset())

    def identify(self, instance: str, owed: HashRanges | None = None) -> None:
        """Say in the Lease, from the next write on, that this instance holds it, with these ranges."""
        self._claim = replace(self._claim, instance=instance, held=owed)

    def promise_fence(self) -> None:
        """Say in the Lease that writes are fenced, from the next write on, which is due at once."""
        self._claim = replace(self._claim, fenced=True)
        if self.phase is Phase.HOLDING:
            self._next_at = -math.inf

    def tell_leaving(self, at: Moment) -> None:
        """Say in the Lease, at once, that its holder is about to leave."""
        self._claim = replace(self._claim, leaving=True)
        self.hurry(at)

    def hold_ranges(self, ranges: HashRanges, number: int) -> None:
        """Say in the Lease that these are held, at once; nothing is said where the lease is not held itself."""
        if self.phase is Phase.HOLDING:
            self.held.change(ranges, number)
            self._claim = replace(self._claim, held=ranges)
            self._next_at = -math.inf

    def tell_counts(self, counts: str) -> None:
        """Say this of namespaces with the next renewal, and those after it."""
        self._claim = replace(self._claim, counts=counts)

    def hurry(self, at: Moment) -> None:
        """A renewal that is sent from now on is due at once, because the clock may have missed some time, say."""
        self._hurried_at = at.monotonic
        if self.phase is Phase.HOLDING:
            self._next_at = -math.inf

    def next(self, at: Moment) -> Action:
        """What to do now."""
        self.check(at)
        match self.phase:
            case Phase.SEEKING:
                return self._seek(at)
            case Phase.HOLDING:
                return self._keep(at)
            case Phase.LEAVING:
                return self._leave(at)
            case Phase.LOST:
                assert self.loss is not None
                return Stop(self.loss)
            case Phase.LEFT:
                return Left(self._clean)
            case unknown:
                assert_never(unknown)

    def check(self, at: Moment) -> None:
        """Notice that the deadline has passed, even while a request is under way."""
        if self.phase is Phase.HOLDING and at.monotonic >= self._deadlines.step_down_at:
            reason = f"; last failure: {self._last_failure}" if self._last_failure else ""
            self._lose(
                LossKind.DEADLINE, f"{self._claim} was not renewed within {self._timings.renew_deadline:g} s{reason}"
            )

    def leave(self, at: Moment, *, grace_seconds: int = 0, failed: bool = False) -> None:
        """Give the lease up: the work under it has ended, which it says if that has `failed`.

        With `grace_seconds` it is left to the holder's next incarnation for so
        long, else it may be taken at once.  A lease that another has taken is
        left alone.
        """
        if self.phase in (Phase.LEAVING, Phase.LEFT):
            return
        taken = self.loss is not None and self.loss.kind is LossKind.TAKEN
        if taken or not self._written:
            self._finish(clean=True)
            return
        self.phase = Phase.LEAVING
        self._claim = replace(self._claim, failed=failed)
        # Without a confirmed write there is no hold, only the chance that an unanswered one was or will be executed.
        settled_until = max(at.monotonic, self._unanswered_until) + self._timings.request_timeout
        self._leave_until = self.deadlines.hold_ends_at if self.deadlines else settled_until
        self._grace_seconds = grace_seconds
        self._fresh = self._fresh and self._unanswered_until == -math.inf
        self._next_at = at.monotonic
        self._refusals = 0

    # Answers.

    def saw(self, lease: Lease | None, at: Moment) -> None:
        """The Lease was read; `None`: there is none.

        Raises: ConfigurationError when it is that of a shard of another ring, who has not given it back.
        """
        known, self._known, self._fresh = self._known, lease, True
        self._why = ""
        if self.phase is Phase.SEEKING:
            self._observe(lease, at)
        elif self.phase is Phase.HOLDING and lease is not None:
            self._look_for_restore(known, lease)
            self._see_whether_taken(lease, at)

    def wrote(self, lease: Lease, at: Moment) -> None:
        """The write was confirmed; `lease` is what it made.

        One after which others read what they read before is no renewal, though it may have changed ranges: nobody
        counts anew (a wall clock that stands still makes the same renewTime twice).
        """
        self.held.answered(lease)
        if self._known is not None and renewal_of(lease) == renewal_of(self._known):
            self._known, self._fresh, self._version = lease, True, lease.metadata.resource_version
            self.failed(at, "the renewal changed nothing: this machine's wall clock stands still", rejected=True)
            return
        self._look_for_doubt(at)
        self._look_for_restore(self._known, lease)
        self._known, self._fresh, self._unanswered_until = lease, True, -math.inf
        self._version = lease.metadata.resource_version
        self._refusals, self._at_once = 0, False
        self._why = self._last_failure = ""
        self.check(at)
        if self.phase in (Phase.SEEKING, Phase.HOLDING):
            self._confirm(at)
        elif self.phase is Phase.LEAVING:
            self._finish(clean=True)

    def refused(self, at: Moment, why: str) -> None:
        """The write was refused because the Lease is not what we took it for (409, 404): read it, try again.

        So will be every other that was built on the same; what was executed, the read will show.
        """
        self._fresh, self._unanswered_until = False, -math.inf
        self._refusals += 1
        self._why = self._last_failure = why
        self._next_at = at.monotonic + (0.0 if self._refusals <= MAX_REFUSALS else self._timings.pause(at.chance))

    def failed(
        self, at: Moment, why: str, *, retry_after_seconds: float = 0.0, rejected: bool = False, broken: bool = False
    ) -> None:
        """The request failed, or nobody knows: it extends nothing.  `rejected`: a write that will have no effect.

        After any other write a read shows what became of it; if it was executed, the next would be refused.  `broken`:
        the connection was; another is tried at once, but for the jitter, and but once between two pauses.

        Whoever answered is given the time it asks for, but never more than an answer may take: a load balancer asks
        for a minute when its backend is away for a second, and by then the lease would be another's.
        """
        if rejected:
            self._unanswered_until = self._unanswered_before
        self._fresh = self._fresh and rejected
        self._why = self._last_failure = why
        self._at_once = broken and not self._at_once
        counted_from = at.monotonic - self._timings.retry_period if self._at_once else self._asked.at
        asked = min(retry_after_seconds, self._timeout(at))
        self._next_at = max(counted_from + self._timings.pause(at.chance), at.monotonic + asked)

    # Seeking.

    def _seek(self, at: Moment) -> Action:
        if at.monotonic < self._next_at:
            return Wait(self._next_at - at.monotonic, self._why)
        if not self._fresh:
            return self._read(at)
        taken = self._known is None or self._claim.sought(self._known, self.written) is not Relation.OURS
        if taken and at.monotonic < self._others.until:
            return self._wait_for_other(at)
        return self._hold(at)

    def _wait_for_other(self, at: Moment) -> Wait:
        """Look again soon (it may be released), and at the latest when it has run out."""
        self._fresh = False
        left = self._others.until - at.monotonic
        self._next_at = at.monotonic + min(self._timings.pause(at.chance), left)
        self._why = f"held by {describe_other(self._claim, self._known)}"
        return Wait(self._next_at - at.monotonic, self._why)

    def _observe(self, lease: Lease | None, at: Moment) -> None:
        if lease is None:
            return
        self._claim.check_ring(lease)
        self._others.saw(lease, self._claim.sought(lease, self.written), at.monotonic)

    # Holding.

    def _keep(self, at: Moment) -> Action:
        if at.monotonic < self._next_at:
            return Wait(min(self._next_at, self._deadlines.step_down_at) - at.monotonic)
        if not self._fresh:
            return self._read(at)
        self._look_for_doubt(at)
        return self._hold(at) if self.loss is None else Stop(self.loss)

    def _see_whether_taken(self, lease: Lease, at: Moment) -> None:
        """A lease that is gone or empty is put back within our hold, which all who may take it respect.

        See `_look_for_doubt`.
        """
        match self._claim.relation(lease):
            case Relation.OTHER:
                self._lose(LossKind.TAKEN, f"{self._claim} {describe_taker(self._claim, lease, self._written)}")
            case Relation.OURS:
                sent = self._written.get(lease.spec.renew_time or "")
                if sent is None:
                    self._lose(LossKind.TAKEN, f"{self._claim} {describe_taker(self._claim, lease, self._written)}")
                elif self.loss is None and at.monotonic < self._deadlines.step_down_at:
                    self._hold_from(sent, at)
            case Relation.FREE:
                # By hand it is emptied otherwise; a clock that stood still has let our hold outlast the lease.
                if released(lease):
                    self._lose(LossKind.TAKEN, f"{self._claim} was given back by somebody who had taken it")
            case unknown:
                assert_never(unknown)

    def _look_for_restore(self, known: Lease | None, lease: Lease) -> None:
        """Versions go back only with the whole store: whatever else we know of it may be wrong, too."""
        if self.phase is not Phase.HOLDING:
            return
        if is_older(lease, self._version) or changed_hands(self._claim, known, lease):
            self._lose(LossKind.TAKEN, f"{self._claim} is not what our last renewal made: etcd came back from a backup")

    def _look_for_doubt(self, at: Moment) -> None:
        """A hold that a stopped clock has stretched is none: somebody may have had the lease before it went."""
        gone = self._known is None or self._claim.relation(self._known) is Relation.FREE
        if self.phase is Phase.HOLDING and gone and self.confirmed and at.missed > self.confirmed.missed:
            self._lose(LossKind.TAKEN, f"{self._claim} is gone, and this machine stood still since its last renewal")

    def _confirm(self, at: Moment) -> None:
        """The last write was answered, and is what the Lease says."""
        self._hold_from(self._asked, at)
        renewed = self._known.spec.renew_time if self._known else None
        # What we sent before this write was conditional on a version that is gone.
        self._written = {renewed: self._asked} if renewed else {}
        pause = 0.0 if self._asked.at < self._hurried_at or self.held.due else self._timings.pause(at.chance)
        self._next_at = max(self._asked.at + pause, at.monotonic)

    def _hold_from(self, sent: Asked, at: Moment) -> None:
        """Hold from the moment that a write was sent that was executed; one that was found out too late is none."""
        later = self.confirmed is None or sent.at > self.confirmed.at
        deadlines = self._timings.after(sent.at)
        if later and at.monotonic < deadlines.step_down_at:
            self.phase, self.confirmed, self.deadlines = Phase.HOLDING, sent, deadlines

    def _lose(self, kind: LossKind, message: str) -> None:
        self.phase = Phase.LOST
        self.loss = Loss(kind, message)

    # Leaving.

    def _leave(self, at: Moment) -> Action:
        """Try until our hold would have ended; after that the lease runs out by itself."""
        if at.monotonic >= self._leave_until:
            self._finish(clean=False)
        elif at.monotonic < self._next_at:
            return Wait(min(self._next_at, self._leave_until) - at.monotonic, self._why)
        elif not self._fresh:
            return self._read(at)
        elif self._known is None or self._claim.relation(self._known) is not Relation.OURS:
            if at.monotonic < self._unanswered_until:  # it could still hold the lease, for a process that is gone
                self._fresh, self._next_at = False, self._unanswered_until
                return self._leave(at)
            self._finish(clean=True)
        elif self._known.spec.renew_time not in self._written:
            self._finish(clean=False)
        elif self._grace_seconds:
            return self._write(render_grace(self._claim, self._known, at.wall, self._grace_seconds), at)
        else:
            return self._write(render_release(self._claim, self._known, at.wall), at)
        return Left(self._clean)

    def _finish(self, *, clean: bool) -> None:
        self.phase = Phase.LEFT
        self._clean = clean

    # Requests.

    def _hold(self, at: Moment) -> Write:
        self._unanswered_before, self._unanswered_until = self._unanswered_until, at.monotonic + self._timeout(at)
        if self._known is None:
            return self._write(render_create(self._claim, at.wall), at, create=True)
        return self._write(render_hold(self._claim, self._known, at.wall, self.written), at)

    def _write(self, body: Mapping[str, Any], at: Moment, *, create: bool = False) -> Write:
        self._asked = Asked(at.monotonic, at.missed)
        # A wall clock that stands still makes one renewTime twice: it says no more than that the first was executed.
        self._written.setdefault(render_micro_time(at.wall), self._asked)
        self.held.sent()
        return Write(body, create, self._timeout(at))

    def _read(self, at: Moment) -> Read:
        self._asked = Asked(at.monotonic, at.missed)
        return Read(self._timeout(at))

    def _timeout(self, at: Moment) -> float:
        """How long a request may take: after a hung one, no more than leaves time for another."""
        if self.phase is Phase.HOLDING:
            return self._timings.renewal_timeout(self._deadlines.step_down_at - at.monotonic)
        return min(self._timings.request_timeout, self._leave_until - at.monotonic)

    @property
    def _deadlines(self) -> Deadlines:
        assert self.deadlines is not None, "a keeper that holds has deadlines"
        return self.deadlines
