"""Which resources may carry a ring's labels although the ring lists them no longer.

The ring's status remembers them (`placedResources`), so that one that is taken off
the list is cleaned up, whoever leads then.  Hence the order, which the caller keeps:
a resource is written down before any of its objects gets a label.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sharder.backlog.objects import RingResource
from sharder.core.ringspec import ResolvedMain, ResolvedRing, Role, Subject, placed_resources
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import GroupResource, Resource

log = logging.getLogger(__name__)


class RemovedResources:
    """Those of one ring; `write(status)` merges into the ring's status.

    `complete`: all that is removed could be looked up the last time.
    """

    def __init__(self, ring: str, api: Api, write: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        self._ring = ring
        self._api = api
        self._write = write
        self.complete = True
        #: What this leader has written of the ring with that uid; its watch may not show it yet.
        self._written: dict[GroupResource, bool] = {}
        self._uid = ""

    async def record(
        self, status: Mapping[str, Any], resolved: ResolvedRing, clean: frozenset[GroupResource]
    ) -> tuple[RingResource, ...]:
        """Write down every resource that may carry the ring's labels, and say which the ring lists no longer.

        `status`: the ring's, as last seen.  `clean`: removed resources of which no object has labels any more.
        Raises: ShardingError when it is not written down; then no object may get a label.
        """
        if resolved.spec.uid != self._uid:
            self._uid, self._written = resolved.spec.uid, {}
        shown = dict(placed_resources(status))
        before = {**shown, **self._written}
        listed = {each.resource.group_resource: each.role is Role.CONTROLLED for each in resolved.subjects()}
        # Also what an owner that is not served controls: its labels are needed when it is served again.
        unserved = set(resolved.spec.named) - listed.keys()
        removed = {
            name: controlled
            for name, controlled in before.items()
            if name not in listed and name not in unserved and name not in clean
        }
        wanted = {**{name: kept for name, kept in before.items() if name in unserved}, **removed, **listed}
        if wanted != shown:
            rendered = [
                {"group": name.group, "resource": name.resource, "controlled": controlled}
                for name, controlled in sorted(wanted.items())
            ]
            # Also when nobody knows whether it was: what may be written down is not forgotten.
            self._written.update(wanted)
            await self._write({"placedResources": rendered})
        self._written = wanted
        return await self._look_up(removed)

    async def _look_up(self, removed: Mapping[GroupResource, bool]) -> tuple[RingResource, ...]:
        found: list[RingResource] = []
        self.complete = True
        for name, controlled in sorted(removed.items()):
            try:
                resource = await self._api.discover(name.group, name.resource)
            except ShardingError as error:
                # What is no longer listed must not keep the rest from being placed.
                self.complete = False
                extra = {"ring": self._ring, "resource": str(name), "error": str(error)}
                log.warning("resource that was taken off the ring not looked up, will retry", extra=extra)
                continue
            if resource is not None:
                found.append(as_removed(resource, controlled=controlled))
        return tuple(found)


def as_removed(resource: Resource, *, controlled: bool) -> RingResource:
    """A resource that the ring lists no longer, as placement sees it."""
    main = ResolvedMain(resource)
    return RingResource(Subject(Role.CONTROLLED if controlled else Role.MAIN, resource, main), removed=True)
