"""When nothing of this shard works in a range of hashes any more, so that another shard may have it.

What a drain's acknowledgement waits for with labels, for all objects of a range at once:
no reconcile runs, and no write of this shard can still be executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from shardsdk.cache.objects import Request
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import SlimMeta
from shardsdk.protocol.ranges import HashBy, HashRanges
from shardsdk.reconcile.mainresource import MainResource
from shardsdk.reconcile.patience import Patience


async def work_ended(
    ranges: HashRanges, by: HashBy, resources: Iterable[MainResource[Any]], api: Api, clock: Clock
) -> None:
    """Return when nothing works in `ranges`, in which no reconcile begins any more; `api` is what all write through."""
    async with asyncio.TaskGroup() as group:
        for resource in resources:
            busy = (
                request
                for request, uid in resource.inflight.running()
                if by.point(SlimMeta(namespace=request.namespace, uid=uid)) in ranges
            )
            for request in dict.fromkeys(busy):  # once, however many controllers work on it
                group.create_task(_idle(resource, request, clock))
    await api.writes_settled()


async def _idle(resource: MainResource[Any], request: Request, clock: Clock) -> None:
    """Wait until no reconcile of an object runs, and lose patience with those that do."""
    idle = asyncio.Event()
    resource.inflight.when_idle(request, idle.set)
    looking = asyncio.create_task(_look(resource, request, clock))
    try:
        await idle.wait()
    finally:
        looking.cancel()


async def _look(resource: MainResource[Any], request: Request, clock: Clock) -> None:
    assert resource.shard is not None  # else nobody gives anything of it away
    cancel = partial(resource.cancel, request)
    patience = Patience(resource.drain_timeout_seconds, cancel, resource.shard, resource.cache.resource, request)
    since = clock.monotonic()
    while True:
        await clock.sleep(patience.look(clock.monotonic() - since))
