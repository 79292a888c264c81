"""Reads of single objects for one ring: so many at once of each resource.

Does: keep a backlog's workers from opening a connection each.  A connection that was
opened stays while there is anything to send, with 130 KiB of buffers (measured, TLS).

Refuses: to let a resource that does not answer keep the reads of another waiting, or
more of the workers than a few.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from sharder.placement.slots import SLOW_SECONDS, Slots
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.protocol.objects import GroupResource, PartialObject, Resource

#: As many as label writes, since that is what follows; each is one more that users' requests wait for.
MAX_READS: Final = 24


class Reader:
    """Reads by `api`, for so many `workers`; what hangs leaves others of them."""

    def __init__(self, api: Api, clock: Clock, *, workers: int) -> None:
        self._api = api
        places = max(min(MAX_READS, workers // 2), 1)
        self._places: defaultdict[GroupResource, Slots] = defaultdict(
            lambda: Slots(places, clock, patience_seconds=SLOW_SECONDS)
        )

    def crowded(self, resource: Resource) -> bool:
        """Whether a read of this resource would end with Crowded now."""
        listed = resource.group_resource
        return self._places[listed].crowded(listed)

    async def find(self, resource: Resource, name: str, namespace: str | None) -> PartialObject | None:
        """Metadata of one object, as a consistent read shows it; `None`: there is none.

        Raises: Crowded where the resource does not answer, and what the API server answers.
        """
        listed = resource.group_resource
        async with self._places[listed].of(listed):
            return await self._api.find(resource, name, namespace)
