"""What objects cost in a shard's cache: memory of one, by how much of it is kept.

python -m bench.caching MODEL NAMESPACE     # the process that is measured; `make bench ARGS=cache` runs it
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from bench.load import CONFIGMAPS, Usage, measure
from localcluster import ControlPlane
from shardsdk.cache.cache import Cache
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.objects import NAMESPACES, ObjectMeta, PartialObject

NAMESPACE: Final = "bench"
#: Payload of each ConfigMap.
DATA_BYTES: Final = 1024
MODELS: Final = ("metadata", "struct", "kind", "dict", "kubernetes")

Say = Callable[..., None]


class Data(msgspec.Struct, frozen=True):
    """A ConfigMap as a controller's own struct: metadata and data."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


def model_of(name: str) -> Any:
    """What the cache's objects are decoded to."""
    if name == "kubernetes":
        from kubernetes.client import V1ConfigMap

        return V1ConfigMap
    if name == "kind":
        from shardsdk.kinds import ConfigMap

        return ConfigMap
    return {"metadata": PartialObject, "struct": Data, "dict": dict}[name]


async def sizes(objects: int, say: Say) -> None:
    """Fill a namespace, and have one process for each model cache it."""
    print(f"{objects} ConfigMaps of {DATA_BYTES} bytes, cached", flush=True)
    async with ControlPlane(controllers=()) as plane:
        access = await load_access(str(plane.admin_kubeconfig))
        async with Client(access) as api:
            await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            await measure(_creates(api, objects))
        for model in MODELS:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.caching", model, NAMESPACE),
                env={**os.environ, "KUBECONFIG": str(plane.admin_kubeconfig)},
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await process.communicate()
            figures = json.loads(output)
            assert figures["objects"] >= objects
            each = (figures["after_mib"] - figures["before_mib"]) * 1024 / figures["objects"]
            say(f"cached as {model}: each", each, "KiB", f"[{figures['after_mib']:.0f} MiB in all]")


def _creates(api: Client, count: int) -> Iterable[Callable[[], Awaitable[Any]]]:
    def create(number: int) -> Callable[[], Awaitable[Any]]:
        labels = {"app.kubernetes.io/name": "bench", "app.kubernetes.io/instance": f"i-{number}"}
        labels["shard.alpha.sharding.timebertt.dev/clusterring-96fa8f22-checksum"] = "shard-1"
        owner = {"apiVersion": "v1", "kind": "Secret", "name": f"secret-{number}", "uid": f"uid-{number}"}
        metadata = {"name": f"object-{number}", "labels": labels, "ownerReferences": [owner | {"controller": True}]}
        return lambda: api.create(CONFIGMAPS, {"metadata": metadata, "data": {"key": "x" * DATA_BYTES}}, NAMESPACE)

    return (create(number) for number in range(count))


async def _cache(model: str, namespace: str) -> dict[str, float]:
    """Cache everything once, and say what that took."""
    kind = model_of(model)
    access = await load_access()
    async with Client(access) as api:
        await api.find(CONFIGMAPS, "object-0", namespace)  # connected, and warm
        gc.collect()
        before = Usage.of(os.getpid()).resident_mib
        cache = Cache(api, CONFIGMAPS, clock=SystemClock(), rng=random.Random(1), namespace=namespace, model=kind)
        running = asyncio.create_task(cache.run())
        await cache.wait_synced()
        gc.collect()
        after = Usage.of(os.getpid()).resident_mib
        running.cancel()
        return {"objects": len(cache), "before_mib": before, "after_mib": after}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_cache(*sys.argv[1:]))))
