"""When nothing of this shard works in a range of hashes any more, so that another shard may have it.

What a drain's acknowledgement waits for with labels, for all objects of a range at once:
no reconcile runs, and no write of this shard can still be executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from shardsdk.cache.objects import Request
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import SlimMeta
from shardsdk.protocol.ranges import HashBy, HashRanges
from shardsdk.reconcile.mainresource import MainResource

log: Final = logger_of(__name__)


async def work_ended(
    ranges: HashRanges, by: HashBy, resources: Iterable[MainResource[Any]], api: Api, clock: Clock
) -> None:
    """Return when nothing works in `ranges`, in which no reconcile begins any more; `api` is what all write through."""
    async with asyncio.TaskGroup() as group:
        for resource in resources:
            for request, uid in resource.inflight.running():
                if by.point(SlimMeta(namespace=request.namespace, uid=uid)) in ranges:
                    group.create_task(_idle(resource, request, clock))
    await api.writes_settled()


async def _idle(resource: MainResource[Any], request: Request, clock: Clock) -> None:
    """Wait until no reconcile of an object runs, and cancel those that run for too long."""
    idle = asyncio.Event()
    resource.inflight.when_idle(request, idle.set)
    if (limit := resource.drain_timeout_seconds) is None:
        await idle.wait()
        return
    waiting = asyncio.ensure_future(idle.wait())
    timer = asyncio.ensure_future(clock.sleep(limit))
    try:
        await asyncio.wait([waiting, timer], return_when=asyncio.FIRST_COMPLETED)
        if not idle.is_set():
            log.warning(
                "Reconcile cancelled: its object is being drained",
                extra={
                    "resource": str(resource.cache.resource.group_resource),
                    "namespace": request.namespace,
                    "object": request.name,
                },
            )
            resource.cancel(request)
        await waiting
    finally:
        waiting.cancel()
        timer.cancel()
