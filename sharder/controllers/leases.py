"""Leader's part: the state of every shard's lease, and taking over the leases of the dead.

Does: classify leases, label them with their state, acquire the leases of shards
that are gone before anything moves, renew them meanwhile, give them back, and
delete what is orphaned.  `decide_custody` decides; this obeys.

Refuses: to move objects (see placement), and to act on a lease it has not seen
in the version that it writes against.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from sharder.controllers.custodies import custody_of, is_presumed_held, lives_elsewhere, only_renewed, unknown_lease
from sharder.controllers.holds import CommitProof, JointHold, ShardHold, join
from sharder.controllers.leasewrites import LeaseWriter, Record, namespaces_of
from sharder.controllers.registry import LeaseKey, Registry, RingEntry, SeenLease
from sharder.controllers.standings import Standings
from sharder.controllers.subscribers import Change
from sharder.controllers.working import work_off
from sharder.core.shards import LeaseFacts, Standing, State, classify, facts_of
from sharder.core.takeover import Act, Custody, Limits, Step, decide_custody, hold_seconds
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.backoff import double
from shardsdk.kube.clock import Clock
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.names import is_dns_subdomain
from shardsdk.runtime.queue import WorkQueue

log = logging.getLogger(__name__)

#: Leases worked on side by side.
WORKERS: Final = 8
#: A cache that does not show our write for this long shows that something else has happened.
MAX_LAG_SECONDS: Final = 5.0
#: The shortest pause before a decision that waits for time is looked at again, and while no commit proves time.
MIN_LOOK_SECONDS: Final = 0.05
UNPROVEN_LOOK_SECONDS: Final = 1.0
#: Pause before a lease is tried again that someone else wrote first; usually its event comes sooner.
WRITE_AGAIN_SECONDS: Final = 0.5
#: Pauses before a read is repeated that found objects left on a shard: the first, doubling, and the last.
READ_AGAIN_SECONDS: Final = (0.2, 10.0)
#: What a Lease can be called.  Source: Kubernetes, "Object Names and IDs", DNS subdomain names.

#: (ring, namespace, shard); the namespace is empty for a shard that no lease is known of.
CustodyKey = tuple[str, str, str]


class Work(Protocol):
    """What the placement side knows about the objects of a shard."""

    def work_left(self, ring: str, shard: str) -> bool | None:
        """Whether objects are seen that carry the shard's label; `None` while not known."""

    async def confirm_empty(self, ring: str, shard: str) -> bool:
        """A consistent read: does no object carry the shard's label any more?"""

    def hold_acquired(self, ring: str, shard: str) -> None:
        """The shard's objects may be moved from now on."""


class LeaseController:
    """States of shards, and the holds that moves are made under.

    `leader` is the fence of the leadership; every write here goes through it.
    `on_takeover(ring, shard, reason)` is told of each lease that was acquired.
    """

    def __init__(
        self,
        api: Api,
        registry: Registry,
        *,
        leader: Fence,
        proof: CommitProof,
        work: Work,
        clock: Clock,
        queue: WorkQueue[CustodyKey],
        limits: Limits | None = None,
        on_takeover: Callable[[str, str, str], None] = lambda ring, shard, reason: None,
    ) -> None:
        self._writer = LeaseWriter(api, leader, clock)
        self._registry = registry
        self._proof = proof
        self._work = work
        self._clock = clock
        self._limits = limits or Limits()
        self._queue = queue
        self._records: dict[CustodyKey, Record] = {}
        self._standings = Standings(registry, proof, clock, self._standing)
        self._on_takeover = on_takeover

    # -- what placement asks ---------------------------------------------

    def hold(self, ring: str, shard: str) -> JointHold | None:
        """The hold on every lease of `shard`, or `None` while there is none.

        A label value that cannot be a Lease's name belongs to no shard, and never
        will: nobody has to be kept off.
        """
        if not is_dns_subdomain(shard):
            return join(shard, (ShardHold(shard, self._clock, float("inf")),))
        entry, records = self._registry.entry(ring), [self._record(key) for key in self._keys(ring, shard)]
        if entry is None or not (records and all(record.held for record in records)):
            return None
        if is_presumed_held(entry, shard, self._proof.since, self._clock.monotonic()):
            return None
        joint = join(shard, (record.hold for record in records))
        return joint if joint.remaining() > 0 else None

    async def renew(self, ring: str, shard: str) -> bool:
        """Renew the hold by a conditional write that begins now; False: it is lost."""
        if not is_dns_subdomain(shard):
            return True
        keys = self._keys(ring, shard)
        return bool(keys) and all([await self._renew(key) for key in keys]) and self.hold(ring, shard) is not None

    def moved(self, ring: str, shard: str) -> None:
        """An object has moved away from `shard` under its hold."""
        now = self._clock.monotonic()
        for key in self._keys(ring, shard):
            record = self._record(key)
            record.last_move_at = record.progress_at = now

    def look_at(self, ring: str, shard: str) -> None:
        """Something about the shard's objects has changed: decide about its leases again."""
        keys = self._keys(ring, shard)
        for key in keys or [(ring, "", shard)]:
            self._queue.add(key)

    def refresh(self, ring: str) -> None:
        """What is known of the objects of all the ring's shards has changed."""
        self._offer_all(ring)

    def states(self, ring: str) -> Mapping[LeaseKey, State]:
        """The state of each of the ring's leases, by (namespace, name)."""
        return {key: self._shown(ring, key[1], state) for key, state in self._standings.of(ring).items()}

    async def give_all_back(self) -> None:
        """Give back every lease that is held; nothing else may write them any more.  Shards need not wait then."""
        held = [
            (record, seen.lease)
            for (ring, namespace, shard), record in self._records.items()
            if record.held
            and (entry := self._registry.entry(ring)) is not None
            and (seen := entry.leases.get((namespace, shard))) is not None
        ]
        for answer in await asyncio.gather(
            *(self._writer.give_back(record, lease) for record, lease in held), return_exceptions=True
        ):
            if isinstance(answer, Exception):
                log.info("lease not given back, it runs out by itself", extra={"error": str(answer)})

    # -- running ---------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        unsubscribe = self._registry.subscribe(self._on_change)
        unfollow = self._registry.follow_leases(self._on_lease)
        try:
            for entry in self._registry.entries():
                self._offer_all(entry.name)
            async with asyncio.TaskGroup() as tasks:
                for _ in range(WORKERS):
                    tasks.create_task(work_off(self._queue, self._handle, self._failed))
        finally:
            unsubscribe()
            unfollow()
            await self._queue.shut_down()

    def _on_change(self, ring: str, what: int) -> None:
        if what & (Change.RING | Change.MEMBERSHIP):
            self._offer_all(ring)

    def _on_lease(self, ring: str, lease: LeaseKey) -> None:
        """Look at a lease that says something new; a mere renewal leaves it to the look that is due already."""
        entry = self._registry.entry(ring)
        if entry is None:
            return
        standing, record = self._standings.look_at(entry, lease), self._records.get((ring, *lease))
        recent = self._clock.monotonic() - MAX_LAG_SECONDS
        if standing is None or record is None or not only_renewed(entry.leases[lease].lease, standing, record, recent):
            self._queue.add((ring, *lease))

    def _offer_all(self, ring: str) -> None:
        entry = self._registry.entry(ring)
        if entry is None:
            self._forget_ring(ring)
            return
        self._standings.look_at_all(entry)
        for namespace, name in entry.leases:
            self._queue.add((ring, namespace, name))
        for key in [key for key in self._records if key[0] == ring]:
            self._queue.add(key)

    def _forget_ring(self, ring: str) -> None:
        self._standings.forget(ring)
        for key in [key for key in self._records if key[0] == ring]:
            self._forget(key)

    def _forget(self, key: CustodyKey) -> None:
        record = self._records.pop(key, None)
        if record is not None:
            record.drop()

    def _failed(self, key: CustodyKey, error: Exception) -> None:
        where = {"ring": key[0], "namespace": key[1], "shard": key[2]}
        if isinstance(error, ShardingError):
            log.warning("lease not handled, will retry", extra={**where, "error": str(error)})
        else:
            log.error("lease not handled, will retry", extra=where, exc_info=error)
        self._queue.add_rate_limited(key)

    async def _handle(self, key: CustodyKey) -> None:
        ring, namespace, shard = key
        entry = self._registry.entry(ring)
        if entry is None:
            return
        self._standings.look(entry)
        seen = entry.leases.get((namespace, shard))
        record = self._record(key)
        record.looks_at = float("inf")
        if self._lags(key, seen):
            # The cache does not show our own write yet; deciding by it would undo that.
            # What it shows next brings the lease back here, or nothing does for too long.
            self._queue.add_after(key, MAX_LAG_SECONDS)
            return
        if (seen is None) != (namespace == "") or (seen is None and any(entry.leases_named(shard))):
            # The lease came or went: a shard without any lease has one record, without namespace.
            self._forget(key)
            self.look_at(ring, shard)
            return
        if seen is not None and seen.lease.holder != SHARDER_HOLDER:
            record.drop()
        self._announce(key, record)
        custody, standing = self._custody(entry, key, seen)
        now = self._clock.monotonic()
        step = decide_custody(custody, self._counted(now), self._limits)
        if step.act is Act.WAIT and seen is not None and standing is not None:
            # Any other act writes the lease itself; two writes would cross each other.
            await self._writer.show_state(seen.lease, self._shown(ring, shard, standing.state))
        await self._obey(entry, key, seen, step)
        if step.look_again_at is not None:
            self._look_again(key, step.look_again_at)
        elif seen is None and not custody.work_left:
            self._forget(key)

    def _look_again(self, key: CustodyKey, moment: float) -> None:
        now = self._clock.monotonic()
        proven = self._counted(now) == now
        pause = max(moment - now, MIN_LOOK_SECONDS if proven else UNPROVEN_LOOK_SECONDS)
        self._record(key).looks_at = now + pause
        self._queue.add_after(key, pause)

    def _lags(self, key: CustodyKey, seen: SeenLease | None) -> bool:
        recent = self._clock.monotonic() - MAX_LAG_SECONDS
        if seen is not None:
            record = self._record(key)
            return record.wrote_at >= recent and seen.lease.metadata.resource_version in record.replaced
        # Created a moment ago, in whatever namespace, and not in the cache yet?
        return any(
            record.held and record.wrote_at >= recent
            for (ring, namespace, shard), record in self._records.items()
            if (ring, shard) == (key[0], key[2]) and key[1] in ("", namespace)
        )

    def _announce(self, key: CustodyKey, record: Record) -> None:
        ring, _, shard = key
        if record.held and not record.announced and self.hold(ring, shard) is not None:
            record.announced = True
            self._work.hold_acquired(ring, shard)

    async def _obey(self, entry: RingEntry, key: CustodyKey, seen: SeenLease | None, step: Step) -> None:
        ring, _, shard = key
        match step.act:
            case Act.WAIT:
                return
            case Act.RENEW if self._record(key).held:
                if not await self._renew(key):
                    self._again(key)
            case Act.ACQUIRE | Act.RENEW | Act.CREATE:
                if await self._take(entry, key, seen):
                    log.info("took over lease", extra={"ring": ring, "shard": shard, "reason": step.reason})
                    self._on_takeover(ring, shard, step.reason)
                    self._announce(key, self._record(key))
                else:
                    self._again(key)
            case Act.GIVE_BACK if seen is not None:
                await self._give_back(entry, key, seen, step)
            case Act.DELETE if seen is not None:
                await self._delete(entry, key, seen)

    def _again(self, key: CustodyKey) -> None:
        """Somebody else wrote first; try again once the watch has told."""
        if self._record(key).behind:
            self._registry.doubt_leases(f"the one of shard {key[2]} has changed, and its watch says nothing of that")
        self._queue.add_after(key, WRITE_AGAIN_SECONDS)

    async def _take(self, entry: RingEntry, key: CustodyKey, seen: SeenLease | None) -> bool:
        ring, _, shard = key
        unknown = unknown_lease(entry, shard, await self._writer.find_all(shard))
        if unknown is not None:
            # A shard that lives under it keeps what it has.
            self._registry.doubt_leases(f"{unknown} is not known")
            return False
        if seen is not None:
            record = self._record(key)
            seconds = hold_seconds(facts_of(seen.lease, seen.seen_at), self._limits)
            async with record.lock:
                return await self._writer.acquire(record, seen.lease, seconds)
        vanished = (gone.namespace for gone in entry.vanished.values() if gone.name == shard)
        created: list[Record] = []
        for namespace in namespaces_of(entry.leases, vanished):
            record = self._record((ring, namespace, shard))
            async with record.lock:
                if await self._writer.create(record, ring, namespace, shard, hold_seconds(None, self._limits)):
                    created.append(record)
            if record.refused is not None:
                for each in created:  # the shard was faster: what we made elsewhere is no hold on what it has
                    each.drop()
                return False
        return bool(created)

    async def _renew(self, key: CustodyKey) -> bool:
        ring, namespace, shard = key
        record, entry = self._record(key), self._registry.entry(ring)
        async with record.lock:
            seen = entry.leases.get((namespace, shard)) if entry is not None else None
            return seen is not None and await self._writer.renew(record, seen.lease)

    async def _give_back(self, entry: RingEntry, key: CustodyKey, seen: SeenLease, step: Step) -> None:
        ring, _, shard = key
        record = self._record(key)
        others = bool(entry.membership.available - {shard})
        emptied = self._work.work_left(ring, shard) is False
        if others and emptied and not await self._confirm_empty(key):
            return
        if others and not emptied:
            record.barred_until = self._clock.monotonic() + self._limits.retry_after_stall_seconds
        async with record.lock:
            await self._writer.give_back(record, seen.lease)
        log.info("gave lease back", extra={"ring": ring, "shard": shard, "reason": step.reason})

    async def _confirm_empty(self, key: CustodyKey) -> bool:
        record = self._record(key)
        if await self._work.confirm_empty(key[0], key[2]):
            record.reads = 0
            return True
        self._queue.add_after(key, double(READ_AGAIN_SECONDS[0], record.reads, READ_AGAIN_SECONDS[1]))
        record.reads += 1
        return False

    async def _delete(self, entry: RingEntry, key: CustodyKey, seen: SeenLease) -> None:
        ring, namespace, shard = key
        if not lives_elsewhere(entry, shard) and not await self._confirm_empty(key):
            return
        await self._writer.delete(seen.lease)
        self._forget(key)
        log.info("deleted orphaned lease", extra={"ring": ring, "namespace": namespace, "shard": shard})

    # -- facts -----------------------------------------------------------

    def _counted(self, now: float) -> float:
        # Time that no commit proves does not count against anyone's lease.
        return min(now, self._proof.proven_until())

    def _standing(self, seen: SeenLease) -> tuple[LeaseFacts, Standing]:
        facts = facts_of(seen.lease, seen.seen_at)
        return facts, classify(facts, self._proof.of(facts.duration_seconds), self._limits.orphaned_after_seconds)

    def _shown(self, ring: str, shard: str, state: State) -> State:
        # Long dead is not orphaned while objects are left, or nobody knows.
        return State.DEAD if state is State.ORPHANED and self._work.work_left(ring, shard) is not False else state

    def _custody(self, entry: RingEntry, key: CustodyKey, seen: SeenLease | None) -> tuple[Custody, Standing | None]:
        judged = self._standing(seen) if seen is not None else None
        work_left = self._work.work_left(key[0], key[2])
        custody = custody_of(entry, key[2], seen, judged, self._record(key), work_left, self._proof.since, self._clock)
        return custody, judged[1] if judged is not None else None

    def _record(self, key: CustodyKey) -> Record:
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = Record(ShardHold(f"lease of shard {key[2]}", self._clock))
        return record

    def _keys(self, ring: str, shard: str) -> list[CustodyKey]:
        entry = self._registry.entry(ring)
        return [] if entry is None else [(ring, ns, name) for ns, name in entry.leases if name == shard]
