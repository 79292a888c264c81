"""How many objects a ring's workers read at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from sharder.placement.reading import MAX_READS, Reader
from sharder.placement.slots import MAX_SUSPECTED, SLOW_SECONDS, Crowded
from shardsdk.protocol.objects import PartialObject, Resource
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
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
    reader = Reader(cast("Any", api), VirtualClock(), workers=100)
    reads = [reader.find(CONFIGMAPS, str(number), "default") for number in range(2 * MAX_READS)]
    reads += [reader.find(SECRETS, str(number), "default") for number in range(3)]
    waiting = asyncio.gather(*reads)
    for _ in range(3):
        await asyncio.sleep(0)
    assert api.asked == {"configmaps": MAX_READS, "secrets": 3}
    api.answers.set()
    await waiting
    assert api.asked == {"configmaps": 2 * MAX_READS, "secrets": 3}


@in_virtual_time
async def test_whoever_waits_for_a_resource_that_does_not_answer_is_sent_away(clock: VirtualClock) -> None:
    """A worker that waits there works on nothing else; a few go on trying whether it answers again."""
    api = Silent()
    reader = Reader(cast("Any", api), clock, workers=100)
    reads = [asyncio.ensure_future(reader.find(CONFIGMAPS, str(number), "default")) for number in range(100)]
    await clock.sleep(SLOW_SECONDS + 1)
    assert api.asked == {"configmaps": MAX_READS + MAX_SUSPECTED}
    assert reader.crowded(CONFIGMAPS)
    assert not reader.crowded(SECRETS)
    sent_away = [read for read in reads if read.done()]
    assert len(sent_away) == 100 - MAX_READS - MAX_SUSPECTED
    for read in sent_away:
        with pytest.raises(Crowded):
            read.result()
    api.answers.set()
    await asyncio.gather(*(read for read in reads if read not in sent_away))
    assert not reader.crowded(CONFIGMAPS)


@in_virtual_time
async def test_with_few_workers_half_of_them_read_one_resource_at_most(clock: VirtualClock) -> None:
    api = Silent()
    reader = Reader(cast("Any", api), clock, workers=8)
    reads = asyncio.gather(*(reader.find(CONFIGMAPS, str(number), "default") for number in range(8)))
    await clock.sleep(1)
    assert api.asked == {"configmaps": 4}
    api.answers.set()
    await reads
