"""Scripted sequences that some runs begin with, for what chance is too rarely in the place for.

Each waits for the world to get where it wants it, does its part at that very
moment, and goes on.  What is left open (which shard, how long) is drawn from
the seed; afterwards the run's random actions follow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from shardsdk.protocol.labels import SHARDER_HOLDER
from tests.simulation.shards import ShardProcess
from tests.simulation.vocabulary import FAMILY, WORKS

if TYPE_CHECKING:
    from tests.simulation.world import World


class Scenario(Enum):
    """A scripted sequence; the value says what happens in it."""

    STALE_RETURN = "a shard comes back while its objects move, and hears of that only after it has its lease again"


async def play(scenario: Scenario, world: World) -> None:
    """Play it to its end; one that the world gives no chance to is given up."""
    await _SCRIPTS[scenario](world, Random(f"{world.seed}/{scenario.name}"))


async def _stale_return(world: World, rng: Random) -> None:
    """The leader stands still from the takeover until the shard's next process has read what it can read."""
    victim = await _shard_with_work(world, rng)
    victim.kill()
    await world.until(lambda: world.checkers.holder_of(victim.name) == SHARDER_HOLDER)
    leader = world.leader
    if leader is not None:
        leader.process.pause()
    successor = world.start_shard(victim.name, victim.ring)
    await world.clock.sleep(rng.uniform(0.5, 1.0))
    world.server.stall_link(successor.link, 4 * world.timings.lease)
    if leader is not None:
        leader.process.resume()
    await world.until(lambda: world.checkers.holder_of(victim.name) == victim.name)
    await world.clock.sleep(2 * world.timings.lease)


async def _shard_with_work(world: World, rng: Random) -> ShardProcess:
    """A shard that works on something, next to one that could take its objects."""

    def candidates() -> list[ShardProcess]:
        working = world.working_shards(FAMILY.ring)
        used = {version.label(FAMILY.shard) for version in world.storage.objects(WORKS)}
        return [each for each in working if isinstance(each, ShardProcess) and each.name in used and len(working) > 1]

    await world.until(lambda: bool(candidates()))
    return rng.choice(candidates())


_SCRIPTS: dict[Scenario, Callable[[World, Random], Awaitable[None]]] = {Scenario.STALE_RETURN: _stale_return}
