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

    def judge(self, ring: str) -> str | None:
        """What is wrong, looked at on behalf of `ring`; `None`: there is room for all."""
        limit = CONNECTIONS[Lane.STREAMS]
        streams = count_streams(each.resolved for each in self._cache.all() if each.resolved is not None)
        near = is_near(streams, limit)
        if near and not self._near:
            extra = {"ring": ring, "watches": streams, "limit": limit}
            log.warning("watches of all rings near their limit", extra=extra)
        self._near = near
        return render_watch_count(streams, limit)
