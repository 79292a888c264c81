"""The cluster's webhook configurations, as the leader's watch shows them.

Refuses: to write any; what is a ring's is the ring's to write.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, ring_of_webhook
from sharder.rings.other_sharders import OtherSharders, ring_of_other
from shardsdk.errors import ShardingError
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import Clock
from shardsdk.kube.reflector import Delta, Reflector
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import PartialObject


class WebhookConfigurations:
    """Those of all rings, and of other sharders; `on_change(ring, delta)` is told whose has changed.

    `is_ring` says whether there is a ring of that name.
    """

    def __init__(
        self,
        api: Api,
        *,
        leader: Fence,
        clock: Clock,
        rng: Random,
        is_ring: Callable[[str], bool],
        on_change: Callable[[str, Delta[PartialObject]], None],
    ) -> None:
        self._is_ring = is_ring
        self._on_change = on_change
        self._reflector: Reflector[PartialObject] = Reflector(
            api, WEBHOOK_CONFIGURATIONS, handler=self._handle, name="webhook configurations", clock=clock, rng=rng
        )
        self.others = OtherSharders(api, self._reflector.store, leader=leader, clock=clock)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    @property
    def failure(self) -> ShardingError | None:
        """Why they cannot be followed just now; `None`: they can."""
        return self._reflector.failure

    @property
    def listed(self) -> bool:
        """Whether the watch has shown all that there are."""
        return self._reflector.synced.is_set()

    def find(self, name: str) -> PartialObject | None:
        """The configuration called `name`, if there is one."""
        return self._reflector.store.get("", name)

    def _handle(self, delta: Delta[PartialObject]) -> None:
        other = ring_of_other(delta.object)
        if other is not None:
            self._on_change(other, delta)
        ring = ring_of_webhook(delta.object.metadata.name)
        # Without the label it is somebody else's, unless there is such a ring: then somebody has taken the label off.
        if ring and (delta.object.metadata.label(LEASE_RING_LABEL) == ring or self._is_ring(ring)):
            self._on_change(ring, delta)
