"""A process of the sharder: the real replica and the real webhook application, on simulated ground."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from sharder.core.takeover import Limits
from sharder.core.webhookconfig import WEBHOOK_TIMEOUT_SECONDS
from sharder.replica import Replica, ReplicaSettings
from sharder.rings.deps import WebhookSettings
from sharder.telemetry.metrics import Metrics
from sharder.webhook.app import build_app
from shardsdk.lease.timings import LeaseTimings
from shardsdk.testing.processes import Process, ProcessState
from tests.simulation.admission import SHARDER
from tests.simulation.shards import shortest_timings
from tests.simulation.simapi import SimApi
from tests.simulation.vocabulary import Timings

if TYPE_CHECKING:
    from tests.simulation.world import World


class _Mute:
    """Takes Events and forgets them."""

    def event(self, regarding: Any, event_type: Any, reason: str, message: str) -> None:
        return None


def settings(timings: Timings, identity: str) -> ReplicaSettings:
    """A sharder as quick as the run's leases."""
    scale = timings.scale
    return ReplicaSettings(
        timings=LeaseTimings(timings.lease, timings.renew, timings.retry),
        identity=identity,
        concurrent_moves=8,
        sync_period_seconds=300.0,
        staleness_seconds=10.0 * scale,
        settle_after_seconds=10.0 * scale,
        takeover=Limits(15.0 * scale, 60.0 * scale, 60.0 * scale, 3.0 * scale, 60.0 * scale),
    )


def _webhook(timings: Timings) -> WebhookSettings:
    """How the API server reaches it, and how long it waits: in proportion to the shortest lease of the run's shards.

    A drain could not be acknowledged while the webhook hangs if that were longer than what is left of a shard's hold.
    """
    seconds = max(1, round(WEBHOOK_TIMEOUT_SECONDS * timings.scale))
    client_config = {"url": "https://sharder.simulated"}
    return WebhookSettings(client_config, {}, lambda: None, lambda: SHARDER, timeout_seconds=seconds)


class ReplicaProcess:
    """One incarnation of a replica."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        self.name = name
        self.identity = f"{name}_{incarnation}"
        self.process = Process(self.identity)
        self.link = world.link(self.identity)
        rng = Random(f"{world.seed}/{self.identity}")
        self.clock = clock = world.machines.clock_of(self.identity, rng)
        self._world = world
        api = SimApi(world.server, self.link, clock)
        self.replica = Replica(
            api,
            settings(world.timings, self.identity),
            metrics=Metrics.create(CollectorRegistry()),
            recorder=_Mute(),
            webhook=_webhook(shortest_timings(world.plan)),
            clock=clock,
            rng=rng,
        )
        self._app = build_app(
            self.replica.cache.view,
            api,
            clock=clock,
            on_outcome=lambda ring, outcome, seconds: world.mark(f"admission {outcome}"),
            account=lambda: SHARDER,
        )
        self.main = self.process.start(self._run())

    @property
    def running(self) -> bool:
        return self.process.state is ProcessState.RUNNING and not self.main.done()

    @property
    def stays(self) -> bool:
        """Whether it is there to lead: it runs, was not told to stop, and reaches the API server."""
        return self.running and not self.main.cancelling() and not self.link.cut

    @property
    def ready(self) -> bool:
        """What its /readyz says."""
        return self.running and self.replica.cache.warm

    async def _run(self) -> None:
        try:
            await self.replica.run()
        except Exception as error:
            self._world.crashed(self.identity, error)

    async def review(self, url: str, body: bytes) -> bytes | None:
        """Post a review to this process's webhook, as the API server does."""
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        task = self.process.start(self._serve(urlsplit(url).path, body, answer))
        try:
            return await answer
        finally:
            if self.running:
                task.cancel()

    async def _serve(self, path: str, body: bytes, answer: asyncio.Future[bytes | None]) -> None:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": "",
            "headers": [], "query_string": b"", "http_version": "1.1", "scheme": "https",
        }  # fmt: skip
        await self._app(scope, receive, send)
        if not answer.done():
            answer.set_result(sent[1]["body"] if sent[0]["status"] == 200 else None)

    # -- what happens to it --------------------------------------------------

    def kill(self) -> None:
        """End it between two steps."""
        self.link.die(self._world.now + 0.3)
        self._world.bury()
        self.process.kill()

    async def stop(self) -> None:
        """SIGTERM: it hands the leadership over."""
        self.main.cancel()
        await asyncio.wait([self.main])
        self.kill()
