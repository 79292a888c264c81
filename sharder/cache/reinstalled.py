"""Notices that a resource was taken away and installed anew as something else: of another kind, or another scope.

No watch tells of that: the new resource is served under the path of the old one.  Both are part of ring keys, so
every replica looks, seldom, and asks only what the API server has been asked for all rings.

Refuses: to notice that a resource is gone, or served in another version; watches tell the leader of that.
"""

from __future__ import annotations

import logging
from typing import Final

from sharder.cache.resources import look_up
from sharder.cache.rings import RingCache
from sharder.core.ringspec import ResolvedRing
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock

log = logging.getLogger(__name__)

#: How often: each time costs one or two small reads of every replica for each resource that rings list.
LOOK_SECONDS: Final = 300.0


class Reinstalled:
    """Has the rings of `cache` looked up again whose resources are something else by now; `run` it."""

    def __init__(self, api: Api, cache: RingCache, clock: Clock) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            for ring in self._cache.all():
                try:
                    another = ring.resolved is not None and await self._is_another(ring.resolved)
                except Exception:
                    log.exception("ring not resolved, will retry", extra={"ring": ring.name})
                    continue
                if another:
                    log.info("resource of a ring is another by now", extra={"ring": ring.name})
                    self._cache.resolve_again(ring.name)

    async def _is_another(self, ring: ResolvedRing) -> bool:
        known = {each.resource.group_resource: each.resource for each in ring.subjects()}
        served = (await look_up(self._api, known)).served
        return any(
            found is not None and (found.kind, found.namespaced) != (known[name].kind, known[name].namespaced)
            for name, found in served.items()
        )
