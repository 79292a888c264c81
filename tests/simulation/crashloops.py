"""A shard whose container crashes, and is back within its lease: again and again, or while writes are under way."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.network import Trouble
from tests.simulation.schedule import Action
from tests.simulation.shards import ShardProcess
from tests.simulation.vocabulary import FAMILY

if TYPE_CHECKING:
    from tests.simulation.happenings import Happenings

#: How often it crashes, at most: by then nothing is drained for it for eight durations of its lease.
MOST_LIVES = 6
#: How often a write under way is looked for, and for how many seconds.
LOOK_SECONDS: Final = 0.02
LOOKS: Final = 200


class CrashLoops:
    """Carries out the action of that name."""

    def __init__(self, happenings: Happenings) -> None:
        self._happenings = happenings

    def crash_loop(self, rng: Random) -> None:
        """Nobody is told: the next process goes on with the lease, which the sharder never has."""
        shard = self._happenings.shard(rng)
        if isinstance(shard, ShardProcess):
            self._crash(shard, rng, rng.randint(2, MOST_LIVES))

    def _crash(self, shard: ShardProcess, rng: Random, lives: int) -> None:
        world = self._happenings.world

        def come_back() -> None:
            again = self._go_on(shard)
            if lives and again is not None:
                world.later(rng.uniform(0.05, 1.0) * world.timings.lease, lambda: self._crash(again, rng, lives - 1))

        if shard.running:
            shard.kill()
            world.later(rng.uniform(0.05, 0.6) * world.timings.lease, come_back)

    def crash_owing(self, rng: Random, *, elsewhere: bool = False) -> None:
        """One dies while what it has sent may yet be executed; soon its next process is to give something away."""
        world = self._happenings.world
        shards = [each for each in world.shards if isinstance(each, ShardProcess) and each.ring is FAMILY]
        for shard in shards:
            world.trouble(shard.identity)
            shard.link.trouble = Trouble(error=0.5, late=0.3)
            world.later(world.timings.lease, partial(self._happenings.calm, shard.link))
        for _ in range(6):
            self._happenings.do(Action(world.now, "touch_work", rng.getrandbits(32)))
        self._crash_owing(shards, rng, LOOKS, elsewhere)

    def crash_owing_elsewhere(self, rng: Random) -> None:
        """The same, and its next process is in another pod: it has to wait for the lease, and owes nothing then."""
        self.crash_owing(rng, elsewhere=True)

    def _crash_owing(self, shards: list[ShardProcess], rng: Random, looks: int, elsewhere: bool) -> None:
        world = self._happenings.world
        sent = {each.process for shard in shards for each in world.server.unanswered_writes(shard.name)}
        sent |= world.server.acknowledgers()
        owing = [each for each in shards if each.running and each.identity in sent]
        if owing:
            shard = rng.choice(owing)
            world.mark("crashed with writes under way")
            shard.kill(closes_connections=False)  # what has gone to etcd is executed all the same
            world.later(rng.uniform(0.03, 0.4), lambda: self._give_away(shard, rng, elsewhere))
        elif looks:
            world.later(LOOK_SECONDS, lambda: self._crash_owing(shards, rng, looks - 1, elsewhere))

    def _give_away(self, shard: ShardProcess, rng: Random, elsewhere: bool) -> None:
        world, again = self._happenings.world, self._go_on(shard, elsewhere=elsewhere)
        if again is None:
            return
        if rng.random() < 0.6:
            world.later(rng.uniform(0.05, 0.3) * world.timings.lease, lambda: self._stop(again, rng))
        else:
            world.later(rng.uniform(0.0, 0.3), lambda: self._happenings.add_shard(rng))

    def _stop(self, shard: ShardProcess, rng: Random) -> None:
        if shard.running:
            self._happenings.stop(shard, rng)

    def _go_on(self, shard: ShardProcess, *, elsewhere: bool = False) -> ShardProcess | None:
        """Start its next process in its pod, or in another one; `None`: one of its name runs."""
        world = self._happenings.world
        if any(each.name == shard.name and each.running for each in world.shards):
            return None
        again = world.start_shard(shard.name, shard.ring, None if elsewhere else shard.instance)
        return again if isinstance(again, ShardProcess) else None
