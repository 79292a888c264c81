"""Faults of shards and sharders, and of the network between them and the API server."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from random import Random
from typing import Final

from tests.chaos.credentials import write_certificate
from tests.chaos.proxy import Net
from tests.chaos.rig import ACCOUNT, Rig
from tests.chaos.ring import NAMESPACE

VICTIM: Final = "shard-1"
#: For so many lease durations a certificate is valid that is to expire: a shard starts and gets its objects meanwhile.
_VALID_LEASES: Final = 3.0


async def shard_killed(rig: Rig, rng: Random) -> None:
    """SIGKILL, and a new process once nothing is left there."""
    await rig.amid_work(VICTIM)
    await rig.kill_shard(VICTIM)
    await emptied(rig)
    await rig.start_shard(VICTIM)


async def shard_killed_and_back(rig: Rig, rng: Random) -> None:
    """SIGKILL, and a new process at once."""
    await rig.amid_work(VICTIM)
    await rig.kill_shard(VICTIM)
    await rig.start_shard(VICTIM)
    await leases(rig, 1.5)


async def all_shards_killed(rig: Rig, rng: Random) -> None:
    """All at once."""
    names = sorted(rig.living)
    await asyncio.gather(*(rig.kill_shard(name) for name in names))
    for name in names:
        await rig.start_shard(name)
    await leases(rig, 1.5)


async def shard_suspended(rig: Rig, rng: Random) -> None:
    """SIGSTOP beyond its lease; it wakes up amid a reconcile, and somebody else has its objects."""
    await rig.amid_work(VICTIM)
    rig.living.discard(VICTIM)
    async with rig.suspended(VICTIM):
        await emptied(rig)
    rig.living.add(VICTIM)


async def shard_cut_off(rig: Rig, rng: Random) -> None:
    """No connections."""
    await _network(rig, Net.CUT)


async def shard_in_a_black_hole(rig: Rig, rng: Random) -> None:
    """No packets."""
    await _network(rig, Net.BLACK_HOLE)


async def shard_half_open(rig: Rig, rng: Random) -> None:
    """No answers."""
    await _network(rig, Net.HALF_OPEN)


async def connections_forgotten(rig: Rig, rng: Random) -> None:
    """All that there are, of shards and sharders."""
    for proxy in rig.proxies.values():
        proxy.forget()
    await leases(rig, 6.0)


async def client_certificate_expired(rig: Rig, rng: Random) -> None:
    """It runs with one that is soon over; another one is put into its files once others have its objects."""
    valid = timedelta(seconds=_VALID_LEASES * rig.setup.lease_seconds)
    await rig.stop_shard(VICTIM)
    over = time.monotonic() + valid.total_seconds()
    rig.users[VICTIM] = write_certificate(rig.plane, rig.folder, f"{NAMESPACE}/{ACCOUNT}", valid)
    await rig.start_shard(VICTIM)
    await rig.working(VICTIM)
    await rig.store.until(rig.placed, rig.setup.patience_seconds)
    await asyncio.sleep(over - time.monotonic())
    rig.down(VICTIM, "cut")
    rig.living.discard(VICTIM)
    await emptied(rig)
    write_certificate(rig.plane, rig.folder, f"{NAMESPACE}/{ACCOUNT}", timedelta(days=1))
    rig.up(VICTIM)
    rig.living.add(VICTIM)


async def _network(rig: Rig, net: Net) -> None:
    await rig.amid_work(VICTIM)
    rig.living.discard(VICTIM)
    async with rig.network(VICTIM, net):
        await emptied(rig)
    rig.living.add(VICTIM)


async def leader_killed(rig: Rig, rng: Random) -> None:
    """SIGKILL; the keeper starts it again once another one leads."""
    leader = await rig.leader()
    name = leader.process.name
    rig.leave(name)
    rig.down(name, "killed")
    await leader.process.kill()
    await rig.leader()
    rig.keep(name)
    await leases(rig, 1.5)


async def leader_suspended(rig: Rig, rng: Random) -> None:
    """SIGSTOP beyond its lease."""
    leader = await rig.leader()
    async with rig.suspended(leader.process.name):
        await rig.another_leads(leader)
        await leases(rig, 0.5)
    await leases(rig, 1.0)


async def leader_cut_off(rig: Rig, rng: Random) -> None:
    """No connections."""
    leader = await rig.leader()
    async with rig.network(leader.process.name, Net.CUT):
        await rig.another_leads(leader)
        await leases(rig, 0.5)
    await leases(rig, 1.0)


async def leader_and_shard_killed(rig: Rig, rng: Random) -> None:
    """Both at once."""
    leader = await rig.leader()
    name = leader.process.name
    rig.leave(name)
    await rig.amid_work(VICTIM)
    rig.down(name, "killed")
    await asyncio.gather(leader.process.kill(), rig.kill_shard(VICTIM))
    await emptied(rig)
    rig.keep(name)
    await rig.start_shard(VICTIM)


async def rolling_restart(rig: Rig, rng: Random) -> None:
    """One after the other."""
    for name in sorted(rig.living):
        await rig.stop_shard(name)
        await rig.start_shard(name)
        await rig.working(name)


async def ten_changes(rig: Rig, rng: Random) -> None:
    """Joins, leaves and crashes, three seconds apart; at least one shard stays."""
    for _ in range(10):
        spare = sorted({f"shard-{number}" for number in range(2, 8)} - rig.living)
        there = sorted(rig.living - {VICTIM})
        change = rng.choice(["join", "leave", "crash"]) if there and spare else "join" if spare else "leave"
        if change == "join":
            await rig.start_shard(rng.choice(spare))
        elif change == "leave":
            await rig.stop_shard(rng.choice(there))
        else:
            await rig.kill_shard(rng.choice(there))
        await asyncio.sleep(3.0)


async def sharder_restarted(rig: Rig, rng: Random) -> None:
    """One replica after the other."""
    await restart_sharders(rig)
    await leases(rig, 1.0)


async def restart_sharders(rig: Rig) -> None:
    """In order, one replica after the other."""
    for name in sorted(rig.installation.sharders):
        replica = rig.installation.sharders[name]
        rig.leave(name)
        await replica.process.stop()
        replica.process.start()
        await rig.installation.ready(replica)
        rig.keep(name)


async def emptied(rig: Rig) -> None:
    """Wait until the victim has no objects."""
    await rig.store.until(lambda: rig.owned(VICTIM) == 0, rig.setup.patience_seconds)


async def leases(rig: Rig, count: float) -> None:
    """Let so many lease durations pass, in which whatever goes wrong by time would."""
    await asyncio.sleep(count * rig.setup.lease_seconds)
