"""A shard that is told to stop just while it reconciles: it leaves only once that has ended."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.shards import ShardProcess

if TYPE_CHECKING:
    from tests.simulation.happenings import Happenings

#: How often one that reconciles is looked for, and for how many seconds.
LOOK_SECONDS: Final = 0.1
LOOKS: Final = 200


class Stops:
    """Carries out the action of that name."""

    def __init__(self, happenings: Happenings) -> None:
        self._happenings = happenings

    def stop_busy_shard(self, rng: Random) -> None:
        """The first that is found at work; none if none is."""
        self._look(rng, LOOKS)

    def _look(self, rng: Random, looks: int) -> None:
        world = self._happenings.world
        shards = [each for each in world.shards if isinstance(each, ShardProcess) and each.running]
        busy = [each for each in shards if each.ring.ring not in world.plan.quiet and world.waits.is_busy(each)]
        if busy:
            self._happenings.stop(rng.choice(busy), rng)
        elif looks:
            world.later(LOOK_SECONDS, lambda: self._look(rng, looks - 1))
