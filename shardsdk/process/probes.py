"""What a manager answers to probes, to Prometheus and to people, while it runs and while it is stuck.

The endpoints run in threads of their own, so that they notice, and say, when the event loop takes no turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from shardsdk.process.debug import DebugObjects
from shardsdk.process.health import Address, Checks, Endpoints, serve_in_thread
from shardsdk.process.mainloop import MainLoop
from shardsdk.queueing.metrics import Metrics

#: Where people say where to listen: of `shardsdk run`, and of a program of their own.
HEALTH_SETTING: Final = "--health or health_address"
METRICS_SETTING: Final = "--metrics or metrics_address"


class Probes:
    """By what a process is alive and ready, and what its objects wait for; `debug_to_all`: told to everybody."""

    def __init__(self, *, debug_to_all: bool = False) -> None:
        self.healthz: Final = Checks()
        self.readyz: Final = Checks()
        self.debug: Final = DebugObjects(to_all=debug_to_all, lacking=self.readyz.failing)

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
            with contextlib.ExitStack() as servers, main_loop.watch():
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
            both = f"{HEALTH_SETTING}, {METRICS_SETTING}"
            return [(health_address, Endpoints(self.healthz, self.readyz, metrics.render, debug, both))]
        if not health_address:
            alone = Endpoints(metrics=metrics.render, more=debug, setting=METRICS_SETTING)
            return [(metrics_address, alone)] if metrics_address else []
        health = (health_address, Endpoints(self.healthz, self.readyz, more=debug, setting=HEALTH_SETTING))
        further = Endpoints(metrics=metrics.render, setting=METRICS_SETTING)
        return [health, (metrics_address, further)] if metrics_address else [health]
