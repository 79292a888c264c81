"""The sharder as a process: one replica with its servers, certificates and orderly stop.

On cancellation it stops in order: unready, hand over the leadership, serve on
meanwhile for a moment while callers come, telling them to go, finish their requests, exit.
While the API server is away it waits, and says so.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sharder.config import BindAddress, SharderConfig
from sharder.core.webhookconfig import CERTIFICATES_SECRET
from sharder.replica import Replica, ReplicaSettings
from sharder.rings.deps import WebhookSettings
from sharder.telemetry import Telemetry, measure_loop_lag
from sharder.webhook.account import OwnAccount
from sharder.webhook.app import Limits, build_app
from shardsdk.events.recorder import EventRecorder
from shardsdk.kube.api import Api
from shardsdk.kube.client import Client
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.server import Access
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.accepting import Tls
from shardsdk.process.health import Address, Checks, Endpoints, serve
from shardsdk.process.memory import give_back_memory
from shardsdk.serving.certificate_spec import ServingNames
from shardsdk.serving.certificate_watcher import Directory, find_default_directory
from shardsdk.serving.delegated import DelegatedAccess
from shardsdk.serving.published import CertificateSource
from shardsdk.serving.secretstore import SelfManaged
from shardsdk.serving.server import SettingNames, WebhookServer
from shardsdk.serving.x509_process import ask_apart
from shardsdk.version import VERSION

log = logging.getLogger(__name__)

#: How long a stopping replica serves on at most while callers are told to go elsewhere: endpoints
#: take about this long to lose an unready pod.
SERVE_ON_SECONDS: Final = 3.0
#: It stops sooner once nobody has called for so long: who calls more seldom, and by old endpoints still, gets no label,
#: and placement gives it one.
QUIET_SECONDS: Final = 1.0
#: Part of the orderly stop that serving on may take at most.
SERVE_ON_SHARE: Final = 0.3
#: Whose certificates are made, and how the Secret that holds them is labelled.
SUBJECT: Final = "sharder webhook"
CERTIFICATES_LABELS: Final = {"app.kubernetes.io/name": "sharder", "app.kubernetes.io/managed-by": "sharder"}
SETTINGS: Final = SettingNames(host="webhook.server.host", port="webhook.server.port")


async def run(config: SharderConfig, access: Access, telemetry: Telemetry) -> int:
    """Run one replica until cancelled; returns the exit code.

    Raises: ConfigurationError when an address cannot be listened on or the
    configuration contradicts itself.
    """
    metrics, clock, rng = telemetry.metrics, SystemClock(), random.Random()
    connection = config.client_connection
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(
                access, user_agent=f"sharder/{VERSION}", clock=clock, on_call=metrics.api_called,
                qps=connection.qps if connection.qps > 0 else None,
                burst=connection.burst or max(1, round(connection.qps)),
            )
        )  # fmt: skip
        service = _Service(config, client, telemetry, clock, rng)
        await service.listen(stack)
        return await service.run()


@dataclass(slots=True)
class _Readiness:
    stopping: bool = False


class _Service:
    def __init__(self, config: SharderConfig, api: Api, telemetry: Telemetry, clock: Clock, rng: random.Random) -> None:
        self._config = config
        self._api = api
        self._telemetry = telemetry
        self._clock = clock
        self._readiness = _Readiness()
        self._recorder = EventRecorder(api, "sharder", clock, rng, on_dropped=telemetry.metrics.events_dropped.inc)
        needed = config.webhook.enabled or config.metrics.secure
        self._certificates = self._find_certificates() if needed else None
        if self._certificates is not None:
            self._certificates.published.on_change(self._show_expiry)
        self._account = OwnAccount(api, clock, lambda: self._replica.webhook_changed())
        self._replica = Replica(
            api, replica_settings(config), metrics=telemetry.metrics, recorder=self._recorder,
            webhook=self._webhook_settings(), clock=clock, rng=rng, on_settled=lambda ring: give_back_memory(),
        )  # fmt: skip
        self._webhook = self._build_webhook()

    # -- parts -------------------------------------------------------------

    def _find_certificates(self) -> CertificateSource:
        server, metrics = self._config.webhook.server, self._telemetry.metrics
        directory = Path(server.cert_dir) if server.cert_dir else None
        if directory is None:
            directory = find_default_directory(server.cert_name, server.key_name)
        if directory is not None:
            log.info("serving certificate comes from files", extra={"path": str(directory)})
            return Directory(
                directory, setting="webhook.server.certDir", clock=self._clock, certificate_name=server.cert_name,
                key_name=server.key_name, ask=ask_apart, on_load=metrics.certificate_loaded,
            )  # fmt: skip
        return SelfManaged(
            self._api, namespace=self._config.leader_election.resource_namespace, name=CERTIFICATES_SECRET,
            labels=CERTIFICATES_LABELS, names=serving_names(self._config), clock=self._clock, ask=ask_apart,
            on_load=metrics.certificate_loaded,
        )  # fmt: skip

    def _webhook_settings(self) -> WebhookSettings | None:
        if self._certificates is None or not self._config.webhook.enabled:
            return None
        given = self._config.webhook.config
        published = self._certificates.published
        configured = given.client_config.ca_bundle
        ours = configured is None and isinstance(self._certificates, SelfManaged)

        def ca_bundle() -> bytes | None:
            return configured if configured is not None else published.ca_bundle

        def authority_missing() -> str | None:
            return (published.failure or "") if ours and not published.loaded.is_set() else None

        return WebhookSettings(
            client_config=given.client_config.render(), annotations=given.annotations, ca_bundle=ca_bundle,
            account=lambda: self._account.name, authority_missing=authority_missing,
            timeout_seconds=given.timeout_seconds,
        )  # fmt: skip

    def _build_webhook(self) -> WebhookServer | None:
        if self._certificates is None or not self._config.webhook.enabled:
            return None
        metrics, server = self._telemetry.metrics, self._config.webhook.server
        published = self._certificates.published
        app = build_app(
            self._replica.cache.view, self._api, clock=self._clock,
            on_outcome=metrics.webhook_answered,
            on_assigned=lambda ring, resource: metrics.resource(ring, resource).assignments.inc(),
            on_not_served=self._replica.cache.resolve_again,
            account=lambda: self._account.name, limits=Limits.within(self._config.webhook.config.timeout_seconds),
        )  # fmt: skip
        published.on_change(self._replica.webhook_changed)
        address = Address(server.host, server.port)
        return WebhookServer(app, published, clock=self._clock, address=address, settings=SETTINGS)

    def _show_expiry(self) -> None:
        pair = self._certificates.published.pair if self._certificates is not None else None
        if pair is not None:
            self._telemetry.metrics.certificate_expires(pair.expires_at)

    # -- listening ---------------------------------------------------------

    async def listen(self, stack: AsyncExitStack) -> None:
        """Take every port, so that an occupied one is known before anything else starts."""
        if self._webhook is not None:
            self._webhook.bind()
            stack.callback(self._webhook.close)
        endpoints = Endpoints(healthz=Checks(), readyz=self._readiness_checks(), setting="health.bindAddress")
        await self._serve(stack, self._config.health.bind_address, endpoints)
        await self._serve_metrics(stack)

    async def _serve_metrics(self, stack: AsyncExitStack) -> None:
        endpoints, tls = Endpoints(metrics=self._telemetry.render, setting="metrics.bindAddress"), None
        if self._config.metrics.secure and self._certificates is not None:
            endpoints = replace(endpoints, guard=DelegatedAccess(self._api, self._clock).refusal)
            tls = self._certificates.published.newest
        await self._serve(stack, self._config.metrics.bind_address, endpoints, tls)

    async def _serve(
        self, stack: AsyncExitStack, address: BindAddress, endpoints: Endpoints, tls: Tls | None = None
    ) -> None:
        if address.enabled:
            await stack.enter_async_context(serve(Address(address.host, address.port), endpoints, tls))

    def _readiness_checks(self) -> Checks:
        cache = self._replica.cache
        checks = Checks()
        checks.add("stopping", lambda: "the sharder is stopping" if self._readiness.stopping else None)
        for name, informer in (("rings", cache.ring_informer), ("leases", cache.lease_informer)):
            checks.add(name, lambda informer=informer: None if informer.synced.is_set() else _waiting(informer.failure))  # type: ignore[misc]
        checks.add("resources", lambda: None if cache.warm else "not every ring has been resolved yet")
        if self._certificates is not None:
            published = self._certificates.published
            checks.add(
                "certificate",
                lambda: None if published.loaded.is_set() else published.failure or "no serving certificate yet",
            )
        return checks

    # -- running -----------------------------------------------------------

    async def run(self) -> int:
        """Run until cancelled, then stop in order; a part that ends by itself is an error and raised."""
        events = asyncio.create_task(self._recorder.run(), name="events")
        background = [events]
        if self._certificates is not None:
            background.append(asyncio.create_task(self._certificates.run(), name="certificates"))
        if self._webhook is not None:
            background.append(asyncio.create_task(self._account.run(), name="account"))
        background.append(
            asyncio.create_task(measure_loop_lag(self._telemetry.metrics.loop_lag.observe, self._clock), name="lag")
        )
        replica = asyncio.create_task(self._replica.run(), name="replica")
        webhook = asyncio.create_task(self._webhook.run(), name="webhook") if self._webhook is not None else None
        tasks = [replica, *background, *([webhook] if webhook is not None else [])]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._stop(replica, webhook, events)
            return 0
        finally:
            await _cancel(tasks)
        ended = next(task for task in tasks if task in done)  # by itself: by now all have, cancelled
        raise ended.exception() or RuntimeError(f"{ended.get_name()} ended by itself")

    async def _stop(
        self, replica: asyncio.Task[None], webhook: asyncio.Task[None] | None, events: asyncio.Task[None]
    ) -> None:
        self._readiness.stopping = True
        limit = self._config.graceful_shutdown_limit
        try:
            async with asyncio.timeout(limit):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._replica.resign())
                    if webhook is not None and self._webhook is not None:
                        grace = SERVE_ON_SECONDS if limit is None else min(SERVE_ON_SECONDS, SERVE_ON_SHARE * limit)
                        tasks.create_task(self._webhook.stop_gracefully(grace, QUIET_SECONDS))
                await _cancel([replica, events])
                await self._recorder.flush()
        except TimeoutError:
            # The API server is away, most likely: then nobody can lead before the lease has run out anyway.
            log.warning("not everything could be handed over in time; what is held runs out by itself")
            return
        log.info("stopped in order")


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            log.debug("task ended", extra={"error": repr(result)})


def _waiting(failure: Exception | None) -> str:
    return f"waiting for the API server: {failure}" if failure is not None else "waiting for the first list"


def replica_settings(config: SharderConfig) -> ReplicaSettings:
    """What of the configuration concerns caches and controllers."""
    election, sharder = config.leader_election, config.controller.sharder
    return ReplicaSettings(
        timings=LeaseTimings(
            lease_duration=election.lease_duration_seconds,
            renew_deadline=election.renew_deadline_seconds,
            retry_period=election.retry_period_seconds,
        ),
        lease_namespace=election.resource_namespace,
        lease_name=election.resource_name,
        concurrent_moves=sharder.concurrent_moves,
        sync_period_seconds=sharder.sync_period_seconds,
        staleness_seconds=sharder.webhook_staleness_seconds,
        default_scope=config.webhook.config.namespace_selector,
    )


def serving_names(config: SharderConfig) -> ServingNames:
    """The names under which API servers call this webhook."""
    client = config.webhook.config.client_config
    if client.url is not None:
        host = urlsplit(client.url).hostname
        return ServingNames.of([host] if host else [], SUBJECT)
    service = client.render()["service"]
    return ServingNames.of_service(service["name"], service["namespace"], SUBJECT)
