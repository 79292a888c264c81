"""What a manager answers to probes, to Prometheus and to people, while it runs and while it is stuck.

The endpoints run in threads of their own, so that they notice, and say, when the event loop takes no turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from shardsdk.kube.clock import Clock
from shardsdk.process.debug import DebugObjects
from shardsdk.process.health import Address, Checks, Endpoints, serve_in_thread
from shardsdk.queueing.metrics import Metrics

#: How often the event loop shows that it takes turns.
BEAT_SECONDS: Final = 1.0


class MainLoop:
    """Whether the event loop takes turns; `check` is called from other threads.

    A loop that is blocked for longer than `limit_seconds`, a lease's duration,
    would have lost that lease if it were renewed by the same loop.
    """

    def __init__(self, clock: Clock, limit_seconds: float) -> None:
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._beat_at = clock.monotonic()

    async def beat(self) -> None:
        """Show that turns are taken, until cancelled."""
        while True:
            self._beat_at = self._clock.monotonic()
            await self._clock.sleep(BEAT_SECONDS)

    def check(self) -> str | None:
        """What is wrong; `None`: nothing."""
        stalled = self._clock.monotonic() - self._beat_at - BEAT_SECONDS
        return f"the event loop has been blocked for {stalled:.0f} s" if stalled > self._limit_seconds else None


class Probes:
    """By what a process is alive and ready, and what its objects wait for; `debug_to_all`: told to everybody."""

    def __init__(self, *, debug_to_all: bool = False) -> None:
        self.healthz: Final = Checks()
        self.readyz: Final = Checks()
        self.debug: Final = DebugObjects(to_all=debug_to_all)

    @contextlib.contextmanager
    def serve(self, addresses: Sequence[Address | None], metrics: Metrics, main_loop: MainLoop) -> Iterator[None]:
        """Answer at the addresses for health and for metrics, from threads of their own.

        They answer while the main loop is blocked.  What objects wait for is told
        at the health address, or if there is none at that of the metrics.

        Raises: ConfigurationError when an address cannot be listened on.
        """
        metrics.add_process_metrics()
        beating = asyncio.create_task(main_loop.beat(), name="main-loop")
        try:
            with contextlib.ExitStack() as servers:
                for address, endpoints in self._endpoints(addresses, metrics):
                    servers.enter_context(serve_in_thread(address, endpoints))
                yield
        finally:
            beating.cancel()

    def _endpoints(self, addresses: Sequence[Address | None], metrics: Metrics) -> list[tuple[Address, Endpoints]]:
        health_address, metrics_address = addresses
        debug = {
            "/debug/objects": self.debug.answer_all,
            "/debug/objects/{name}": self.debug.answer_object,
            "/debug/objects/{namespace}/{name}": self.debug.answer_object,
        }
        if health_address and health_address == metrics_address:
            return [(health_address, Endpoints(self.healthz, self.readyz, metrics.render, debug))]
        if not health_address:
            return [(metrics_address, Endpoints(metrics=metrics.render, more=debug))] if metrics_address else []
        health = (health_address, Endpoints(self.healthz, self.readyz, more=debug))
        return [health, (metrics_address, Endpoints(metrics=metrics.render))] if metrics_address else [health]
