"""What a manager answers to probes, to Prometheus and to people, while it runs and while it is stuck.

The endpoints run in threads of their own, so that they notice, and say, when the event loop takes no turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from shardsdk.process.debug import DebugObjects
from shardsdk.process.health import Address, Checks, Endpoints, serve_in_thread
from shardsdk.process.mainloop import MainLoop
from shardsdk.queueing.metrics import Metrics

#: The manager's own checks; others may not be called so.
MAIN_LOOP: Final = "main-loop"
LEASE: Final = "lease"
CACHES: Final = "caches"
STOPPING: Final = "stopping"
#: Where people say where to listen: of `shardsdk run`, and of a program of their own.
HEALTH_SETTING: Final = "--health or health_address"
METRICS_SETTING: Final = "--metrics or metrics_address"
SOCKET_SETTING: Final = "XDG_RUNTIME_DIR"


class Probes:
    """By what a process is alive and ready, and what its objects wait for; `debug_to_all`: told to everybody."""

    def __init__(self, *, debug_to_all: bool = False) -> None:
        self.healthz: Final = Checks()
        self.readyz: Final = Checks()
        self.debug: Final = DebugObjects(to_all=debug_to_all, lacking=self.readyz.failing)

    @contextlib.contextmanager
    def serve(self, addresses: Sequence[Address | None], metrics: Metrics, main_loop: MainLoop) -> Iterator[None]:
        """Answer at the addresses for health, for metrics, and for who asks here, from threads of their own.

        They answer while the main loop is blocked.  What objects wait for is told at the first and the third, or if
        there is no address for health at that of the metrics.

        Raises: ConfigurationError when an address cannot be listened on.
        """
        beating = asyncio.create_task(main_loop.beat(), name="main-loop")
        try:
            with contextlib.ExitStack() as servers, main_loop.watch():
                for address, endpoints in self._endpoints(addresses, metrics):
                    servers.enter_context(serve_in_thread(address, endpoints))
                yield
        finally:
            beating.cancel()

    def _endpoints(self, addresses: Sequence[Address | None], metrics: Metrics) -> list[tuple[Address, Endpoints]]:
        health_address, metrics_address, socket = addresses
        debug = {
            "/debug/objects": self.debug.answer_all,
            "/debug/objects/{name}": self.debug.answer_object,
            "/debug/objects/{namespace}/{name}": self.debug.answer_object,
        }
        health = Endpoints(self.healthz, self.readyz, more=debug, setting=HEALTH_SETTING)
        if health_address and health_address == metrics_address:
            setting = f"{HEALTH_SETTING}, {METRICS_SETTING}"
            served: list[tuple[Address | None, Endpoints]] = [
                (health_address, replace(health, metrics=metrics.render, setting=setting))
            ]
        else:
            shown = Endpoints(metrics=metrics.render, more={} if health_address else debug, setting=METRICS_SETTING)
            served = [(health_address, health), (metrics_address, shown)]
        served.append((socket, replace(health, setting=SOCKET_SETTING)))
        return [(address, endpoints) for address, endpoints in served if address is not None]
