"""One simulated cluster: the API server, the sharder's replicas, the shards, their users, and what checks them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

from shardsdk.kube.store import Key
from shardsdk.lease.pod import make_uuid
from shardsdk.protocol.labels import SHARDER_HOLDER, RingLabels
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES
from shardsdk.testing.processes import ProcessState, outside
from shardsdk.testing.virtual import VirtualClock
from tests.simulation.admission import Webhooks
from tests.simulation.checkers import Checkers
from tests.simulation.collecting import Collector
from tests.simulation.edits import Edits
from tests.simulation.foreign import ForeignShard
from tests.simulation.happenings import Happenings
from tests.simulation.hindrances import Hindrances
from tests.simulation.index import Index
from tests.simulation.liveness import Liveness
from tests.simulation.machines import Machines
from tests.simulation.marks import no_marks
from tests.simulation.network import Link
from tests.simulation.ownership import Ownership
from tests.simulation.poison import Poison
from tests.simulation.ranges.covering import IDLE, Covering
from tests.simulation.ranges.judges import judges_of_ranges
from tests.simulation.ranges.twins import Names
from tests.simulation.replicas import ReplicaProcess
from tests.simulation.restoring import Restores
from tests.simulation.scenarios import play
from tests.simulation.schedule import Plan
from tests.simulation.server import Service, SimServer
from tests.simulation.shards import ShardProcess, run_as_thread
from tests.simulation.storage import Author, Commit, Storage, Version
from tests.simulation.users import Users
from tests.simulation.vocabulary import (
    FAMILY,
    IN_RING,
    MANY_NAMESPACES,
    NAMESPACE_NAMES,
    PIECES,
    PLAIN,
    PLAINS,
    RATES,
    RINGS,
    SHARDS_NAMESPACES,
    WORKS,
    Stats,
    ring_object,
)
from tests.simulation.waiting import LEADERS_LEASE, Waits
from tests.simulation.webhookservice import WebhookService

AnyShard = ShardProcess | ForeignShard

#: Lines of a run's story that are kept.
STORY_LINES: Final = 4000
SETUP: Final = Author("setup")


class World:
    """One run of a plan; `run` it on a virtual loop."""

    def __init__(self, plan: Plan, clock: VirtualClock) -> None:
        self.plan = plan
        self.seed = plan.seed
        self.timings = plan.timings
        self.clock = clock
        self.stats = Stats(marks=no_marks())
        #: What happened when.
        self.story: deque[tuple[float, str]] = deque(maxlen=STORY_LINES)
        self.made_at: dict[str, float] = {}
        self.storage = Storage(lambda: render_micro_time(clock.now()), *([self._random_uid] if plan.ranges else []))
        self.names = Names(plan)
        self.namespaces = MANY_NAMESPACES if plan.ranges else NAMESPACE_NAMES
        self.webhook_up = plan.webhook
        self.poison = Poison(self)
        self.server = SimServer(
            self.storage, Random(f"{plan.seed}/server"), Webhooks(self.storage, WebhookService(self).ask, self.poison)
        )
        for resource in (WORKS, PIECES, PLAINS):
            self.server.served[resource.group, resource.plural] = resource
        self.server.filters_shards = plan.filters_shards
        self.hindrances = Hindrances(self)
        self.checkers, self.liveness, self.ownership, self.waits = (
            judges_of_ranges(self) if plan.ranges else (Checkers(self), Liveness(self), Ownership(self), Waits(self))
        )
        self.index = Index()
        self.edits = Edits(self)
        self.covering = Covering(self)
        self.machines = Machines(self)
        self.storage.on_set_back.append(self.index.rebuild)
        for each in (self.index, self.waits, self.liveness, self.ownership, self.checkers):
            self.storage.on_commit.append(self.names.to(each.on_commit))
        collector = Collector(self.server, WORKS, (PIECES,), Random(f"{plan.seed}/collector"))
        self.restores = Restores(self, collector)
        self.storage.on_commit.append(self.restores.on_commit)
        self.replicas: list[ReplicaProcess] = []
        self.shards: list[AnyShard] = []
        self.foreign_names: set[str] = set()
        self.over = False
        #: The process whose reconciles do not end any more, and whether the webhook's Service swallows requests.
        self.hung = ""
        self.webhook_hangs = False
        #: Whether the ring of works lists them (and what they control) at present.
        self.works_listed = True
        #: While this is set, nothing happens that may cost a shard its lease.
        self.outlasting = False
        #: What waits for the next takeover of a shard's lease.
        self.traps: deque[Callable[[str], None]] = deque()
        self._graves: list[Any] = []
        self.calm_since = 0.0
        #: Times in which no request was answered: how long, and when they ended.
        self.outages: list[tuple[float, float]] = []
        self._away_since = 0.0
        self._incarnations: dict[str, int] = {}
        self._troubled: set[str] = set()
        #: Processes of shards that were killed, or ended because of their lease.
        self.killed: set[str] = set()

    # -- what everybody asks -------------------------------------------------

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def note(self, line: str) -> None:
        """Add a line to the story that is told when the run fails."""
        if not self.over:  # in what order tasks are cleaned up in the end is no part of it
            self.story.append((self.clock.monotonic(), line))

    def mark(self, name: str) -> None:
        """Count that a point of the product was reached; only what is declared can be."""
        self.stats.marks[name] += 1

    def link(self, name: str) -> Link:
        return Link(name, Random(f"{self.seed}/link/{name}"))

    def rate(self, name: str) -> float:
        """How fast the clock of a process goes."""
        return Random(f"{self.seed}/rate/{name}").uniform(*RATES)

    def namespace_of_shard(self, name: str) -> str:
        return self.names.namespace_of(name)

    def is_held_elsewhere(self, shard: str) -> bool:
        """Whether the sharder, which did not know where a shard has its lease, holds one in another namespace."""
        others = (Key(each, shard) for each in SHARDS_NAMESPACES if each != self.namespace_of_shard(shard))
        docs = [lease.doc for key in others if (lease := self.storage.get(LEASES, key)) is not None]
        return any((doc.get("spec") or {}).get("holderIdentity") == SHARDER_HOLDER for doc in docs)

    def in_scope(self, ring: RingLabels, namespace: str) -> bool:
        """Whether the ring covers a namespace now."""
        if ring is FAMILY and not self.works_listed:
            return False
        if ring is not FAMILY or not self.plan.select_namespaces:
            return True
        found = self.storage.get(NAMESPACES, Key("", namespace))
        return found is not None and found.label(IN_RING) == "yes"

    def working_shards(self, ring: str) -> list[AnyShard]:
        """Shards that run and hold their leases."""
        available = self.liveness.available(ring)
        return [shard for shard in self.shards if shard.ring.ring == ring and shard.running and shard.name in available]

    @property
    def leaders_lease(self) -> Version | None:
        """The lease that the sharder's replicas stand for election with."""
        return self.storage.get(LEASES, LEADERS_LEASE)

    @property
    def leader(self) -> ReplicaProcess | None:
        """The replica that the leader's lease names, if it runs."""
        lease = self.leaders_lease
        holder = lease.doc["spec"].get("holderIdentity") if lease is not None else None
        return next((replica for replica in self.replicas if replica.identity == holder and replica.running), None)

    def was_troubled(self, process: str) -> bool:
        """Whether a process was ever paused or cut off: leader election alone gives no more than that."""
        return process in self._troubled

    def trouble(self, process: str) -> None:
        """Remember that a process was paused or cut off, or its messages delayed."""
        self._troubled.add(process)

    def calm_from(self, moment: float) -> None:
        """Something hinders the sharder until then."""
        self.calm_since = max(self.calm_since, moment)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a write makes `condition` true; whoever wrote it has no answer yet."""
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look(commit: Commit) -> None:
            if not reached.done() and condition():
                reached.set_result(None)

        if condition():
            return
        self.storage.on_commit.append(look)
        try:
            await reached
        finally:
            self.storage.on_commit.remove(look)

    # -- the API server ----------------------------------------------------------

    def outage(self, service: Service, seconds: float) -> None:
        """The API server is away for a while, in the way that `service` says."""
        self.note(f"API server: {service.value} for {seconds:.1f} s")
        for shard in self.shards:
            self.trouble(shard.identity)
        self._away_since = self.now
        self.server.become(service)
        self.later(seconds, self.serve)

    def serve(self) -> None:
        """It answers again, if it was away."""
        if self.server.service is Service.UP:
            return
        self.note("API server: answers again")
        self.outages.append((self.now - self._away_since, self.now))
        self.restores.finish()
        self.server.become(Service.UP)
        self.calm_from(self.now)

    # -- processes ---------------------------------------------------------------

    def start_replica(self, name: str) -> None:
        self._forget_dead()
        self.calm_from(self.now)
        replica = ReplicaProcess(self, name, self._count(name))
        self.note(f"replica {replica.identity} starts")
        self.replicas.append(replica)

    def is_dead(self, process: str) -> bool:
        """Whether a process of a shard was killed, or has lost its lease; what it has sent may still be executed."""
        return process in self.killed

    def start_shard(self, name: str, ring: RingLabels, instance: str | None = None) -> AnyShard:
        """Start a process of a shard; in a new pod, unless `instance` says in which.

        Nothing tells two processes of one foreign shard apart, so there is only one.
        """
        self._forget_dead()
        self.calm_from(self.now)
        owes = self.timings.lease if instance else 0.0  # who goes on with a dead process's lease gives nothing away
        self.hindrances.hinder_shard(ring, name, owes)
        if self.plan.ranges:
            self.hindrances.hinder(ring.ring, owes)
        bars = self.names.barring(name, self.foreign_names)
        if bars and (there := next((shard for shard in self.shards if shard.name in bars), None)) is not None:
            return there
        number = self._count(name)
        shard: AnyShard
        if name in self.foreign_names:
            shard = ForeignShard(self, name, ring, number)
        else:
            shard = ShardProcess(self, name, ring, number, instance or f"pod-{name}-{number}")
        self.note(f"shard {shard.identity} starts")
        self.shards.append(shard)
        return shard

    def spring_traps(self, shard: str) -> None:
        """The lease of `shard` was just taken over: the oldest trap springs."""
        if self.traps:
            self.traps.popleft()(shard)

    def shard_exited(self, shard: AnyShard) -> None:
        """A shard's process ends by itself; its container is restarted."""
        if shard.process.state is ProcessState.KILLED:
            return
        self.note(f"shard {shard.identity} exits")
        shard.kill()
        instance = shard.instance if isinstance(shard, ShardProcess) else None
        pause = Random(f"{self.seed}/restart/{shard.identity}").uniform(0.5, 3.0)
        self.later(pause, lambda: self.start_shard(shard.name, shard.ring, instance))

    def bury(self) -> None:
        """A process was killed: keep its tasks, so that collecting them does not run what they never did."""
        self._graves.append(asyncio.all_tasks())

    def crashed(self, who: str, error: Exception) -> None:
        """A process ended by an error that nobody meant to raise."""
        logging.getLogger(__name__).info("crashed", exc_info=error)
        self.checkers.violate("crash", f"{who}: {error!r}")

    def later(self, seconds: float, action: Any) -> None:
        """Do something in a while, outside of any process."""
        asyncio.get_running_loop().call_later(seconds, action)
        self.calm_from(self.now + seconds)

    def _random_uid(self, number: int) -> str:
        """One that lies anywhere: of those that differ in their end alone the hashes lie near each other."""
        return make_uuid(Random(f"{self.seed}/uid/{number}"))

    def _count(self, name: str) -> int:
        self._incarnations[name] = self._incarnations.get(name, 0) + 1
        return self._incarnations[name]

    def _forget_dead(self) -> None:
        for each in (*self.replicas, *self.shards):
            if each.main.done() or each.process.state is ProcessState.KILLED:
                self.server.drop_link(each.link)
        self.replicas = [
            each for each in self.replicas if not each.main.done() and each.process.state is not ProcessState.KILLED
        ]
        self.shards = [
            each for each in self.shards if not each.main.done() and each.process.state is not ProcessState.KILLED
        ]

    # -- running -------------------------------------------------------------

    async def run(self) -> None:
        """Play the plan, then wait until everything has settled."""
        self._set_up()
        asyncio.get_running_loop().run_in_executor = run_as_thread  # type: ignore[method-assign, assignment]
        happenings = Happenings(self)
        ticking = outside(self._tick())
        try:
            await self._play_scenario()
            for action in self.plan.actions:
                await self.clock.sleep(action.at - self.now)
                if self.checkers.violations:
                    return
                happenings.do(action)
            await self.clock.sleep(self.plan.ends_at - self.now)
            happenings.heal()
            await self._settle()
        finally:
            self.over = True
            ticking.cancel()

    async def _play_scenario(self) -> None:
        """The run's scripted part; random actions begin when it is over, or its time is."""
        if self.plan.scenario is None:
            return
        self.note(f"--- scenario: {self.plan.scenario.value}")
        with suppress(TimeoutError):
            async with asyncio.timeout(self.plan.actions_from - self.now):
                await play(self.plan.scenario, self)
                self.stats.scenarios += 1
                self.mark(f"scenario {self.plan.scenario.name}")
                self.note("--- scenario played")

    def _set_up(self) -> None:
        plan, rng = self.plan, Random(f"{self.seed}/setup")
        for name in (*self.namespaces, *((IDLE,) if plan.ranges else ())):
            body = {"metadata": {"name": name, "labels": {IN_RING: "yes"}}}
            self.storage.create(NAMESPACES, self.storage.name_for(NAMESPACES, body), SETUP)
        for name in RINGS:
            selects = plan.select_namespaces and name == FAMILY.ring
            body = ring_object(name, select_namespaces=selects, ranges=plan.ranges)
            self.storage.create(CLUSTERRINGS, body, SETUP)
        names = [(f"fam-{number}", FAMILY) for number in range(plan.shards)]
        names += [(f"pla-{number}", PLAIN) for number in range(plan.plain_shards)]
        self.foreign_names = {name for name, ring in names[: plan.foreign] if ring is FAMILY}
        for number in range(plan.replicas):
            self.later(rng.uniform(0.0, 2.0), partial(self.start_replica, f"sharder-{number}"))
        for name, ring in names:
            self.later(rng.uniform(0.0, 3.0), partial(self.start_shard, name, ring))
        users = Users(self)
        for create, number in ((users.create_work, plan.works), (users.create_plain, plan.plains)):
            for _ in range(number):
                self.later(rng.uniform(0.0, 8.0), partial(create, Random(rng.getrandbits(32))))

    async def _tick(self) -> None:
        while True:
            await self.clock.sleep(1.0)
            self.hindrances.look()
            self.liveness.tick()
            self.waits.tick()

    async def _settle(self) -> None:
        began = self.now
        deadline = max(began, self.calm_since) + self.liveness.bound
        wrong = ["nothing looked at yet"]
        while wrong and self.now < deadline and not self.checkers.violations:
            await self.clock.sleep(1.0)
            wrong = self.liveness.settled() if self.server.service is Service.UP else ["the API server is away"]
        if wrong and not self.checkers.violations:
            self.checkers.violate("settles", "; ".join(wrong))
        if not wrong:
            self.note("settled")
            self.stats.settled_after = self.now - began
            await self.clock.sleep(self.liveness.grace + 2.0)
