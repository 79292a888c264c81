"""What is counted of webhooks: what they say, and by the name that controller-runtime has for it, how long it takes."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from shardsdk.admission.review import Outcome

#: Up to the 30 s that an API server may be told to wait.
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

#: The result of what no webhook was asked.
_UNKNOWN: Final = "unknown"
_LOADS: Final = {True: "loaded", False: "refused"}


class WebhookMetrics:
    """Counts reviews in `registry`, and tells of the certificate by which they are asked for."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry if registry is not None else CollectorRegistry()
        self.registry: CollectorRegistry = registry
        self._requests = Counter(
            "shardsdk_webhook_requests", "Requests to webhooks, by what was answered", ("webhook", "result"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "controller_runtime_webhook_latency_seconds", "Seconds to answer a webhook's request", ("webhook",),
            buckets=_BUCKETS, registry=registry,
        )  # fmt: skip
        self._expiry = Gauge(
            "shardsdk_webhook_certificate_expiry_timestamp_seconds",
            "When the webhooks' serving certificate expires (Unix time); 0 before there is one", registry=registry,
        )  # fmt: skip
        self._loads = Counter(
            "shardsdk_webhook_certificate_loads", "Serving certificates of webhooks read, by result", ("result",),
            registry=registry,
        )  # fmt: skip
        for result in _LOADS.values():
            self._loads.labels(result)
        self.count_unknown(0)

    def count_unknown(self, number: int = 1) -> None:
        """A path was asked for where none of the webhooks is."""
        self._requests.labels("", _UNKNOWN).inc(number)

    def prepare(self, webhook: str) -> None:
        """Show `webhook` with zeros before it is asked, so that a rate has something to begin at."""
        self._seconds.labels(webhook)
        for outcome in Outcome:
            self._requests.labels(webhook, outcome.value)

    def certificate_loaded(self, good: bool) -> None:
        """A serving certificate was read, or could not be used."""
        self._loads.labels(_LOADS[good]).inc()

    def certificate_expires(self, moment: datetime) -> None:
        """Until when the serving certificate is valid."""
        self._expiry.set(moment.timestamp())

    def count(self, webhook: str, outcome: Outcome, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(webhook, outcome.value).inc()
        self._seconds.labels(webhook).observe(seconds)
