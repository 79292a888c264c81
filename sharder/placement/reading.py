"""Reads of single objects for one ring: so many at once of each resource.

Does: keep a backlog's workers from opening a connection each.  A connection that was
opened stays while there is anything to send, with 130 KiB of buffers (measured, TLS).

Refuses: to let a resource that does not answer keep the reads of another waiting.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final

from shardsdk.kube.api import Api
from shardsdk.protocol.objects import GroupResource, PartialObject, Resource

#: As many as label writes, since that is what follows; each is one more that users' requests wait for.
MAX_READS: Final = 24


class Reader:
    """Reads by `api`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._places: defaultdict[GroupResource, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_READS))

    async def find(self, resource: Resource, name: str, namespace: str | None) -> PartialObject | None:
        """Metadata of one object, as a consistent read shows it; `None`: there is none."""
        async with self._places[resource.group_resource]:
            return await self._api.find(resource, name, namespace)
