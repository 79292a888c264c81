"""Leader's part: the state of every lease of one ring's shards, and taking over the leases of the dead.

Does: classify leases, label them with their state, acquire the leases of shards that are gone before anything moves,
renew them meanwhile, give them back, and delete what is orphaned.  `decide_takeover` decides; this obeys.

Refuses: to move objects (see placement), and to act on a lease it has not seen in the version that it writes against.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from sharder.cache.rings import LeaseKey, RingCache, RingSnapshot
from sharder.core.membership import Membership
from sharder.core.observed import ObservedLease
from sharder.core.shards import LeaseFacts, ShardState, State, classify
from sharder.core.takeover import Act, Limits, Step, TakeoverFacts, Why, decide_takeover, hold_seconds
from sharder.takeover.facts import (
    WorkLeft,
    lease_keys,
    lives_elsewhere,
    may_count_on,
    name_taken,
    needing_a_look,
    only_renewed,
    presumed_held,
    takeover_facts,
    unknown_lease,
)
from sharder.takeover.fences import CommitProof, JointHold, ShardHold, join
from sharder.takeover.lease_client import LeaseWriter
from sharder.takeover.placeholders import CROWDED_SECONDS, Placeholders, Where, nowhere
from sharder.takeover.records import Record, Records
from sharder.takeover.states import ShardStates
from sharder.takeover.turns import Turns
from shardsdk.errors import ConfigurationError, FenceClosed, ShardingError
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.names import is_dns_subdomain
from shardsdk.queueing.queue import Priority, RateLimit, WorkQueue

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Leases worked on side by side.
WORKERS: Final = 8
#: A cache that does not show our write for this long shows that something else has happened.
MAX_LAG_SECONDS: Final = 5.0
#: The shortest pause before a decision that waits for time is looked at again, and while no commit proves time.
MIN_LOOK_SECONDS: Final = 0.05
UNPROVEN_LOOK_SECONDS: Final = 1.0
#: Pause before a lease is tried again that someone else wrote first; usually its event comes sooner.
WRITE_AGAIN_SECONDS: Final = 0.5


class TakeoverController:
    """States of one ring's shards, and the fences that objects are taken away under.

    `leader` is the fence of the leadership; every write here goes through it.  `on_takeover` is
    told of each lease that was acquired.  `at_once` bounds the leases worked on, of all rings
    together.  What it judges is its own, and ends with the leadership: no cache has it.
    """

    def __init__(
        self,
        ring: str,
        api: Api,
        cache: RingCache,
        *,
        leader: Fence,
        proof: CommitProof,
        clock: Clock,
        limits: Limits | None = None,
        at_once: asyncio.Semaphore | None = None,
        on_takeover: Callable[[], None] = lambda: None,
    ) -> None:
        self._ring = ring
        self._writer = LeaseWriter(api, leader, clock)
        self._cache = cache
        self._proof = proof
        self._clock = clock
        self._limits = limits or Limits()
        self._turns = Turns(at_once or asyncio.Semaphore(WORKERS))
        self._queue: WorkQueue[LeaseKey] = WorkQueue(
            clock, name=f"takeover/{ring}", rate_limit=RateLimit(0.05, 5.0, None)
        )
        self._records = Records(clock)
        self._placeholders = Placeholders(ring, self._writer, self._records, self._limits, clock)
        self._states = ShardStates(proof, clock, self._judge)
        self._on_takeover = on_takeover
        self._work: WorkLeft | None = None
        #: Told when other shards are ready than before.
        self.when_ready: list[Callable[[], None]] = []
        #: Told each shard whose objects may be taken away from now on.
        self.when_acquired: list[Callable[[str], None]] = []

    def set_work(self, work: WorkLeft | None, where: Where = nowhere) -> None:
        """Ask this one what shards have from now on (`None`: nobody knows), and this in which namespaces."""
        self._work, self._placeholders.where = work, where

    @property
    def membership(self) -> Membership:
        """The ring's shards, with those ready that this leader has found to be."""
        known = snapshot.membership if (snapshot := self._snapshot()) is not None else Membership()
        found = self._states.ready
        ready = known.ready if found is None else known.available & found
        return known if ready == known.ready else replace(known, ready=ready)

    # -- what who assigns asks ---------------------------------------------------

    def fence_for(self, shard: str) -> JointHold | None:
        """The hold on every lease of `shard`, as a fence for what is taken away from it; `None` while there is none.

        A label value that cannot be a Lease's name belongs to no shard, and never
        will: nobody has to be kept off.
        """
        if not is_dns_subdomain(shard):
            return join(shard, (ShardHold(shard, self._clock, float("inf")),))
        snapshot = self._snapshot()
        records = [self._records.of(key) for key in lease_keys(snapshot, shard)]
        if snapshot is None or not (records and all(record.held for record in records)):
            return None
        if presumed_held(snapshot, shard, self._proof.since, self._clock.monotonic()):
            return None
        if self._placeholders.lack(snapshot, shard):
            return None
        joint = join(shard, (record.hold for record in records))
        return joint if joint.remaining() > 0 else None

    def may_hold(self, shard: str) -> bool:
        """Whether `shard` may count on a lease that is not there, or says that somebody else holds it, or nobody.

        So it is until one that vanished or was changed so has run out; no shard whose leases are held here may.
        """
        snapshot = self._snapshot()
        if self.fence_for(shard) is not None:
            return False
        if snapshot is None:
            return True
        now = self._counted(self._clock.monotonic())
        return may_count_on(snapshot, shard, self._records.missing_since, self._proof.since, now)

    async def renew(self, shard: str) -> bool:
        """Renew the hold by a conditional write that begins now; False: it is lost."""
        if not is_dns_subdomain(shard):
            return True
        keys = lease_keys(self._snapshot(), shard)
        return bool(keys) and all([await self._renew(key) for key in keys]) and self.fence_for(shard) is not None

    def moved(self, shard: str) -> None:
        """An object has moved away from `shard` under its hold."""
        now = self._clock.monotonic()
        for key in lease_keys(self._snapshot(), shard):
            record = self._records.of(key)
            record.last_move_at = record.progress_at = now

    def enqueue(self, shard: str) -> None:
        """Something about the shard's objects has changed: decide about its leases again."""
        for key in lease_keys(self._snapshot(), shard) or [("", shard)]:
            self._queue.add(key)

    # -- what others ask -------------------------------------------------------

    def states(self) -> Mapping[LeaseKey, State]:
        """The state of each of the ring's leases, by (namespace, name)."""
        return {key: self._shown(key[1], state) for key, state in self._states.states.items()}

    @property
    def records(self) -> Records:
        """What was done about each of them, and what became of that."""
        return self._records

    async def give_all_back(self) -> None:
        """Give back every lease that is held; nothing else may write them any more.  Shards need not wait then."""
        seen = snapshot.leases if (snapshot := self._snapshot()) is not None else {}
        held = [(self._records.of(key), seen[key].lease) for key in self._records if key in seen]
        await self._writer.give_all_back(held)

    # -- running ---------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            self.enqueue_all()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(WORKERS):
                    tasks.create_task(self._queue.process(self._handle_next, self._failed))
        finally:
            await self._queue.shut_down()

    def on_lease(self, lease: LeaseKey) -> None:
        """Look at a lease that says something new; a mere renewal leaves it to the look that is due already."""
        snapshot = self._snapshot()
        if snapshot is None:
            return
        state, record = self._look(self._states.look_at, snapshot, lease), self._records.get(lease)
        recent = self._clock.monotonic() - MAX_LAG_SECONDS
        if state is None or record is None or not only_renewed(snapshot.leases[lease].lease, state, record, recent):
            self._queue.add(lease)

    def enqueue_all(self) -> None:
        """Decide about every lease again: the ring, its shards or what is known of their objects has changed."""
        if (snapshot := self._snapshot()) is None:
            self._states.forget()
            self._records.forget_all()
            return
        self._look(self._states.look_at_all, snapshot)
        self._enqueue_each(snapshot)

    def _enqueue_each(self, snapshot: RingSnapshot) -> None:
        for key in needing_a_look(snapshot, self._records, self._judge, self._clock.monotonic() - MAX_LAG_SECONDS):
            self._queue.add(key)

    def _look(self, look: Callable[..., T], snapshot: RingSnapshot, *which: LeaseKey) -> T:
        """Judge leases, and tell if that has changed which shards are ready."""
        before = self._states.ready
        found = look(snapshot, *which)
        if self._states.ready != before:
            for tell in self.when_ready:
                tell()
            # Whether another shard is there to take the objects of one that is gone decides about that one.
            self._enqueue_each(snapshot)
        return found

    def _failed(self, key: LeaseKey, error: Exception) -> None:
        where = {"ring": self._ring, "namespace": key[0], "shard": key[1]}
        if not isinstance(error, ShardingError):
            log.error("lease not handled, will retry", extra=where, exc_info=error)
        elif self._records.failed(key, error):
            log.warning("lease not handled, will retry", extra={**where, "error": str(error)})
        self._queue.add_rate_limited(key)

    async def _handle_next(self, key: LeaseKey) -> None:
        try:
            async with self._turns.turn(key):
                await self._handle(key)
            self._records.succeeded(key)
        except FenceClosed:  # the lead ends, or its next renewal opens it; no event brings back a dead shard's lease
            self._queue.add_after(key, WRITE_AGAIN_SECONDS)

    async def _handle(self, key: LeaseKey) -> None:
        namespace, shard = key
        snapshot = self._snapshot()
        if snapshot is None:
            return
        self._look(self._states.look, snapshot)
        seen = snapshot.leases.get(key)
        record = self._records.of(key)
        record.looks_at = float("inf")
        if self._records.lags(key, seen.lease if seen else None, self._clock.monotonic() - MAX_LAG_SECONDS):
            # The cache does not show our own write yet; deciding by it would undo that.
            # What it shows next brings the lease back here, or nothing does for too long.
            self._queue.add_after(key, MAX_LAG_SECONDS)
            return
        if (seen is None) != (namespace == "") or (seen is None and any(snapshot.leases_named(shard))):
            # The lease came or went: a shard without any lease has one record, without namespace.
            self._records.forget(key)
            self.enqueue(shard)
            return
        if seen is not None and seen.lease.holder != SHARDER_HOLDER:
            record.drop()
        self._announce(key, record)
        if seen is None and not snapshot.vanished_named(shard):
            record.missing_since = record.missing_since or self._clock.monotonic()
        facts = self._facts(snapshot, key, seen)
        step = decide_takeover(facts, self._counted(self._clock.monotonic()), self._limits)
        self._records.decided(key, facts, step)
        if step.act is Act.WAIT and seen is not None and facts.state is not None:
            # Any other act writes the lease itself; two writes would cross each other.
            await self._writer.show_state(record, seen.lease, self._shown(shard, facts.state.state))
        await self._obey(snapshot, key, seen, step)
        if step.look_again_at is not None:
            self._look_again(key, step.look_again_at)
        elif seen is None and facts.work_left is False:  # else it counts from anew with each list of objects
            self._records.forget(key)
        if seen is not None and record.held and facts.work_left is not False:
            record.act = Act.CREATE  # last, so that what cannot be completed is given back all the same
            await self._placeholders.complete(snapshot, shard)

    def _look_again(self, key: LeaseKey, moment: float) -> None:
        now = self._clock.monotonic()
        counts = min(self._counted(now), self._proof.known_until()) >= now
        pause = max(moment - now, MIN_LOOK_SECONDS if counts else UNPROVEN_LOOK_SECONDS)
        self._records.of(key).looks_at = now + pause
        self._queue.add_after(key, pause)

    def _announce(self, key: LeaseKey, record: Record) -> None:
        # The fence is open before the objects are enqueued that may be taken away under it.
        if record.held and not record.announced and self.fence_for(key[1]) is not None:
            record.announced = True
            for tell in self.when_acquired:
                tell(key[1])

    async def _obey(self, snapshot: RingSnapshot, key: LeaseKey, seen: ObservedLease | None, step: Step) -> None:
        match step.act:
            case Act.GIVE_BACK | Act.DELETE if self._turns.crowded:
                self._queue.add_after(key, WRITE_AGAIN_SECONDS)
            case Act.CREATE if self._placeholders.has_to_wait(snapshot, key[1]):
                self._queue.add_after(key, CROWDED_SECONDS, Priority.BULK)
            case Act.RENEW if self._records.of(key).held:
                if not await self._renew(key):
                    self._again(key)
            case Act.ACQUIRE | Act.TRY | Act.RENEW | Act.CREATE:
                if await self._take(snapshot, key, seen):
                    log.info("took over lease", extra={"ring": self._ring, "shard": key[1], "reason": step.why.value})
                    self._on_takeover()
                    self._announce(key, self._records.of(key))
                else:
                    self._again(key)
            case Act.GIVE_BACK if seen is not None:
                await self._give_back(snapshot, key, seen, step)
            case Act.DELETE if seen is not None:
                await self._delete(snapshot, key, seen)

    def _again(self, key: LeaseKey) -> None:
        """Somebody else wrote first; try again once the watch has told."""
        if self._records.of(key).behind:
            self._cache.relist_leases(f"the one of shard {key[1]} has changed, and its watch says nothing of that")
        self._queue.add_after(key, WRITE_AGAIN_SECONDS)

    async def _take(self, snapshot: RingSnapshot, key: LeaseKey, seen: ObservedLease | None) -> bool:
        shard, record = key[1], self._records.of(key)
        found = await self._writer.find_all(shard)
        snapshot = self._snapshot() or snapshot  # a lease that has come meanwhile is known
        if (unknown := unknown_lease(snapshot, shard, seen, found)) is not None:
            self._cache.relist_leases(f"{unknown} is not known")
            return False  # a shard that lives under it keeps what it has
        record.taken = name_taken(snapshot, shard, found)
        if record.taken:
            raise ConfigurationError(record.taken)
        if seen is not None:
            take = self._writer.may_acquire if record.act is Act.TRY else self._writer.acquire
            async with record.lock:
                return await take(record, seen.lease, hold_seconds(seen.facts, self._limits))
        return await self._placeholders.create(snapshot, shard)

    async def _renew(self, key: LeaseKey) -> bool:
        record = self._records.of(key)
        async with record.lock:
            seen = snapshot.leases.get(key) if (snapshot := self._snapshot()) is not None else None
            return seen is not None and await self._writer.renew(record, seen.lease)

    async def _give_back(self, snapshot: RingSnapshot, key: LeaseKey, seen: ObservedLease, step: Step) -> None:
        shard, record = key[1], self._records.of(key)
        if step.why is Why.MOVED and not (lives_elsewhere(snapshot, shard) or await self._confirm_empty(key)):
            return
        if step.why is Why.STALLED:
            record.barred_until = self._clock.monotonic() + self._limits.retry_after_stall_seconds
        async with record.lock:  # a family's renewal under way would have us hold it again
            await self._writer.give_back(record, seen.lease, aside=self._turns.aside(key))
        log.info("gave lease back", extra={"ring": self._ring, "shard": shard, "reason": step.why.value})

    async def _confirm_empty(self, key: LeaseKey) -> bool:
        record = self._records.of(key)
        async with self._turns.aside(key):
            emptied = self._work is not None and await self._work.confirm_empty_of(key[1])
        if not emptied:
            self._queue.add_after(key, record.read_again_after())
        else:
            record.reads = 0
        return emptied

    async def _delete(self, snapshot: RingSnapshot, key: LeaseKey, seen: ObservedLease) -> None:
        if not lives_elsewhere(snapshot, key[1]) and not await self._confirm_empty(key):
            return
        await self._writer.delete(seen.lease)
        self._records.forget(key)
        log.info("deleted orphaned lease", extra={"ring": self._ring, "namespace": key[0], "shard": key[1]})

    # -- facts -----------------------------------------------------------

    def _counted(self, now: float) -> float:
        # Time that no commit proves does not count against anyone's lease.
        return min(now, self._proof.proven_until())

    def _judge(self, seen: ObservedLease) -> tuple[LeaseFacts, ShardState]:
        facts = seen.facts
        return facts, classify(facts, self._proof.of(facts.duration_seconds), self._limits.orphaned_after_seconds)

    def _is_empty_of(self, shard: str) -> bool | None:
        return self._work.is_empty_of(shard) if self._work is not None else None

    def _shown(self, shard: str, state: State) -> State:
        # Long dead is not orphaned while objects are left, or nobody knows.
        return State.DEAD if state is State.ORPHANED and not self._is_empty_of(shard) else state

    def _facts(self, snapshot: RingSnapshot, key: LeaseKey, seen: ObservedLease | None) -> TakeoverFacts:
        judged = self._judge(seen) if seen is not None else None
        record, empty = self._records.of(key), self._is_empty_of(key[1])
        ready, names = self.membership.ready, self._states.ready or ()
        return takeover_facts(snapshot, key[1], seen, judged, record, empty, ready, names, self._proof.since)

    def _snapshot(self) -> RingSnapshot | None:
        return self._cache.get(self._ring)
