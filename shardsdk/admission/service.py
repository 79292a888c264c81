"""Serves an operator's webhooks on each of its replicas, from its start to an orderly end.

In a pod API servers call through a Service, by a certificate from a Secret that
the replicas share, or from files that somebody else keeps.  Outside of one they
call this machine, if they can, by an address that its user has given; else the
webhooks are not served.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardsdk.admission.app import AdmissionApp
from shardsdk.admission.configuration import Manifest, development_name, labels_of, secret_name, service_name
from shardsdk.admission.metrics import WebhookMetrics
from shardsdk.admission.registration import Registration
from shardsdk.admission.settings import Serving, answer_seconds, split_address
from shardsdk.errors import ConfigurationError, ShardingError
from shardsdk.kube.access import in_pod
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.lease import pod
from shardsdk.logs import logger_of
from shardsdk.process.health import Address
from shardsdk.protocol.names import before_port
from shardsdk.serving import require_webhooks
from shardsdk.serving.certificate_spec import ServingNames

if TYPE_CHECKING:
    from shardsdk.admission.webhook import Webhook
    from shardsdk.serving.published import CertificateSource, Published
    from shardsdk.serving.server import WebhookServer

log: Final = logger_of(__name__)

#: How long a replica that is to end serves on while callers are told to go: endpoints take about this long to lose
#: an unready pod.
SERVE_ON_SECONDS: Final = 3.0
#: For taking configurations away, of `LEAVE_SECONDS`.
REMOVE_SECONDS: Final = 5.0
#: The same of a process that is ended at once, as when its lease is lost; of `CANCEL_SECONDS`.
REMOVE_AT_ONCE_SECONDS: Final = 1.0
#: By which people at a prompt say where webhooks are served.
FLAG: Final = "`--webhooks HOST:PORT`"


class WebhookService:
    """One replica's webhooks: `run` as a task of its process, `check_ready` among its checks.

    Certificates are kept in `namespace` (by default the pod's).  `render(namespace, client_config, name, bundle)`
    gives the configurations.
    """

    def __init__(
        self,
        operator: str,
        webhooks: Sequence[Webhook],
        serving: Serving,
        *,
        namespace: str | None,
        stopping: asyncio.Event,
        render: Callable[[str, dict[str, object], str, bytes | None], list[Manifest]],
        metrics: WebhookMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._operator = operator
        self._webhooks = webhooks
        self._serving = serving
        self._namespace = namespace or pod.namespace() or ("" if in_pod() else "default")
        self._stopping = stopping
        self._render = render
        self._clock = clock or SystemClock()
        self._metrics = metrics or WebhookMetrics()
        self._app = AdmissionApp(webhooks, metrics=self._metrics, clock=self._clock)
        self._published: Published | None = None

    def check_ready(self) -> str | None:
        """Why API servers cannot call yet; `None`: they can."""
        published = self._published
        if not self._serving.served:
            return None
        if published is not None and published.pair is not None:
            return None
        return (published.failure if published is not None else None) or "no serving certificate yet"

    async def run(self, api: Api) -> None:
        """Serve until the process is to end, and what has begun then; cancelled, close everything at once.

        Configurations that it has made are taken away first, whatever ends it.

        Raises: ConfigurationError when the port cannot be listened on, the extra `webhooks` is not installed, or
        nobody knows the namespace.
        """
        if not self._serving.served:
            log.warning(
                "Webhooks are not served: outside of a pod they need an address by which API servers reach this"
                " process; pass --webhooks HOST:PORT"
            )
            return
        self._check()
        source = self._find_certificates(api)
        self._published = source.published
        self._published.on_change(self._tell_expiry)
        server = self._bind(source)
        registration = Registration(
            api,
            source.published,
            lambda bundle: self._configurations(server.port, bundle),
            installs=self._serving.install,
            identity=f"{pod.hostname()}_{os.getpid()}",
            clock=self._clock,
        )
        background = [asyncio.create_task(source.run(), name="webhook certificates")]
        background.append(asyncio.create_task(server.run(), name="webhook server"))
        registering = asyncio.create_task(registration.run(), name="webhook configurations")
        stopping = asyncio.create_task(self._stopping.wait())
        log.info("Serving webhooks", extra={"port": server.port})
        try:
            done, _ = await asyncio.wait([*background, registering, stopping], return_when=asyncio.FIRST_COMPLETED)
            for each in done - {stopping}:
                await each
            await _end([registering])
            await self._unregister(registration, REMOVE_SECONDS)
            await server.stop_gracefully(SERVE_ON_SECONDS if not self._serving.install else 0.0)
        except BaseException:
            await _end([registering])
            await self._unregister(registration, REMOVE_AT_ONCE_SECONDS)
            raise
        finally:
            await _end([stopping, registering, *background])
            server.close()

    def _check(self) -> None:
        require_webhooks()
        if not self._namespace:
            raise ConfigurationError(
                "webhooks keep their certificates in the pod's namespace, which is not known: set POD_NAMESPACE by the"
                " downward API"
            )

    async def _unregister(self, registration: Registration, seconds: float) -> None:
        try:
            # Not asyncio.timeout: where 3.11 is old, that raises no TimeoutError in a task that is being cancelled.
            await asyncio.wait_for(registration.remove(), seconds)
        except (ShardingError, TimeoutError) as error:
            name = self._configuration_name()
            log.error(
                "Webhook configuration not removed; whoever it was asked for is refused until it is",
                extra={
                    "configuration": name,
                    "error": str(error) or "no answer in time",
                    "remedy": "kubectl delete --ignore-not-found"
                    f" validatingwebhookconfigurations,mutatingwebhookconfigurations {name}",
                },
            )

    def _tell_expiry(self) -> None:
        if self._published is not None and self._published.pair is not None:
            self._metrics.certificate_expires(self._published.pair.expires_at)

    # -- parts -------------------------------------------------------------------

    def _find_certificates(self, api: Api) -> CertificateSource:
        # What these import is not installed everywhere.
        from shardsdk.serving.certificate_watcher import Directory
        from shardsdk.serving.secretstore import SelfManaged
        from shardsdk.serving.short_lived import ShortLived
        from shardsdk.serving.x509_process import ask_apart

        serving = self._serving
        if directory := serving.certificates():
            return Directory(
                Path(directory), clock=self._clock, setting="cert_dir", ask=ask_apart,
                on_load=self._metrics.certificate_loaded,
            )  # fmt: skip
        if serving.install:
            return ShortLived(names=self._names(), clock=self._clock, lifetimes=serving.lifetimes, ask=ask_apart)
        return SelfManaged(
            api,
            namespace=self._namespace,
            name=secret_name(self._operator),
            labels=labels_of(self._operator),
            names=self._names(),
            clock=self._clock,
            lifetimes=serving.lifetimes,
            ask=ask_apart,
            on_load=self._metrics.certificate_loaded,
        )

    def _names(self) -> ServingNames:
        """Under which API servers call."""
        subject = f"{self._operator} webhooks"[:60]
        if self._serving.address:
            return ServingNames.of([split_address(self._serving.address)[0]], subject)
        return ServingNames.of_service(service_name(self._operator), self._namespace, subject)

    def _bind(self, source: CertificateSource) -> WebhookServer:
        from shardsdk.serving.server import SettingNames, WebhookServer

        server = WebhookServer(
            self._app,
            source.published,
            clock=self._clock,
            address=Address(self._serving.host, self._serving.port),
            settings=SettingNames(
                host=f"{FLAG} or Serving.host" if self._serving.address else "Serving.host",
                port=f"{FLAG} or Serving.port" if self._serving.address else "Serving.port",
            ),
            finish_seconds=answer_seconds(self._webhooks),
        )
        server.bind()
        return server

    def _configuration_name(self) -> str:
        return development_name(self._operator) if self._serving.install else self._operator

    def _configurations(self, port: int, bundle: bytes | None) -> list[Manifest]:
        client: dict[str, object] = {"service": {"name": service_name(self._operator), "namespace": self._namespace}}
        if self._serving.address:
            host, given = split_address(self._serving.address)
            client = {"url": f"https://{before_port(host)}:{given or port}"}
        return self._render(self._namespace, client, self._configuration_name(), bundle)


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel what still runs, and wait until it has ended; whoever it was for has seen how."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
