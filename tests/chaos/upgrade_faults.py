"""Upgrades and rollbacks under load: processes of the version before this one and of this one, beside each other.

The types are today's throughout: a chart brings them up to date before an upgrade, and a rollback leaves them.
"""

from __future__ import annotations

from random import Random

from tests.chaos.previous import TODAY, Program, previous
from tests.chaos.rig import Rig


async def sharders_first(rig: Rig, rng: Random) -> None:
    """Sharders, then shards; the rollback in the same order."""
    for program in (TODAY, previous()):
        await roll_sharders(rig, program)
        await roll_shards(rig, program)


async def shards_first(rig: Rig, rng: Random) -> None:
    """Shards, then sharders; the rollback in the same order."""
    for program in (TODAY, previous()):
        await roll_shards(rig, program)
        await roll_sharders(rig, program)


async def roll_sharders(rig: Rig, program: Program) -> None:
    """One replica after the other: it stops in order, and the next waits until it is ready."""
    rig.sharders_run = program
    for name in sorted(rig.installation.sharders):
        replica = rig.installation.sharders[name]
        rig.leave(name)
        await replica.process.stop()
        replica.process.environment |= program.environment
        replica.process.start()
        await rig.installation.ready(replica)
        rig.keep(name)
    await rig.installation.leader()
    await in_place(rig)


async def roll_shards(rig: Rig, program: Program) -> None:
    """One shard after the other: it stops in order, and the next waits until it has its objects again."""
    rig.shards_run = program
    for name in sorted(rig.living):
        await rig.stop_shard(name)
        await rig.start_shard(name)
        await rig.working(name)
        await in_place(rig)


async def in_place(rig: Rig) -> None:
    """Wait until every object is where it belongs."""
    await rig.store.until(rig.placed, rig.setup.patience_seconds)
