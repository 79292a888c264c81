"""What the sharder tells about itself in metrics; its log lines are printed by shardsdk/logs.py.

Guarantees: the metrics that
dashboards of the ecosystem read keep their names and labels
(tests/unit/sharder/telemetry/test_metrics.py).  No metric takes a label value from outside
unchecked, and a deleted ring leaves no series behind.

Does not guarantee: that the figures of two replicas add up.  Gauges about
objects and shards are the leader's; the others say 0: take the maximum.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from sharder.telemetry.looplag import measure_loop_lag
from sharder.telemetry.metrics import Metrics

__all__ = [
    "Metrics",
    "Telemetry",
    "measure_loop_lag",
]


@dataclass(frozen=True, slots=True)
class Telemetry:
    """One process's metrics, and the registry that /metrics shows."""

    registry: CollectorRegistry
    metrics: Metrics
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def create(cls) -> Telemetry:
        """A registry of its own with the sharder's, Python's and the process's metrics.

        Turns off the `_created` series of the whole process: they double every
        counter and no dashboard reads them.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        return cls(registry, Metrics.create(registry))

    async def render(self) -> tuple[str, bytes]:
        """Content type and text that Prometheus reads.

        In a thread, since a hundred rings are a megabyte of text and the loop has reviews to answer; one after the
        other, since each thread takes time from those answers.
        """
        async with self._turn:
            self.metrics.prepare_scrape()
            return CONTENT_TYPE_LATEST, await asyncio.to_thread(generate_latest, self.registry)
