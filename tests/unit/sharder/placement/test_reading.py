"""How many objects a ring's workers read at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

from sharder.placement.reading import MAX_READS, Reader
from shardsdk.protocol.objects import PartialObject, Resource
from tests.kube_fakes import CONFIGMAPS

SECRETS = Resource("", "v1", "secrets", "Secret")


class Silent:
    """An API server that answers once it is told to."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answers = asyncio.Event()

    async def find(self, resource: Resource, name: str, namespace: str | None) -> PartialObject | None:
        self.asked[resource.plural] += 1
        await self.answers.wait()
        return None


async def test_so_many_of_a_resource_are_read_at_once_and_none_waits_for_another_resource() -> None:
    api = Silent()
    reader = Reader(cast("Any", api))
    reads = [reader.find(CONFIGMAPS, str(number), "default") for number in range(2 * MAX_READS)]
    reads += [reader.find(SECRETS, str(number), "default") for number in range(3)]
    waiting = asyncio.gather(*reads)
    for _ in range(3):
        await asyncio.sleep(0)
    assert api.asked == {"configmaps": MAX_READS, "secrets": 3}
    api.answers.set()
    await waiting
    assert api.asked == {"configmaps": 2 * MAX_READS, "secrets": 3}
