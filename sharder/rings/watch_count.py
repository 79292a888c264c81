"""Tells when the rings of one leader come near the number of watches that it may hold."""

from __future__ import annotations

import logging

from sharder.cache.rings import RingCache
from sharder.core.streams import count_streams, is_near, render_watch_count
from shardsdk.kube.sessions import CONNECTIONS, Lane

log = logging.getLogger(__name__)


class WatchCount:
    """Of all rings of `cache` together; the log tells once that they come near."""

    def __init__(self, cache: RingCache) -> None:
        self._cache = cache
        self._near = False
        #: By ring, the watches that it has beside one for each resource and kind.
        self._beside: dict[str, int] = {}

    def judge(self, ring: str, beside: int) -> str | None:
        """What is wrong, looked at on behalf of `ring`; `None`: there is room for all.

        `beside`: the watches that it has, for single namespaces, beside one for each resource and kind.
        """
        limit, rings = CONNECTIONS[Lane.STREAMS], self._cache.all()
        self._beside[ring] = beside
        self._beside = {each.name: self._beside.get(each.name, 0) for each in rings}
        streams = count_streams(each.resolved for each in rings if each.resolved is not None)
        streams += sum(self._beside.values())
        near = is_near(streams, limit)
        if near and not self._near:
            extra = {"ring": ring, "watches": streams, "limit": limit}
            log.warning("watches of all rings near their limit", extra=extra)
        self._near = near
        return render_watch_count(streams, limit)
