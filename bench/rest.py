"""What a sharder needs while nothing moves: CPU of the leader, and of a replica that stands by.

Shards renew their leases as those of the SDK do, and some objects are there; nothing else happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from bench.load import Usage, creates, measure
from bench.shards import Owners, Shard
from localcluster import ControlPlane
from localcluster.installation import Installation, SharderTimings
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.protocol.objects import NAMESPACES

RING: Final = "rest"
NAMESPACE: Final = "rest"
SHARDS: Final = ("shard-1", "shard-2", "shard-3")
#: What starting up and settling leaves behind is over by then: the first quiet resyncs, and long-lived caches.
QUIET_SECONDS: Final = 30.0
#: How often a kubelet asks whether a container is ready, unless it is told otherwise.
PROBE_SECONDS: Final = 10.0

Say = Callable[..., None]


async def resting(objects: int, lease_seconds: int, rest_seconds: float, say: Say) -> None:
    """Measure a leader and a standby for `rest_seconds`."""
    print(
        f"{len(SHARDS)} shards, {objects} objects, a leader and a standby, at rest for {rest_seconds:g} s", flush=True
    )
    timings = SharderTimings(lease_duration=15, renew_deadline=10, retry_period=2, staleness=10)
    async with ControlPlane() as plane, Installation(plane, timings, probe_seconds=PROBE_SECONDS) as installation:
        access = await load_access(str(plane.admin_kubeconfig))
        async with Client(access) as api:
            await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
            resources = [{"group": "", "resource": "configmaps"}]
            await installation.ring(RING, {"resources": resources, "namespaceSelector": selector})
            await installation.start_sharder("sharder-1")
            await installation.leader()
            await installation.start_sharder("sharder-2")
            shards = [Shard(api, RING, name, "default", lease_seconds=lease_seconds) for name in SHARDS]
            for shard in shards:
                await shard.start()
            owners = Owners(api, RING, NAMESPACE)
            watch = asyncio.create_task(owners.run())
            await measure(creates(api, NAMESPACE, "object", objects))
            await owners.until(lambda counts: sum(counts[name] for name in SHARDS) >= objects)
            watch.cancel()
            await _rest(installation, rest_seconds, say)
            for shard in shards:
                shard.crash()


async def _rest(installation: Installation, seconds: float, say: Say) -> None:
    # What rest costs can only be measured by resting.
    await asyncio.sleep(min(QUIET_SECONDS, seconds))
    leader = await installation.leader()
    pids = {"leader" if each is leader else "standby": each.process.pid for each in installation.sharders.values()}
    before = {role: Usage.of(pid) for role, pid in pids.items()}
    await asyncio.sleep(seconds)
    for role, pid in pids.items():
        after = Usage.of(pid)
        say(f"rest: CPU, {role}", (after.cpu_seconds - before[role].cpu_seconds) / seconds * 1000, "millicores")
        say(f"rest: resident memory, {role}", after.resident_mib, "MiB")
