"""What happens to the cluster: crashes, pauses, outages, lost messages, users."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from shardsdk.errors import ShardingError
from shardsdk.kube.store import Key
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import LEASES, NAMESPACES, Resource
from shardsdk.testing.processes import outside
from tests.simulation.collecting import owner_uid
from tests.simulation.network import CALM, Link, Trouble
from tests.simulation.schedule import Action, namespace_of
from tests.simulation.server import Service
from tests.simulation.shards import ShardProcess
from tests.simulation.simapi import SimApi
from tests.simulation.storage import Version
from tests.simulation.vocabulary import FAMILY, IN_RING, PIECES, PLAIN, PLAINS, RING_OF, WORKS

if TYPE_CHECKING:
    from tests.simulation.replicas import ReplicaProcess
    from tests.simulation.world import AnyShard, World

T = TypeVar("T")

#: Shards that run at most, of both rings.
MAX_SHARDS = 7
#: Main objects at most.
MAX_OBJECTS = 24


class Happenings:
    """Carries out actions; those that do not fit the world just now are left out."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._user = SimApi(world.server, world.link("user"), world.clock)
        self._names = 0

    def do(self, action: Action) -> None:
        """Carry one action out."""
        self.world.note(f"--- {action.what}")
        self.world.mark(f"action {action.what}")
        getattr(self, action.what)(Random(action.seed))

    def heal(self) -> None:
        """End all trouble, and have at least one shard per ring and one replica."""
        world = self.world
        world.note("--- heal")
        for each in (*world.replicas, *world.shards):
            each.process.resume()
            self._calm(each.link)
        world.webhook_up = world.plan.webhook
        world.serve()
        rings = {shard.ring.ring for shard in world.shards if shard.running}
        for name, ring in (("fam-0", FAMILY), ("pla-0", PLAIN)):
            if ring.ring not in rings:
                world.start_shard(name, ring)
        if not any(replica.running for replica in world.replicas):
            world.start_replica("sharder-0")
        world.calm_from(world.now)

    # -- shards ------------------------------------------------------------------

    def crash_shard(self, rng: Random) -> None:
        shard = self._shard(rng)
        if shard is not None:
            shard.kill()
            same_pod = rng.random() < 0.6
            self._start_again(shard, rng, getattr(shard, "instance", None) if same_pod else None)

    def lose_node(self, rng: Random) -> None:
        shard = self._shard(rng)
        if isinstance(shard, ShardProcess):
            shard.kill(closes_connections=False)  # what it sent may still be executed
            self._start_again(shard, rng, None)

    def pause_shard(self, rng: Random) -> None:
        self._pause(self._shard(rng), rng)

    def stop_shard(self, rng: Random) -> None:
        shard = self._shard(rng)
        if shard is not None:
            outside(self._stop_shard(shard, rng))

    async def _stop_shard(self, shard: AnyShard, rng: Random) -> None:
        await shard.stop()
        shard.kill()
        self._start_again(shard, rng, None)

    def add_shard(self, rng: Random) -> None:
        if len(self.world.shards) < MAX_SHARDS:
            ring = FAMILY if rng.random() < 0.7 else PLAIN
            self.world.start_shard(f"{ring.ring[:3]}-{rng.randint(0, 5)}x", ring)

    def second_process(self, rng: Random) -> None:
        """A pod deleted by force while it still runs: its successor has the same name."""
        shard = self._shard(rng)
        if shard is not None and shard.fenced and len(self.world.shards) < MAX_SHARDS:
            self.world.start_shard(shard.name, shard.ring)
            self._later(rng.uniform(0.5, 3.0) * self.world.timings.lease, shard.kill)

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
            self._later(2 * self.world.timings.lease, lambda: self._calm(shard.link))

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

    def trouble_shard(self, rng: Random) -> None:
        self._trouble(self._shard(rng), rng)

    def trouble_leader(self, rng: Random) -> None:
        self._trouble(self.world.leader, rng)

    def cut_shard(self, rng: Random) -> None:
        self._cut(self._shard(rng), rng)

    def cut_leader(self, rng: Random) -> None:
        self._cut(self.world.leader, rng)

    def break_watches(self, rng: Random) -> None:
        self.world.server.break_watches(rng.random())

    def stall_watch(self, rng: Random) -> None:
        world = self.world
        shards = [each for each in world.shards if each.ring.ring not in world.plan.quiet]
        them = [each for each in (*shards, *(() if world.plan.quiet else world.replicas)) if each.running]
        seconds = rng.uniform(2.0, 40.0)
        watch = self.world.server.stall_watch([each.link for each in them], seconds)
        if watch is not None:
            self.world.note(f"a watch of {watch.link.name} on {watch.resource.plural} stalls for {seconds:.1f} s")
            self.world.trouble(watch.link.name)
            ring = next((each.ring.ring for each in self.world.shards if each.link is watch.link), None)
            self.world.waits.hinder(ring, seconds)
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
        self._later(rng.uniform(0.5, 5.0) * self.world.timings.lease, lambda: self._calm(who.link))

    def _cut(self, who: AnyShard | ReplicaProcess | None, rng: Random) -> None:
        if who is not None:
            self.world.note(f"{who.identity} is cut off")
            self.world.trouble(who.identity)
            who.link.cut = True
            self._later(rng.uniform(0.3, 3.0) * self.world.timings.lease, lambda: self._calm(who.link))

    def _calm(self, link: Link) -> None:
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
            self._later(seconds, who.process.resume)

    # -- users: objects -------------------------------------------------------------

    def create_work(self, rng: Random) -> None:
        self._create(WORKS, rng, {"keys": [f"k{number}" for number in range(rng.randint(0, 3))], "serial": 0})

    def create_plain(self, rng: Random) -> None:
        self._create(PLAINS, rng, {"keys": [], "serial": 0})

    def _create(self, resource: Resource, rng: Random, spec: dict[str, Any]) -> None:
        if sum(1 for _ in self.world.storage.objects(resource)) >= MAX_OBJECTS:
            return
        name = f"{resource.plural[0]}{rng.getrandbits(16):04x}"
        metadata: dict[str, Any] = {"namespace": namespace_of(rng)}
        metadata |= {"generateName": f"{name}-"} if rng.random() < 0.2 else {"name": name}
        self._try(self._user.create(resource, {"metadata": metadata, "spec": spec}, metadata["namespace"]))

    def touch_work(self, rng: Random) -> None:
        work = self._object(WORKS, rng)
        if work is not None:
            spec = dict(work.doc["spec"])
            spec["serial"] += 1
            if rng.random() < 0.4 and len(spec["keys"]) < 4:
                spec["keys"] = [*spec["keys"], f"k{len(spec['keys'])}"]
            self._patch(WORKS, work, {"spec": spec})

    def delete_work(self, rng: Random) -> None:
        self._delete(WORKS, self._object(WORKS, rng))

    def recreate_work(self, rng: Random) -> None:
        work = self._object(WORKS, rng)
        if work is not None:
            body = {"metadata": {"name": work.key.name, "namespace": work.key.namespace}, "spec": work.doc["spec"]}

            async def again() -> None:
                await self._user.delete(WORKS, work.key.name, work.key.namespace)
                await self._user.create(WORKS, body, work.key.namespace)

            self._try(again())

    def delete_piece(self, rng: Random) -> None:
        self._delete(PIECES, self._object(PIECES, rng))

    # -- users: labels, leases, namespaces --------------------------------------------

    def remove_label(self, rng: Random) -> None:
        resource = rng.choice((WORKS, PLAINS))
        self._patch_labels(resource, self._object(resource, rng), shard=True)

    def remove_both_labels(self, rng: Random) -> None:
        resource = rng.choice((WORKS, PLAINS))
        self._patch_labels(resource, self._object(resource, rng), shard=True, drain=True)

    def remove_piece_label(self, rng: Random) -> None:
        self._patch_labels(PIECES, self._object(PIECES, rng), shard=True)

    def drain_by_hand(self, rng: Random) -> None:
        resource = rng.choice((WORKS, PLAINS))
        found = self._object(resource, rng)
        if found is not None:
            self._patch(resource, found, {"metadata": {"labels": {RING_OF[resource].drain: "by-hand"}}})

    def _patch_labels(
        self, resource: Resource, found: Version | None, *, shard: bool = False, drain: bool = False
    ) -> None:
        if found is None:
            return
        ring = RING_OF[resource]
        labels = {name: None for name, wanted in ((ring.shard, shard), (ring.drain, drain)) if wanted}
        self._patch(resource, found, {"metadata": {"labels": labels}})

    def delete_lease(self, rng: Random) -> None:
        self._delete(LEASES, self._shard_lease(rng))

    def empty_lease(self, rng: Random) -> None:
        lease = self._shard_lease(rng)
        if lease is not None:
            self._patch(LEASES, lease, {"spec": {"holderIdentity": ""}})

    def toggle_namespace(self, rng: Random) -> None:
        key = Key("", namespace_of(rng))
        found = self.world.storage.get(NAMESPACES, key)
        if found is not None and self.world.plan.select_namespaces:
            self.world.liveness.disturb()
            value = "no" if found.label(IN_RING) == "yes" else "yes"
            self._patch(NAMESPACES, found, {"metadata": {"labels": {IN_RING: value}}})

    # -- inside ------------------------------------------------------------------

    def _pick(self, them: Sequence[T], rng: Random) -> T | None:
        running = [each for each in them if each.running]  # type: ignore[attr-defined]
        return rng.choice(running) if running else None

    def _shard(self, rng: Random) -> AnyShard | None:
        """A shard that may be troubled."""
        return self._pick([each for each in self.world.shards if each.ring.ring not in self.world.plan.quiet], rng)

    def _object(self, resource: Resource, rng: Random) -> Version | None:
        found = sorted(self.world.storage.objects(resource), key=lambda version: version.key)
        if resource == PIECES:
            found = [each for each in found if owner_uid(each) is not None]
        return rng.choice(found) if found else None

    def _shard_lease(self, rng: Random) -> Version | None:
        found = [each for each in self.world.storage.objects(LEASES) if each.label(LEASE_RING_LABEL)]
        return rng.choice(sorted(found, key=lambda version: version.key)) if found else None

    def _patch(self, resource: Resource, found: Version, body: dict[str, Any]) -> None:
        self.world.note(f"user patches {resource.plural} {found.key}: {body}")
        self._try(self._user.patch(resource, found.key.name, found.key.namespace or None, body))

    def _delete(self, resource: Resource, found: Version | None) -> None:
        if found is not None:
            self.world.note(f"user deletes {resource.plural} {found.key}")
            self._try(self._user.delete(resource, found.key.name, found.key.namespace or None))

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        self.world.later(seconds, action)

    def _try(self, attempt: Awaitable[object]) -> None:
        self.world.calm_from(self.world.now)

        async def run() -> None:
            with suppress(ShardingError):
                await attempt

        body: Coroutine[Any, Any, None] = run()
        task = outside(body)
        # Kept until it is done: a loop holds its tasks weakly.
        _BACKGROUND.add(task)
        task.add_done_callback(_BACKGROUND.discard)


_BACKGROUND: set[asyncio.Task[None]] = set()
