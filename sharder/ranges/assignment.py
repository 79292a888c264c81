"""Assignment by ranges: who is named for which part of the space, from the leases and the namespaces that there are.

Satisfies `sharder.rings.assignment.Assignment`, by which the ring's controller knows it.

Every look is one pass over the protocol: read the assignment, then the leases, both live;
revoke what a shard shall not have any longer, grant what is free, in one write against
the version that was read.  A write that somebody else has overtaken is begun anew.  At
rest nothing is read: leases that are merely renewed, and assignments that say the same,
wake nobody.

A shard that is gone keeps what it is named for until its lease is the sharder's: until
then it may be working (`TakeoverController`).  One that has missed renewals keeps it as
well, and is given nothing while others are there (`Takers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Final

from sharder.backlog.scope import Wanted
from sharder.cache.namespaces import Namespaces
from sharder.cache.rings import LeaseKey, RingCache, RingSnapshot
from sharder.core.cutting import Cut
from sharder.core.membership import Membership
from sharder.core.observed import FREE
from sharder.core.ranges import granted, holdings, next_named, rebuilt, revoked, unreadable
from sharder.core.ringspec import LetGo
from sharder.core.summary import Refused, Summary
from sharder.core.transit import Transit, next_transit
from sharder.ranges.candidates import Candidates, process_of
from sharder.ranges.contest import Contest
from sharder.ranges.homes import Homes
from sharder.ranges.overlapping import NONE, Overlapping
from sharder.ranges.report import RangeReport
from sharder.ranges.state import State
from sharder.ranges.store import RETRY_SECONDS, AssignmentStore, Read
from sharder.ranges.takers import Takers
from sharder.ranges.trouble import Trouble
from sharder.ranges.weights import Budget, ReportedWeights, Weights
from sharder.takeover.controller import TakeoverController
from sharder.takeover.leadership import Leadership
from sharder.tasks import end
from shardsdk.errors import FenceClosed, NotFound, RetryRule, ShardingError
from shardsdk.kube.backoff import Backoff
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.kube.selectors import Selector, equals
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES, PartialObject, SlimMeta
from shardsdk.protocol.ranges import (
    EVERYWHERE,
    NAMESPACE_COUNTS_ANNOTATION,
    NOWHERE,
    RING_ASSIGNMENTS,
    HashBy,
    HashRanges,
    Named,
)

log = logging.getLogger(__name__)

#: Between two writes: ranges that come free together are granted together.
WRITE_SECONDS: Final = 0.05
#: How often it is looked again while something is on its way that no event may tell of: a lease that vanished, and
#: counts as held until it would have run out.
LOOK_SECONDS: Final = 1.0


class RangeAssignment:
    """Names the shards of one ring for ranges; `run` it while the replica leads."""

    def __init__(
        self,
        name: str,
        leadership: Leadership,
        namespaces: Namespaces,
        takeover: TakeoverController,
        *,
        cache: RingCache,
        cut: Cut,
    ) -> None:
        self._name = name
        self._lead = leadership
        self._namespaces = namespaces
        self._takeover = takeover
        self._cache = cache
        self._cut = cut
        self._store = AssignmentStore(name, leadership.api, leadership.fence, leadership.clock)
        self._contest = Contest(name, leadership.clock)
        self._backoff = Backoff(leadership.rng, max_seconds=RETRY_SECONDS)
        self._watch: Reflector[PartialObject] = Reflector(
            leadership.api, RING_ASSIGNMENTS, selector=Selector(fields=equals("metadata.name", name)),
            handler=self._on_assignment, name=f"assignment/{name}", clock=leadership.clock, rng=leadership.rng,
        )  # fmt: skip
        takeover.when_ready.append(self.membership_changed)
        takeover.when_acquired.append(lambda shard: self._wake.set())
        #: Told whenever what `summarize` says may be another than before; often, so be quick.
        self.when_changed: list[Callable[[], None]] = []
        #: What is to be assigned; `None`: nothing.
        self.wanted: Wanted | None = None
        #: What was found at the last look; `None`: there was none yet.
        self.state: State | None = None
        self._held: dict[LeaseKey, tuple[object, ...] | None] = {}
        self._report = RangeReport(name, self._store, leadership.clock, leadership.rng)
        self._reported = ReportedWeights(leadership.clock)
        self._weights = Weights(namespaces, self._reported)
        self._candidates = Candidates(leadership.clock)
        self._homes = Homes(leadership.clock)
        self._overlapping, self._overlaps = Overlapping(leadership.clock), NONE
        self._budget = Budget(leadership.clock)
        #: In how many seconds it is to be looked again, without anybody telling of anything.
        self._again: float | None = None
        self._takers = Takers()
        self._trouble = Trouble()
        self._wake = asyncio.Event()

    # -- what happens to the ring --------------------------------------------

    def place(self, wanted: Wanted | None) -> None:
        """Have this assigned from now on, and nothing else."""
        if wanted != self.wanted:
            self.wanted = wanted
            self._wake.set()

    def membership_changed(self) -> None:
        """Other shards are there, or ready, than before."""
        self._wake.set()

    def namespace_changed(self, name: str, before: SlimMeta | None, after: SlimMeta | None) -> None:
        """A namespace came, changed its labels or went."""
        if self.wanted is None or self.wanted.ring.spec.hash_by is not HashBy.NAMESPACE:
            return
        ring, namespaces = self.wanted.ring, self._namespaces
        if namespaces.covered(ring, before) != namespaces.covered(ring, after):
            self._wake.set()

    def restart_watches(self) -> None:
        """Begin every watch anew: an API server may hang, and say nothing of it."""
        self._watch.restart()

    def _on_assignment(self, delta: Delta[PartialObject]) -> None:
        self._wake.set()

    def _on_lease(self, ring: str, key: LeaseKey) -> None:
        """Look when a shard holds something else, or another holds its lease; a renewal alone changes nothing."""
        if ring != self._name:
            return
        snapshot = self._cache.get(ring)
        seen = snapshot.leases.get(key) if snapshot is not None else None
        says = None
        if seen is not None:
            counts = (seen.lease.metadata.annotations or {}).get(NAMESPACE_COUNTS_ANNOTATION)
            says = (seen.lease.holder, process_of(seen.lease), seen.lease.held_ranges, counts)
        if self._held.get(key) != says:
            self._held[key] = says
            self._wake.set()
        if says is None:
            self._held.pop(key, None)

    # -- what shards have, for the takeover of their leases --------------------

    def is_empty_of(self, shard: str) -> bool | None:
        """Whether `shard` is named for nothing, and its lease holds nothing; `None`: not known yet."""
        if self.state is None:
            return None
        snapshot = self._cache.get(self._name)
        leases = () if snapshot is None else (seen.lease for seen in snapshot.leases_named(shard))
        return not self.state.named.of(shard) and not holdings(leases).get(shard)

    async def confirm_empty_of(self, shard: str) -> bool:
        """The same by a consistent read."""
        if self.wanted is None:
            return False
        read = await self._store.read(self.wanted.ring.spec.hash_by)
        return read.named is not None and not read.named.of(shard)

    # -- what is found -------------------------------------------------------

    def summarize(self) -> Summary:
        """What the ring waits for."""
        if self.wanted is None:
            return Summary(at_rest=True)
        settled = self.state is not None and not self.state.waits_for
        removed = frozenset(each.let_go for each in self.wanted.removed)
        there = self._takeover.membership.available | self._takeover.membership.untouched
        return Summary(
            settled, oldest_drain=self._report.longest(), removed_clean=removed, at_rest=settled,
            trouble=self._trouble.words, ranges=self._report.summarize(self.state, there, self._contest.words),
        )  # fmt: skip

    @property
    def removed_clean(self) -> frozenset[LetGo]:
        """Removed resources of which no object is any shard's any more: all, since none was ever labelled."""
        return self.summarize().removed_clean

    def take_refused(self) -> Refused | None:
        """None: nobody's object is changed."""
        return None

    # -- running -------------------------------------------------------------

    async def run(self) -> None:
        """Assign until cancelled."""
        unfollow = self._cache.follow_leases(self._on_lease)
        self._takeover.set_work(self)
        watch = asyncio.create_task(self._watch.run())
        try:
            await self._namespaces.reflector.synced.wait()
            self._wake.set()
            while True:
                await self._wait()
                await self._look()
        finally:
            unfollow()
            self._takeover.set_work(None)
            await end(watch)

    async def _wait(self) -> None:
        found = self.state
        waits = bool(self._homes.gone)
        if found is not None and (self._shards or any(found.held.values())):
            waits = waits or bool(found.waits_for)  # else no shard is there, and a lease has to change before all else
        try:
            dues = (self._again, self._candidates.due_in(), self._report.due_in(), self._contest.due_in,
                    self._overlapping.due_in(), self._store.adoption_due_in())  # fmt: skip
            due = [each for each in dues if each is not None]
            async with asyncio.timeout(LOOK_SECONDS if waits else min(due, default=None)):
                await self._wake.wait()
        except TimeoutError:
            return
        await self._lead.clock.sleep(WRITE_SECONDS)  # what happens at the same time is looked at once
        self._wake.clear()

    async def _look(self) -> None:
        wanted = self.wanted
        if wanted is None:
            self._set_state(None)
            return
        began = self._lead.clock.monotonic()
        try:
            await self._pass(wanted)
            self._backoff.reset()
            self._note(None)
            return
        except FenceClosed:
            pass  # nothing was sent; the lease is lost, which ends this, or its next renewal opens the fence again
        except ShardingError as error:
            # Somebody else was faster, in writing it or in deleting it: look at what is there now.
            if error.retry is not RetryRule.REFRESH and not isinstance(error, NotFound):
                log.warning("ranges not assigned, will retry", extra={"ring": self._name, "error": str(error)})
            self._note(error)
        except Exception as error:
            # A bug; the other rings of this leadership go on.
            log.exception("ranges not assigned, will retry", extra={"ring": self._name})
            self._note(error)
        self._candidates.miss()
        self._homes.miss(began)
        self._wake.set()
        await self._lead.clock.sleep(self._backoff.next())

    def _note(self, error: Exception | None) -> None:
        now = self._lead.clock.monotonic()
        contested, was_served = self._contest.words, self._store.was_served
        if self._trouble.look(error, self._report.failure, now, was_served=was_served, contested=contested):
            for tell in self.when_changed:
                tell()

    async def _pass(self, wanted: Wanted) -> None:
        spec = wanted.ring.spec
        read = await self._store.read(spec.hash_by)
        self._contest.found(read)
        # In this order: a lease that holds more than was read holds it by a newer assignment, and ours is refused.
        held, presumed = await self._read_held(read)
        named = read.named
        if named is None:
            if self._contest.left:
                return
            named = self._rebuild(read, rebuilt(spec.hash_by, held, presumed))
            await self._write(read, named, spec.uid)
            self._set_state(self._found(named, named, held, presumed))
            self._wake.set()
            return
        before = self.state.begun(named) if self.state is not None else read.transit.arrived(named)
        aim = self._aim(named, before, held, wanted)
        following = next_named(named, self._homes.without_moved(aim, named), held)
        for shard in named.shards.keys() - self._takeover.membership.available:
            self._takeover.enqueue(shard)
        due = self._store.homes_due_in() if self._homes.differ(read.homes, named) else None
        if due:
            self._again = min(due, self._again or due)
        if following == named and due != 0:
            self._set_state(self._found(named, aim, held, presumed))
            loads = self._weights.loads(named, wanted, self._shards)
            await self._report.show(read, named, loads, self._homes.namespaces, self._takeover.membership.left)
            await self._store.adopt(read, spec.uid)
            return
        # It is told also if that fails; what has no answer may be executed.
        self._set_state(replace(self._found(named, aim, held, presumed), unwritten=before, sent=following))
        if self._contest.left:  # nor is its status written, by which whoever it is would look again
            return
        transit = next_transit(named, following, aim, held, read.transit, self._homes.bound)
        await self._write(read, following, spec.uid, transit)
        changes = {"revoked": str(revoked(named, following)), "granted": str(granted(named, following))}
        log.info("ranges assigned", extra={"ring": self._name, **changes})
        self._set_state(self._found(following, aim, held, presumed))
        self._wake.set()

    async def _write(self, read: Read, named: Named, ring_uid: str, transit: Transit | None = None) -> None:
        self._contest.sends(read, named)
        await self._store.write(read, named, self._homes.of, ring_uid, transit)
        self._contest.wrote(named)

    def _found(self, named: Named, aim: Named, held: Mapping[str, HashRanges], missing: Set[str]) -> State:
        unfit = self._candidates.silent, self._candidates.idle
        return State(named, aim, held, frozenset(missing), *unfit, self._overlaps)

    def _rebuild(self, read: Read, named: Named) -> Named:
        named = self._homes.rebuilt(named)
        if read.version or named.shards:
            log.warning(
                "RingAssignment is written anew from what shards hold",
                extra={"ring": self._name, "why": read.problem, "shards": sorted(named.shards)},
            )
        return named

    async def _read_held(self, read: Read) -> tuple[dict[str, HashRanges], set[str]]:
        """What each shard may be working on, and of which nobody knows: one that is gone may be on anything."""
        ours = Selector(equals(LEASE_RING_LABEL, self._name))
        leases = [each async for page in self._lead.api.pages(LEASES, selector=ours, model=Lease) for each in page]
        named = read.named.shards if read.named is not None else {}
        self._reported.read(leases)
        snapshot = self._cache.get(self._name)
        # What is not held any more, and is in the cache, is judged once the cache has seen why.
        late = set() if snapshot is None else {key for key, seen in snapshot.leases.items() if seen.lease.held_by_shard}
        vanished = set() if snapshot is None else _may_be_missed(snapshot)
        names = {lease.metadata.name for lease in leases} | vanished | set(named)
        # Where namespaces are dropped each of a name reads that it is named: nothing but what is said may bind it.
        remembered = names if self._store.keeps_homes else ()
        self._homes.read(leases, named, read.homes, late, self._takeover.may_hold, remembered)
        held = self._candidates.read(leases, named, self._homes.of)
        there = self._takeover.membership
        lapsed = (there.available - there.ready) | there.unrenewed
        self._overlaps = self._overlapping.look(held, named, unreadable(leases), lapsed)
        presumed = {shard for shard in names - held.keys() if self._takeover.may_hold(shard)}
        presumed |= {shard for _, shard in late} - held.keys()
        gone = {shard: held.get(shard, NOWHERE) | ranges for shard, ranges in self._homes.gone.items()}
        return held | dict.fromkeys(presumed, EVERYWHERE) | gone, presumed | gone.keys()

    def _aim(self, named: Named, before: Named, held: Mapping[str, HashRanges], wanted: Wanted) -> Named:
        membership, self._again, clear = self._takeover.membership, None, self._homes.clear(named)
        if not self._shards:
            return clear
        stays = {shard: each for shard, each in clear.shards.items() if self._keeps(shard, membership)}
        stays |= self._takers.look(self._shards, membership, clear, before, held)
        kept = HashRanges.union(stays.values())
        planned = Named(
            named.by, {shard: ranges - kept for shard, ranges in before.shards.items() if ranges - kept} | stays
        )
        # Nothing moves between others while one is away, whose lease somebody has deleted, say: it makes it again.
        takers, short = self._takers.now, self._takers.short
        aim = self._cut(planned, takers, self._weights.points(wanted), keep=stays.keys(), short=short)
        if not planned.nobodys and planned.shards.keys() == aim.shards.keys() and aim != planned:
            # Nothing has to move, but for evenness: nobody has gone, nor is anybody given something who had nothing.
            self._again = max(self._budget.left_in(), self._reported.unsure_for()) or None
            if self._again is not None or stays:
                return planned
            self._budget.spend()
        self._takers.fed()
        return aim

    @property
    def _shards(self) -> frozenset[str]:
        """Who may be named; where none takes what it is named for, those that say so: whoever recovers has it."""
        there = self._takeover.membership.available - self._homes.unclear
        return there - self._candidates.unfit or there & self._candidates.idle

    def _keeps(self, shard: str, membership: Membership) -> bool:
        """Whether a shard that is not available keeps what it has: nobody may take it away yet."""
        if shard in self._candidates.idle:
            return False  # two have its name, say; the one that is named says itself that it works on nothing
        return shard not in membership.available and self._takeover.fence_for(shard) is None

    def _set_state(self, state: State | None) -> None:
        if state != self.state:
            self.state = state
            if state is None:
                self._report.follow(NOWHERE, None, {})
            else:
                self._report.follow(state.waits_for, state.aim, state.held)
            for tell in self.when_changed:
                tell()


def _may_be_missed(snapshot: RingSnapshot) -> set[str]:
    """The shards whose leases vanished while somebody held them; most were given back first, and weeks ago."""
    return {shard for shard, gone in snapshot.vanished.items() if any(each.held != FREE for each in gone)}
