"""Scripted sequences that some runs begin with, for what chance is too rarely in the place for.

Each waits for the world to get where it wants it, does its part at that very
moment, and goes on.  What is left open (which shard, how long) is drawn from
the seed; afterwards the run's random actions follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from shardsdk.kube.store import Key
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.patching import merge
from tests.simulation.childlists import play_child_lists
from tests.simulation.network import CALM, Trouble
from tests.simulation.poison import Refusal
from tests.simulation.server import Service
from tests.simulation.shards import ShardProcess
from tests.simulation.storage import Author
from tests.simulation.vocabulary import FAMILY, PIECES, WORKS

if TYPE_CHECKING:
    from tests.simulation.world import World


class Scenario(Enum):
    """A scripted sequence; the value says what happens in it."""

    STALE_RETURN = "a shard comes back while its objects move, and hears of that only after it has its lease again"
    RING_CHANGES = "the ring is changed while owners' writes are on their way and shards come and go"
    RING_EDITS = "works leave the ring and come back, or are not served for a while, as shards come and go"
    TWO_CRASHES = "two shards crash at once, and what one had is moved while the sharder cannot renew the other's lease"
    CHILD_LISTS = "a child comes just as a shard lists those of an owner, which may leave meanwhile and come back"
    SHORT_OUTAGES = "leases are short, and the API server is away for moments in which they could run out"


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
        world.machines.resume(leader)
    await world.until(lambda: world.checkers.holder_of(victim.name) == victim.name)
    await world.clock.sleep(2 * world.timings.lease)


async def _short_outages(world: World, rng: Random) -> None:
    """Each begins as the leader has just renewed, and ends before its next renewal is overdue.

    Shards lose their leases by their own clocks, and come back; nobody takes them meanwhile.
    """
    await _shard_with_work(world, rng)
    await world.clock.sleep(2 * world.plan.shard_timings.lease)
    # A renewal that waited for a connection when the API server went away has lost more time than the outage took.
    world.outlasting = world.server.connected = True
    for _ in range(6):
        before = world.leaders_lease
        await world.until(lambda before=before: world.leaders_lease is not before)  # type: ignore[misc]
        await world.clock.sleep(0.05)
        seconds = rng.uniform(0.3, 0.97) * 2.5 * world.timings.retry - 0.1
        world.outage(rng.choice((Service.DOWN, Service.HANGING, Service.FAILING)), seconds)
        await world.clock.sleep(rng.uniform(1.5, 2.5) * world.plan.shard_timings.lease)
    world.outlasting = world.server.connected = False


async def _ring_changes(world: World, rng: Random) -> None:
    """Each change has the leader place anew, from nothing, while late writes of before may still be executed."""
    await _shard_with_work(world, rng)
    for number in range(6):
        came = world.start_shard(f"fam-{20 + number}", FAMILY)
        leader = world.leader
        if leader is not None:
            leader.link.trouble = Trouble(late=0.6, unanswered=0.2)
        await _until_children_move(world)
        # Another one comes, so that some of the owners belong elsewhere than where they are going.
        another = world.start_shard(f"fam-{30 + number}", FAMILY)
        await world.clock.sleep(rng.uniform(0.01, 0.05))
        world.edits.change_ring(FAMILY)
        await world.clock.sleep(rng.uniform(0.2, 1.0) * world.timings.lease)
        came.kill()
        another.kill()
        if leader is not None:
            leader.link.trouble = CALM


async def _ring_edits(world: World, rng: Random) -> None:
    """Owners leave by acknowledgement, and only then what they control; whatever becomes of their shards meanwhile."""
    for number in range(3):
        victim = await _shard_with_work(world, rng)
        change = world.edits.list_works if rng.random() < 0.6 else world.edits.serve_works
        change(False)
        try:
            await _trouble_while_works_are_away(world, victim, f"fam-{40 + number}", rng)
        finally:
            change(True)
        await world.clock.sleep(rng.uniform(0.0, 2.0) * world.timings.lease)


async def _trouble_while_works_are_away(world: World, victim: ShardProcess, newcomer: str, rng: Random) -> None:
    if rng.random() < 0.5:
        # It does not answer its drains for as long as it may without losing its lease.
        world.trouble(victim.identity)
        victim.process.pause()
        world.later(0.8 * world.timings.lease, lambda: world.machines.resume(victim))
        await world.clock.sleep(0.8 * world.timings.lease)
    await world.clock.sleep(rng.uniform(0.0, 1.0) * world.timings.lease)
    if rng.random() < 0.7:
        victim.kill()
        world.later(rng.uniform(0.2, 1.5) * world.timings.lease, lambda: world.start_shard(victim.name, victim.ring))
        world.start_shard(newcomer, FAMILY)
    await world.clock.sleep(rng.uniform(0.0, 2.0) * world.timings.lease)


async def _two_crashes(world: World, rng: Random) -> None:
    """What both had is moved together, and of one of them nothing may go any more."""
    for number in range(3):
        world.start_shard(f"fam-{50 + number}", FAMILY)
        first = await _shard_with_work(world, rng, others=2)
        second = await _shard_with_work(world, rng, others=2, but=first)
        # The leader hears at once of what both have renewed meanwhile, and counts from then.
        retry = world.plan.shard_timings.retry
        if (leader := world.leader) is not None:
            world.server.stall_watch([leader.link], 1.5 * retry, LEASES)
        await world.clock.sleep(1.2 * retry)
        for each in (first, second):
            each.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(2.5 * world.timings.lease):
                await world.until(lambda first=first: _is_drained_of(world, first.name))  # type: ignore[misc]
                if rng.random() < 0.5:
                    _tear(world, first.name, rng)
                else:
                    _refuse(world, first.name, 0.3 * world.timings.lease)
        await world.clock.sleep(rng.uniform(0.3, 0.5) * world.timings.lease)
        for each in (first, second):
            world.start_shard(each.name, each.ring)


def _tear(world: World, shard: str, rng: Random) -> None:
    """A user's hand, which is as quick as the sharder here."""
    key, author = Key(world.namespace_of_shard(shard), shard), Author("user")
    lease = world.storage.get(LEASES, key)
    if lease is None or world.server.service is not Service.UP:
        return
    world.note(f"user tears the lease of {shard}")
    if rng.random() < 0.5:
        world.storage.delete(LEASES, key, author, {})
    else:
        world.storage.replace(LEASES, lease, merge(lease.doc, {"spec": {"holderIdentity": ""}}), author)


def _refuse(world: World, shard: str, seconds: float) -> None:
    """Nobody can write its lease for a moment: the hold on it is there, and cannot be renewed."""
    key = Key(world.namespace_of_shard(shard), shard)
    world.note(f"writes of the lease of {shard} are denied for {seconds:.1f} s")
    world.poison.refuse(LEASES, key, Refusal.DENIED)
    world.later(seconds, lambda: world.poison.refuse(LEASES, key, None))


def _is_drained_of(world: World, shard: str) -> bool:
    works = world.storage.objects(WORKS)
    return any(each.label(FAMILY.shard) == shard and each.label(FAMILY.drain) is not None for each in works)


async def _until_children_move(world: World) -> None:
    def where() -> dict[str, str | None]:
        return {version.uid: world.liveness.shard_of(FAMILY, version) for version in world.storage.objects(PIECES)}

    before = where()
    with suppress(TimeoutError):
        async with asyncio.timeout(world.timings.lease / 2):
            await world.until(lambda: where() != before)


async def _shard_with_work(
    world: World, rng: Random, *, others: int = 1, but: ShardProcess | None = None
) -> ShardProcess:
    """A shard that works on something, next to so many that could take its objects."""

    def candidates() -> list[ShardProcess]:
        working = world.working_shards(FAMILY.ring)
        used = {world.liveness.shard_of(FAMILY, version) for version in world.storage.objects(WORKS)}
        found = [each for each in working if isinstance(each, ShardProcess) and each.name in used and each is not but]
        return found if len(working) > others else []

    await world.until(lambda: bool(candidates()))
    return rng.choice(candidates())


_SCRIPTS: dict[Scenario, Callable[[World, Random], Awaitable[None]]] = {
    Scenario.STALE_RETURN: _stale_return,
    Scenario.RING_CHANGES: _ring_changes,
    Scenario.RING_EDITS: _ring_edits,
    Scenario.TWO_CRASHES: _two_crashes,
    Scenario.CHILD_LISTS: play_child_lists,
    Scenario.SHORT_OUTAGES: _short_outages,
}
