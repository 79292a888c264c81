"""The Service in front of the sharder's webhook."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from shardsdk.testing.processes import ProcessState

if TYPE_CHECKING:
    from tests.simulation.world import World

#: How many answers are late in runs in which some are, and for how many seconds at most.
LATE_SHARE: Final = 0.3
LATE_SECONDS: Final = 3.0
#: Longer than any API server waits.
_HANGS_SECONDS: Final = 60.0


class WebhookService:
    """Chooses some replica that was ready, at random, dead or alive."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._routes = Random(f"{world.seed}/routes")
        self._late = Random(f"{world.seed}/late")

    async def ask(self, url: str, body: bytes) -> bytes | None:
        """What the webhook answers; `None`: nobody does."""
        world = self._world
        if world.webhook_hangs:
            await world.clock.sleep(_HANGS_SECONDS)
        ready = [each for each in world.replicas if each.replica.cache.warm]
        if not world.webhook_up or not ready:
            return None
        chosen = self._routes.choice(ready)
        if chosen.process.state is ProcessState.KILLED or chosen.main.done() or chosen.link.cut:
            return None
        answer = await chosen.review(url, body)
        if world.plan.late_webhook and self._late.random() < LATE_SHARE:
            await world.clock.sleep(self._late.uniform(0.0, LATE_SECONDS))
        return answer
