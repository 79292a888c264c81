"""Faults of API servers and etcd, of the answers that they give, and of clocks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from localcluster.components import Component
from tests.chaos.process_faults import leases, restart_sharders
from tests.chaos.proxy import Storm
from tests.chaos.rig import Rig

OUTAGE_LEASES = 4.0
_DELAY_SECONDS = 0.5


async def apiserver_killed(rig: Rig, rng: Random) -> None:
    """SIGKILL, and a start."""
    await _killed(rig, rig.plane.apiserver)


async def apiserver_suspended(rig: Rig, rng: Random) -> None:
    """SIGSTOP."""
    await _suspended(rig, rig.plane.apiserver)


async def etcd_killed(rig: Rig, rng: Random) -> None:
    """SIGKILL, and a start."""
    await _killed(rig, rig.plane.etcd)


async def etcd_suspended(rig: Rig, rng: Random) -> None:
    """SIGSTOP."""
    await _suspended(rig, rig.plane.etcd)


async def one_of_two_hangs(rig: Rig, rng: Random) -> None:
    """Every second connection goes to one that hangs."""
    await _suspended(rig, rig.plane.apiservers[1])


async def _killed(rig: Rig, component: Component) -> None:
    await component.kill()
    await leases(rig, OUTAGE_LEASES)
    await component.start()
    await rig.plane.apiserver.ready()
    await leases(rig, 2.0)


async def _suspended(rig: Rig, component: Component) -> None:
    component.pause()
    try:
        await leases(rig, OUTAGE_LEASES)
    finally:
        component.resume()
    await rig.plane.apiserver.ready()
    await leases(rig, 2.0)


async def etcd_restored(rig: Rig, rng: Random) -> None:
    """Back to how it was, with everybody restarted who watches, as docs/operations.md has it."""
    backup = rig.folder / "backup"
    async with _away(rig) as data:
        shutil.copytree(data, backup)
    await leases(rig, 2.0)
    await rig.unload()
    async with _away(rig) as data:
        rig.store.gone()
        shutil.rmtree(data)
        shutil.copytree(backup, data)
    await rig.store.set_back()
    rig.load()
    await restart_sharders(rig)
    for name in sorted(rig.living):
        await rig.stop_shard(name)
        await rig.start_shard(name)


@asynccontextmanager
async def _away(rig: Rig) -> AsyncIterator[Path]:
    """Etcd's data, while nothing runs on it."""
    await rig.store.caught_up()
    await rig.plane.apiserver.kill()
    await rig.store.caught_up()
    await rig.plane.etcd.stop()
    [folder] = [flag.partition("=")[2] for flag in rig.plane.etcd.argv if flag.startswith("--data-dir=")]
    yield Path(folder)
    await rig.plane.etcd.start()
    await rig.plane.apiserver.start()


async def apiserver_slow(rig: Rig, rng: Random) -> None:
    """For all but us."""
    for proxy in rig.proxies.values():
        proxy.delay_seconds = _DELAY_SECONDS
    await leases(rig, 3.0)
    for proxy in rig.proxies.values():
        proxy.delay_seconds = 0.0


async def errors(rig: Rig, rng: Random) -> None:
    """Whatever is asked."""
    await _storm(rig, Storm((500,), 0.3))


async def throttling(rig: Rig, rng: Random) -> None:
    """Whatever is asked."""
    await _storm(rig, Storm((429,), 0.3))


async def conflicts(rig: Rig, rng: Random) -> None:
    """Of writes."""
    await _storm(rig, Storm((409,), 0.5, ("POST", "PUT", "PATCH", "DELETE")))


async def _storm(rig: Rig, storm: Storm) -> None:
    for proxy in rig.proxies.values():
        proxy.storm = storm
    await leases(rig, 3.0)
    for proxy in rig.proxies.values():
        proxy.storm = None
    if not any(proxy.answered for proxy in rig.proxies.values()):
        raise AssertionError("no request met the storm")


async def time_passes(rig: Rig, rng: Random) -> None:
    """What is wrong is wrong from the beginning."""
    await leases(rig, 4.0)
    await asyncio.sleep(0)
