"""Two processes of one name: a pod that was deleted by force and is not gone yet, and its successor; or two shards."""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from shardsdk.kube.store import Key
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.processes import outside
from tests.simulation.machines import LEAST_SECONDS
from tests.simulation.network import CALM
from tests.simulation.schedule import Action
from tests.simulation.shards import ShardProcess

if TYPE_CHECKING:
    from tests.simulation.happenings import Happenings
    from tests.simulation.users import Users
    from tests.simulation.world import AnyShard


class Away(Enum):
    """Why nobody has heard that the old pod has ended."""

    HANGS = "is paused"
    CUT_OFF = "is cut off"
    STOPPED = "is on a machine that stands still"
    HERE = "runs on"


class Namesakes:
    """Starts them."""

    def __init__(self, happenings: Happenings, users: Users) -> None:
        self._happenings = happenings
        self._users = users
        self._world = happenings.world

    def second_process(self, rng: Random) -> None:
        """A pod deleted by force while it still runs: its successor has the same name."""
        self._start_second(rng)

    def empty_beside_namesake(self, rng: Random) -> None:
        """And while that waits for the lease, somebody empties it."""
        shard = self._start_second(rng)
        if shard is not None:
            self._world.later(rng.uniform(0.2, 0.7) * self._world.timings.lease, lambda: self._empty(shard))

    def _start_second(self, rng: Random) -> ShardProcess | None:
        """Start another process of a shard's name; gives the one that runs already, and is to end soon."""
        world, shard = self._world, self._happenings.shard(rng)
        if not isinstance(shard, ShardProcess) or not self._happenings.has_room:
            return None
        world.start_shard(shard.name, shard.ring)
        world.later(rng.uniform(0.5, 3.0) * world.timings.lease, lambda: self._kill(shard))
        return shard

    def _empty(self, shard: ShardProcess) -> None:
        world = self._world
        if world.checkers.is_holder(shard.name, shard.identity):
            world.note(f"user empties the lease of {shard.name}")
            self._users.empty(world.storage.get(LEASES, self._lease_of(shard)))

    def force_away(self, rng: Random) -> None:
        """`kubectl delete --force`: a StatefulSet starts the pod anew, under its name, wherever the old one is.

        That comes back, or does not for as long as the run takes; and is killed sooner or later, if it does.
        """
        world, old = self._world, self._happenings.shard(rng)
        if not isinstance(old, ShardProcess) or not self._happenings.has_room:
            return
        lease, away, comes_back = world.timings.lease, rng.choice(list(Away)), rng.random() < 0.7
        seconds = LEAST_SECONDS + rng.uniform(0.0, 4.0) * lease
        world.note(f"{old.identity} {away.value}, and is deleted by force")
        world.trouble(old.identity)
        match away:
            case Away.HANGS:
                old.process.pause()
            case Away.CUT_OFF:
                old.link.cut = True
            case Away.STOPPED:
                world.machines.stop(old, seconds)
            case Away.HERE:
                pass
        world.later(rng.choice((0.1, rng.uniform(0.0, 1.5) * lease)), lambda: self._succeed(old))
        if comes_back or away is Away.STOPPED:
            world.later(seconds, lambda: self._come_back(old))
            world.later(seconds + rng.uniform(0.0, 2.0) * lease, lambda: self._end(old))

    def add_twin(self, rng: Random) -> None:
        """A shard of a name that one has already, in another namespace."""
        world, first = self._world, self._happenings.shard(rng)
        if first is None or not self._happenings.has_room or not world.plan.twins:
            return
        name = world.names.twin(first.name)
        if not any(each.name == name for each in world.shards):
            world.start_shard(name, first.ring)

    def lose_twin(self, rng: Random) -> None:
        """Of two of one name one ends; then the other is cut off at work, its lease deleted, and the leader ends."""
        world = self._world
        running = {each.name: each for each in world.shards if each.running}
        pairs = [each for each in running.values() if world.names.twin(each.name) in running]
        if not pairs:
            return
        stays = rng.choice(pairs)
        outside(self._end_in_order(running[world.names.twin(stays.name)]))
        for _ in range(6):
            self._happenings.do(Action(world.now, "touch_work", rng.getrandbits(32)))
        world.later(rng.uniform(0.0, 1.0), lambda: self._lose(stays, rng))

    async def _end_in_order(self, shard: AnyShard) -> None:
        await shard.stop()
        self._kill(shard)

    def _kill(self, shard: AnyShard) -> None:
        shard.kill()
        if not any(each.ring is shard.ring and each.running for each in self._world.shards):
            self._world.start_shard(shard.name, shard.ring)  # all trouble may have ended meanwhile

    def _lose(self, shard: AnyShard, rng: Random) -> None:
        world = self._world
        if world.names.unique:
            return  # all trouble has ended meanwhile
        world.note(f"{shard.identity} is cut off, and its lease is deleted")
        world.trouble(shard.identity)
        shard.link.cut = True
        self._users.delete(LEASES, world.storage.get(LEASES, self._lease_of(shard)))
        world.later(rng.uniform(0.0, 0.2), lambda: self._happenings.stop_leader(rng))
        world.later(rng.uniform(1.0, 3.0) * world.timings.lease, lambda: self._happenings.calm(shard.link))

    def _lease_of(self, shard: AnyShard) -> Key:
        return Key(self._world.namespace_of_shard(shard.name), self._world.names.in_product(shard.name))

    def part_twins(self) -> None:
        """Somebody sees to it that each shard has a name of its own: of two of one name, one ends for good."""
        world = self._world
        world.names.unique = True
        for name in sorted({each.name for each in world.shards}):
            pair = [
                [each for each in world.shards if each.name == of and each.running]
                for of in (name, world.names.twin(name))
            ]
            if all(pair):
                for each in Random(f"{world.seed}/{name}").choice(pair):
                    each.kill()

    def _succeed(self, old: ShardProcess) -> None:
        if self._happenings.has_room:
            self._world.start_shard(old.name, old.ring)

    def _come_back(self, old: ShardProcess) -> None:
        self._world.note(f"{old.identity} comes back")
        self._world.machines.resume(old)
        if old.link.cut:
            old.link.trouble, old.link.cut = CALM, False
            self._world.server.drop_link(old.link)

    def _end(self, old: ShardProcess) -> None:
        """Its node reads at last that the pod is to be gone, whichever process is in it by now."""
        for each in [*self._world.shards, old]:
            if isinstance(each, ShardProcess) and each.instance == old.instance:
                self._kill(each)
