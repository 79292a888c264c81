"""What a manager answers to probes and to Prometheus, while it runs and while it is stuck.

The endpoints run in threads of their own, so that they notice, and say, when the event loop takes no turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from shardsdk.kube.clock import Clock
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


@contextlib.contextmanager
def serve_probes(
    health_address: Address | None,
    metrics_address: Address | None,
    *,
    healthz: Checks,
    readyz: Checks,
    metrics: Metrics,
    main_loop: MainLoop,
) -> Iterator[None]:
    """Health and metrics, from threads of their own: they answer while the main loop is blocked.

    Raises: ConfigurationError when an address cannot be listened on.
    """
    metrics.add_process_metrics()
    if health_address and health_address == metrics_address:
        wanted = [(health_address, Endpoints(healthz, readyz, metrics.render))]
    else:
        both = ((health_address, Endpoints(healthz, readyz)), (metrics_address, Endpoints(metrics=metrics.render)))
        wanted = [(address, endpoints) for address, endpoints in both if address]
    beating = asyncio.create_task(main_loop.beat(), name="main-loop")
    try:
        with contextlib.ExitStack() as servers:
            for address, endpoints in wanted:
                servers.enter_context(serve_in_thread(address, endpoints))
            yield
    finally:
        beating.cancel()
