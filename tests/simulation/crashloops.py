"""A shard whose container crashes soon after each start, and is back within its lease."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.shards import ShardProcess

if TYPE_CHECKING:
    from tests.simulation.happenings import Happenings

#: How often it crashes, at most: by then nothing is drained for it for eight durations of its lease.
MOST_LIVES = 6


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
            if any(each.name == shard.name and each.running for each in world.shards):
                return
            again = world.start_shard(shard.name, shard.ring, shard.instance)
            if lives and isinstance(again, ShardProcess):
                world.later(rng.uniform(0.05, 1.0) * world.timings.lease, lambda: self._crash(again, rng, lives - 1))

        if shard.running:
            shard.kill()
            world.later(rng.uniform(0.05, 0.6) * world.timings.lease, come_back)
