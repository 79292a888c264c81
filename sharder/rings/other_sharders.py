"""What the Go sharder leaves behind when this one takes over from it: its webhook configurations.

Does: remove the one that it made for a ring of ours, once ours is in force, or the
ring cannot be used; it calls into nowhere, or into our webhook a second time.  If it comes back at once,
its maker is at work still, and two sharders that hash differently move every
object back and forth; that is said.

Refuses: to touch what is not owned by the ring itself.
"""

from __future__ import annotations

import logging
from typing import Final

from sharder.core.webhookconfig import GO_PREFIX, WEBHOOK_CONFIGURATIONS, go_webhook_name
from shardsdk.errors import InvalidRingName, NotFound
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock
from shardsdk.kube.store import Store
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import PartialObject

log = logging.getLogger(__name__)

#: A configuration that is there again so soon after it was removed has somebody who makes it.
AT_WORK_SECONDS: Final = 60.0


def ring_of_other(configuration: PartialObject) -> str | None:
    """The ring that a configuration of the Go sharder's is for; `None`: it is none."""
    owner = configuration.metadata.controller
    return owner.name if owner is not None and configuration.metadata.name.startswith(GO_PREFIX) else None


class OtherSharders:
    """`store` has the webhook configurations of the cluster."""

    def __init__(self, api: Api, store: Store[PartialObject], *, leader: Fence, clock: Clock) -> None:
        self._api = api
        self._store = store
        self._leader = leader
        self._clock = clock
        #: When this leader removed one, by its name.
        self._removed: dict[str, float] = {}
        #: By its name, the one that came back of which the log has a line, by its uid.
        self._told: dict[str, str] = {}

    async def remove(self, ring: str, uid: str) -> tuple[str, float] | None:
        """Remove the configuration for the ring; else why not, and in how many seconds to come again."""
        try:
            name, now = go_webhook_name(parse_ring_name(ring)), self._clock.monotonic()
        except InvalidRingName:
            return None  # no sharder can have made one
        found = self._store.get("", name)
        owner = found.metadata.controller if found is not None else None
        if found is None or owner is None or owner.uid != uid:
            return None
        left = self._removed.get(name, float("-inf")) + AT_WORK_SECONDS - now
        if left > 0:
            if self._told.get(name) != found.metadata.uid:
                self._told[name] = found.metadata.uid
                log.warning("another sharder is at work", extra={"ring": ring, "configuration": name})
            return (
                f"another sharder is at work: it has made MutatingWebhookConfiguration {name} again;"
                " stop one of the two, which place objects differently",
                left,
            )
        try:
            await self._api.delete(WEBHOOK_CONFIGURATIONS, name, uid=found.metadata.uid, fences=(self._leader,))
        except NotFound:
            return None
        self._removed[name] = now
        log.info("another sharder's webhook configuration removed", extra={"ring": ring, "configuration": name})
        return None
