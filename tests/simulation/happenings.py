"""What happens to the cluster: crashes, pauses, outages, lost messages, users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from shardsdk.protocol.objects import LEASES, Resource
from shardsdk.testing.processes import outside
from tests.simulation.backups import Backups
from tests.simulation.crashloops import CrashLoops
from tests.simulation.endings import Endings
from tests.simulation.foreign import ForeignShard
from tests.simulation.machines import LEAST_SECONDS
from tests.simulation.namesakes import Namesakes
from tests.simulation.network import CALM, Link, Trouble
from tests.simulation.poison import Refusal
from tests.simulation.ranges.hands import Hands
from tests.simulation.schedule import Action, Broken
from tests.simulation.server import Service
from tests.simulation.shards import ShardProcess
from tests.simulation.stops import Stops
from tests.simulation.tampering import Tampering
from tests.simulation.undoing import Undoing
from tests.simulation.users import Users
from tests.simulation.vocabulary import FAMILY, PIECES, PLAIN

if TYPE_CHECKING:
    from tests.simulation.replicas import ReplicaProcess
    from tests.simulation.world import AnyShard, World

T = TypeVar("T")

#: Shards that run at most, of both rings.
MAX_SHARDS = 7
#: How many names chance has for shards of a ring that it adds.
ADDED_NAMES: Final = 6
#: Main objects at most.
MAX_OBJECTS = 24
#: From the moment that a renewal is sent until its answer has been heard, and a little longer.
RENEWAL_SECONDS: Final = 0.02
#: How often that answer is late, and by how much more than its machine stands still.
LATE_SHARE: Final = 0.3
LATE_SECONDS: Final = 0.5


class Happenings:
    """Carries out actions; those that do not fit the world just now are left out."""

    def __init__(self, world: World) -> None:
        self.world = world
        users = Users(world)
        self._namesakes = Namesakes(self, users)
        others = Tampering(users), Hands(users), CrashLoops(self), Stops(self)
        more = Backups(users), Undoing(users), Endings(users)
        self._actors: tuple[object, ...] = (self, users, self._namesakes, *others, *more)

    def do(self, action: Action) -> None:
        """Carry one action out."""
        self.world.note(f"--- {action.what}")
        self.world.mark(f"action {action.what}")
        self._find(action.what)(Random(action.seed))

    def _find(self, what: str) -> Callable[[Random], None]:
        found: Callable[[Random], None] = next(getattr(each, what) for each in self._actors if hasattr(each, what))
        return found

    def heal(self) -> None:
        """End all trouble, and have at least one shard per ring and one replica."""
        world = self.world
        world.note("--- heal")
        world.mark("heal")
        world.machines.wake_all()
        for each in (*world.replicas, *world.shards):
            world.machines.resume(each)
            each.link.at_renewal = None
            self.calm(each.link)
        world.webhook_up = world.plan.webhook
        world.serve()
        world.poison.mend_all()
        world.edits.mend()
        self._namesakes.part_twins()
        rings = {shard.ring.ring for shard in world.shards if shard.running}
        for name, ring in (("fam-0", FAMILY), ("pla-0", PLAIN)):
            if ring.ring not in rings:
                world.start_shard(name, ring)
        if not any(replica.running for replica in world.replicas):
            world.start_replica("sharder-0")
        world.calm_from(world.now)
        if world.plan.broken is not None:
            self._break(world.plan.broken, Random(f"{world.seed}/broken"))

    def _break(self, what: Broken, rng: Random) -> None:
        """One thing breaks, for good."""
        world = self.world
        world.note(f"--- breaks: {what.value}")
        world.mark(f"broken {what.name}")
        match what:
            case Broken.SHARD:
                shard = self._pick([each for each in world.shards if each.ring is FAMILY], rng)
                if shard is not None:
                    world.hung = shard.identity
                    if world.plan.ranges:
                        self._share_with_another(rng)
            case Broken.REPLICA:
                replica = self._pick(world.replicas, rng)
                if replica is not None:
                    replica.link.cut = True
                    if not any(each.stays for each in world.replicas):
                        world.start_replica("sharder-9")
            case Broken.WEBHOOK:
                world.webhook_hangs = True
            case Broken.OBJECT:
                pieces = sorted(world.index.pieces.values(), key=lambda piece: piece.key)
                if pieces:
                    piece = rng.choice(pieces)
                    world.poison.spread(piece)
                    world.poison.refuse(PIECES, piece.key, Refusal.HANGS)

    def _share_with_another(self, rng: Random) -> None:
        """While reconciles run that will not end, another shard is to have some of everybody's ranges."""
        for _ in range(MAX_OBJECTS):
            self._find("touch_work")(rng)
        self._later(0.3, lambda: self.world.start_shard("fam-9", FAMILY))

    # -- shards ------------------------------------------------------------------

    def crash_shard(self, rng: Random) -> None:
        shard = self.shard(rng)
        if shard is not None:
            shard.kill()
            same_pod = rng.random() < 0.6
            self._start_again(shard, rng, getattr(shard, "instance", None) if same_pod else None)

    def lose_node(self, rng: Random) -> None:
        shard = self.shard(rng)
        if isinstance(shard, ShardProcess):
            shard.kill(closes_connections=False)  # what it sent may still be executed
            self._start_again(shard, rng, None)

    def pause_shard(self, rng: Random) -> None:
        self._pause(self.shard(rng), rng)

    def stop_shard(self, rng: Random) -> None:
        shard = self.shard(rng)
        if shard is not None:
            self.stop(shard, rng)

    def stop(self, shard: AnyShard, rng: Random) -> None:
        outside(self._stop_shard(shard, rng))

    async def _stop_shard(self, shard: AnyShard, rng: Random) -> None:
        await shard.stop()
        shard.kill()
        self._start_again(shard, rng, None)

    def add_shard(self, rng: Random) -> None:
        if len(self.world.shards) < MAX_SHARDS:
            ring = FAMILY if rng.random() < 0.7 else PLAIN
            self.world.start_shard(f"{ring.ring[:3]}-{rng.randrange(ADDED_NAMES)}x", ring)

    def share_amid_errors(self, rng: Random) -> None:
        """Another shard comes while some of what others write fails, and may be executed all the same."""
        shards = [each for each in self.world.shards if each.ring is FAMILY and each.running]
        if len(self.world.shards) >= MAX_SHARDS:
            return
        for shard in shards:
            self.world.trouble(shard.identity)
            shard.link.trouble = Trouble(error=rng.uniform(0.1, 0.5), late=rng.uniform(0.0, 0.2))
            self._later(self.world.timings.lease, partial(self.calm, shard.link))
        for _ in range(6):
            self._find("touch_work")(rng)
        self._later(rng.uniform(0.1, 0.5), lambda: self.add_shard(rng))

    def _start_again(self, shard: AnyShard, rng: Random, instance: str | None) -> None:
        draw = rng.random()
        others = [each for each in self.world.shards if each.ring is shard.ring and each is not shard and each.running]
        if draw < 0.25 and others:
            return
        seconds = rng.uniform(0.5, 2.0) if draw < 0.7 else rng.uniform(0.5, 4.0) * self.world.timings.lease
        self._later(seconds, lambda: self.world.start_shard(shard.name, shard.ring, instance))

    # -- the sharder -----------------------------------------------------------------

    def crash_leader(self, rng: Random) -> None:
        self._crash_replica(self.world.leader, rng)

    def crash_replica(self, rng: Random) -> None:
        self._crash_replica(self._pick(self.world.replicas, rng), rng)

    def pause_leader(self, rng: Random) -> None:
        self._pause(self.world.leader, rng)

    def crash_leader_in_takeover(self, rng: Random) -> None:
        """The next leader that takes a lease over does not live to see the end of it."""

        def spring(shard: str) -> None:
            leader = self.world.leader
            self._later(rng.choice((0.0, 0.03, 0.1)), lambda: self._crash_replica(leader, rng))

        self.world.traps.append(spring)

    def pause_leader_in_takeover(self, rng: Random) -> None:
        def spring(shard: str) -> None:
            leader = self.world.leader
            self._later(rng.choice((0.0, 0.03, 0.1)), lambda: self._pause(leader, rng))

        self.world.traps.append(spring)

    def restart_in_takeover(self, rng: Random) -> None:
        """The next shard whose lease is taken over comes back while its objects are being moved."""

        def spring(name: str) -> None:
            self._later(rng.uniform(0.0, 0.3), lambda: come_back(name))

        def come_back(name: str) -> None:
            if any(shard.name == name for shard in self.world.shards) or len(self.world.shards) >= MAX_SHARDS:
                return
            shard = self.world.start_shard(name, FAMILY if name.startswith("fam") else PLAIN)
            shard.link.trouble = Trouble(watch_lag_seconds=rng.choice((0.0, 3.0, 6.0)))
            self._later(2 * self.world.timings.lease, lambda: self.calm(shard.link))

        self.world.traps.append(spring)

    def stop_leader(self, rng: Random) -> None:
        leader = self.world.leader
        if leader is not None:
            outside(leader.stop())
            self._later(rng.uniform(0.5, 5.0), lambda: self.world.start_replica(leader.name))

    def _crash_replica(self, replica: ReplicaProcess | None, rng: Random) -> None:
        if replica is not None:
            replica.kill()
            self._later(rng.uniform(0.5, 5.0), lambda: self.world.start_replica(replica.name))

    # -- network and API server ----------------------------------------------------

    def outage(self, rng: Random) -> None:
        if self.world.server.service is not Service.UP:
            return
        service = rng.choice((Service.DOWN, Service.HANGING, Service.FAILING))
        seconds = rng.uniform(0.2, 3.0) * self.world.timings.lease
        self.world.outage(service, seconds)

    def restore_etcd(self, rng: Random) -> None:
        self.world.restores.begin(rng)

    def trouble_shard(self, rng: Random) -> None:
        self._trouble(self.shard(rng), rng)

    def trouble_leader(self, rng: Random) -> None:
        self._trouble(self.world.leader, rng)

    def cut_shard(self, rng: Random) -> None:
        self._cut(self.shard(rng), rng)

    def cut_leader(self, rng: Random) -> None:
        self._cut(self.world.leader, rng)

    def break_watches(self, rng: Random) -> None:
        self.world.server.break_watches(rng.random())

    def stall_watch(self, rng: Random) -> None:
        world = self.world
        shards = [each for each in world.shards if each.ring.ring not in world.plan.quiet]
        them = [each for each in (*shards, *(() if world.plan.quiet else world.replicas)) if each.running]
        self._stall_watch(them, rng.uniform(2.0, 40.0))

    def stall_leases(self, rng: Random) -> None:
        """The leader hears nothing of the shards' leases for a while, and of all else."""
        leader = self.world.leader
        if leader is not None:
            self._stall_watch([leader], rng.uniform(1.0, 6.0) * self.world.timings.lease, LEASES)

    def name_unheard(self, rng: Random) -> None:
        """Somebody names shards as they like while the leader does not hear what those hold by that."""
        self.stall_leases(rng)
        self._later(rng.uniform(0.0, 1.0), lambda: self._find("name_anybody")(rng))

    def _stall_watch(
        self, them: Sequence[AnyShard | ReplicaProcess], seconds: float, resource: Resource | None = None
    ) -> None:
        watch = self.world.server.stall_watch([each.link for each in them], seconds, resource)
        if watch is not None:
            self.world.note(f"a watch of {watch.link.name} on {watch.resource.plural} stalls for {seconds:.1f} s")
            self.world.trouble(watch.link.name)
            self.world.calm_from(self.world.now + seconds)

    def compact(self, rng: Random) -> None:
        self.world.server.compact()
        self.world.server.break_watches(rng.random())

    def webhook_down(self, rng: Random) -> None:
        self.world.webhook_up = False

        def up() -> None:
            self.world.webhook_up = self.world.plan.webhook

        self._later(rng.uniform(0.2, 3.0) * self.world.timings.lease, up)

    def _trouble(self, who: AnyShard | ReplicaProcess | None, rng: Random) -> None:
        if who is None:
            return
        self.world.trouble(who.identity)
        share = rng.choice((0.05, 0.15, 0.3))
        who.link.trouble = Trouble(
            lost=rng.random() * share,
            unanswered=rng.random() * share,
            late=rng.random() * share,
            error=rng.random() * share,
            watch_lag_seconds=rng.choice((0.0, 0.5, 3.0)),
        )
        self.world.note(f"{who.identity}: {who.link.trouble}")
        self._later(rng.uniform(0.5, 5.0) * self.world.timings.lease, lambda: self.calm(who.link))

    def _cut(self, who: AnyShard | ReplicaProcess | None, rng: Random) -> None:
        if who is not None:
            self.world.note(f"{who.identity} is cut off")
            self.world.trouble(who.identity)
            who.link.cut = True
            self._later(rng.uniform(0.3, 3.0) * self.world.timings.lease, lambda: self.calm(who.link))

    def calm(self, link: Link) -> None:
        link.trouble = CALM
        if link.cut:
            link.cut = False
            self.world.server.drop_link(link)
        self.world.calm_from(self.world.now)

    def _pause(self, who: AnyShard | ReplicaProcess | None, rng: Random) -> None:
        if who is not None:
            seconds = rng.uniform(0.2, 3.0) * self.world.timings.lease
            self.world.note(f"{who.identity} is paused for {seconds:.1f} s")
            self.world.trouble(who.identity)
            who.process.pause()
            self._later(seconds, lambda: self.world.machines.resume(who))

    def stop_shards_machine(self, rng: Random) -> None:
        self._stop_machine(self.shard(rng), rng)

    def stop_leaders_machine(self, rng: Random) -> None:
        self._stop_machine(self.world.leader, rng)

    def stop_shard_in_renewal(self, rng: Random) -> None:
        self._stop_in_renewal(self.shard(rng), rng)

    def stop_leader_in_renewal(self, rng: Random) -> None:
        self._stop_in_renewal(self.world.leader, rng)

    def _stop_machine(self, who: AnyShard | ReplicaProcess | None, rng: Random) -> None:
        """A hypervisor stops it together with its clocks; one without a fence is promised nothing then."""
        if who is not None and not isinstance(who, ForeignShard):
            self.world.machines.stop(who, self._standstill(rng))

    def _stop_in_renewal(self, who: AnyShard | ReplicaProcess | None, rng: Random) -> None:
        """It stops as its next write of a Lease is on its way, executed, or answered and not heard of yet."""
        if who is None or isinstance(who, ForeignShard):
            return
        seconds, sent_since = self._standstill(rng), rng.uniform(0.0, RENEWAL_SECONDS)
        late = seconds + rng.uniform(0.0, LATE_SECONDS) if rng.random() < LATE_SHARE else 0.0

        def stop() -> None:
            if late:
                who.link.answers_late = late
            loop = asyncio.get_running_loop()
            loop.call_later(sent_since, self.world.machines.stop, who, seconds, context=Context())

        who.link.at_renewal = stop

    def _standstill(self, rng: Random) -> float:
        return LEAST_SECONDS + rng.uniform(0.0, 3.0) * self.world.timings.lease

    # -- inside ------------------------------------------------------------------

    def _pick(self, them: Sequence[T], rng: Random) -> T | None:
        running = [each for each in them if each.running]  # type: ignore[attr-defined]
        return rng.choice(running) if running else None

    @property
    def has_room(self) -> bool:
        """Whether another shard may be started."""
        return len(self.world.shards) < MAX_SHARDS

    def shard(self, rng: Random) -> AnyShard | None:
        """A shard that may be troubled."""
        return self._pick([each for each in self.world.shards if each.ring.ring not in self.world.plan.quiet], rng)

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        self.world.later(seconds, action)
