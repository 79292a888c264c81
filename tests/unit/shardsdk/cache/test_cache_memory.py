"""Objects in a shard's cache take no more memory than docs/performance.md says."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import tracemalloc
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.caching import DATA_BYTES, MODELS, model_of
from shardsdk.cache.cache import Cache
from shardsdk.kube.answers import Target
from shardsdk.kube.api import PARTIAL, WatchEvent
from shardsdk.kube.decoding import INITIAL_EVENTS_END, codec_of
from shardsdk.kube.initialevents import InitialEvents
from shardsdk.protocol.objects import Resource
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

ROOT = Path(__file__).parents[4]
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
OBJECTS = 10_000
#: Rows of the table: `| metadata (…) | 2.3 KiB |`.
DOCUMENTED = {
    name: float(kib)
    for name, kib in re.findall(
        r"^\| `?(\w+)`?[^|]*\| ([\d.]+) KiB", (ROOT / "docs" / "performance.md").read_text(), re.MULTILINE
    )
}


class Lines:
    """An API server whose watch begins with many objects, each from bytes of its own."""

    def __init__(self) -> None:
        self.initial_events: defaultdict[Resource, InitialEvents] = defaultdict(InitialEvents)
        self.bookmarked: set[Resource] = set()
        self.lines = [json.dumps({"type": "ADDED", "object": thing(number)}).encode() for number in range(OBJECTS)]
        end = {"annotations": {INITIAL_EVENTS_END: "true"}, "resourceVersion": str(OBJECTS)}
        self.lines.append(json.dumps({"type": "BOOKMARK", "object": {"metadata": end}}).encode())

    async def watch(self, *_: object, model: Any = PARTIAL, **__: object) -> AsyncIterator[WatchEvent[Any]]:
        codec, target = codec_of(model), Target("watch", "configmaps")
        for line in self.lines:
            event = codec.decode_line(target, line)
            assert event is not None
            yield event
        await asyncio.Event().wait()


def thing(number: int) -> dict[str, Any]:
    """As the API server sends it; what `metadata_only` would leave out is not decoded anyway."""
    labels = {"app.kubernetes.io/name": "bench", "app.kubernetes.io/instance": f"i-{number}"}
    labels["shard.alpha.sharding.timebertt.dev/clusterring-96fa8f22-checksum"] = "shard-1"
    owner = {"apiVersion": "v1", "kind": "Secret", "name": f"secret-{number}", "uid": f"{number:036}"}
    metadata = {
        "name": f"object-{number}",
        "namespace": "bench",
        "uid": f"{number + OBJECTS:036}",
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2030-01-01T00:00:00Z",
        "labels": labels,
        "ownerReferences": [owner | {"controller": True}],
        "managedFields": [{"manager": "bench", "operation": "Update", "fieldsV1": {"f:data": {".": {}, "f:key": {}}}}],
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "x" * DATA_BYTES}}


@pytest.mark.parametrize("name", MODELS)
@in_virtual_time
async def test_ten_thousand_objects_fit_into_the_documented_memory(clock: VirtualClock, name: str) -> None:
    model = model_of(name)
    api: Any = Lines()
    codec_of(model)  # made once for a model, however many objects
    gc.collect()
    tracemalloc.start()
    try:
        cache = Cache(api, CONFIGMAPS, clock=clock, rng=Random(1), model=model)
        running = asyncio.create_task(cache.run())
        await cache.wait_synced()
        gc.collect()
        bytes_each = tracemalloc.get_traced_memory()[0] / OBJECTS
        assert len(cache) == OBJECTS
        running.cancel()
        await asyncio.wait([running])
    finally:
        tracemalloc.stop()
    assert bytes_each / 1024 <= DOCUMENTED[name]
