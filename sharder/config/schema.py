"""`SharderConfig`: every setting of the sharder, its default and what it is for.

Each section is a frozen dataclass that code can also make itself
(`SharderConfig(metrics=MetricsEndpoint(...))`); in a file its fields go by their
aliases.  The descriptions are printed as the reference in docs.  *Ours* marks
what the Go sharder's schema does not have.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from sharder.config import fields
from sharder.config.fields import BindAddress, OrDefault
from sharder.core.webhookconfig import WEBHOOK_TIMEOUT_SECONDS
from shardsdk.protocol.labels import SHARDER_SERVICE_ACCOUNT, SYSTEM_NAMESPACE

#: Objects that one ring moves at the same time.  Source: Go sharder v0.8.
CONCURRENT_MOVES: Final = 100
#: More moves at once than this only queue up at the API server.
MAX_CONCURRENT_MOVES: Final = 10_000
#: Port of the webhook server.  Source: controller-runtime, webhook.DefaultPort.
WEBHOOK_PORT: Final = 9443

_SECTION: Final = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)


@dataclass(frozen=True, slots=True, config=_SECTION)
class ClientConnection:
    """How the sharder talks to the API server."""

    kubeconfig: Annotated[
        fields.Text, Field(description="No effect, as in the Go sharder: use `--kubeconfig` or $KUBECONFIG.")
    ] = ""
    accept_content_types: Annotated[
        fields.Text, Field(alias="acceptContentTypes", description="No effect: answers are JSON.")
    ] = ""
    content_type: Annotated[fields.Text, Field(alias="contentType", description="No effect: requests are JSON.")] = ""
    qps: Annotated[
        fields.Number,
        Field(
            description="Requests per second at most, those about Leases aside, which never wait; 0 or less: no limit,"
            " the API server's own fairness governs."
        ),
    ] = 0.0
    burst: Annotated[
        fields.Count, Field(description="Requests that may go out at once when `qps` is set; 0: as many as `qps`.")
    ] = 0


@dataclass(frozen=True, slots=True, config=_SECTION)
class LeaderElection:
    """Which replica runs the controllers; every replica serves the webhook."""

    leader_elect: Annotated[
        fields.Switch,
        Field(
            alias="leaderElect",
            description="No effect when false: the leader's lease is also what proves that the API server takes"
            " writes, so a single replica holds it as well.",
        ),
    ] = True
    resource_lock: Annotated[
        str,
        fields.one_of("leases"),
        Field(alias="resourceLock", description="Kind of the lock; leases are the only one."),
    ] = "leases"
    lease_duration_seconds: Annotated[
        float,
        fields.duration_or_default(1.0, whole=True),
        Field(
            alias="leaseDuration",
            description="How long other replicas wait for a leader that no longer renews.",
        ),
    ] = 15.0
    renew_deadline_seconds: Annotated[
        float,
        fields.duration_or_default(0.1),
        Field(alias="renewDeadline", description="A leader that could not renew for this long stops leading."),
    ] = 10.0
    retry_period_seconds: Annotated[
        float,
        fields.duration_or_default(0.05),
        Field(alias="retryPeriod", description="How often the lease is renewed, or tried for."),
    ] = 2.0
    resource_name: Annotated[
        fields.ObjectName, Field(alias="resourceName", description="Name of the leader's lease.")
    ] = "sharder"
    resource_namespace: Annotated[
        fields.Namespace,
        Field(alias="resourceNamespace", description="Namespace of the leader's lease and of the sharder's Secret."),
    ] = SYSTEM_NAMESPACE


@dataclass(frozen=True, slots=True, config=_SECTION)
class Debugging:
    """Settings of the Go profiler, accepted for the sake of existing files."""

    enable_profiling: Annotated[
        fields.Switch, Field(alias="enableProfiling", description="No effect: there is no Go profiler here.")
    ] = False
    enable_contention_profiling: Annotated[
        fields.Switch, Field(alias="enableContentionProfiling", description="No effect: there is no Go profiler here.")
    ] = False


@dataclass(frozen=True, slots=True, config=_SECTION)
class HealthEndpoint:
    """Plain HTTP server for probes."""

    bind_address: Annotated[
        fields.Address,
        Field(
            alias="bindAddress",
            description='Where /healthz and /readyz are served: `:8081`, `127.0.0.1:8081`; `"0"`: not at all.',
        ),
    ] = BindAddress(port=8081)


@dataclass(frozen=True, slots=True, config=_SECTION)
class MetricsEndpoint:
    """Server for metrics: plain HTTP, or HTTPS for those whom the API server lets read them."""

    bind_address: Annotated[
        fields.Address,
        Field(
            alias="bindAddress",
            description='Where /metrics is served: `:8080`, `127.0.0.1:8080`; `"0"`: not at all.',
        ),
    ] = BindAddress(port=8080)
    secure: Annotated[
        fields.Switch,
        Field(
            description="*Ours.* Whether /metrics is served over HTTPS, with the webhook's certificate, and only to"
            " those whose token the API server knows (TokenReview) and lets `get` the nonResourceURL `/metrics`"
            " (SubjectAccessReview).",
        ),
    ] = False


@dataclass(frozen=True, slots=True, config=_SECTION)
class SharderController:
    """How objects are placed, drained and moved."""

    sync_period_seconds: Annotated[
        float,
        fields.duration(0.0),
        Field(
            alias="syncPeriod",
            description="How often every object of a ring is looked at again, whether or not anything"
            " changed; `0s`: never, so that what is on another available shard than its own, or was labelled by hand,"
            " stays there until shards or the ring change.",
        ),
    ] = 300.0
    concurrent_moves: Annotated[
        fields.Count,
        Field(
            alias="concurrentMoves",
            ge=1,
            le=MAX_CONCURRENT_MOVES,
            description="Objects (with their controlled objects) of one ring that move or drain at the same time,"
            " at most; fewer while moves take long.",
        ),
    ] = CONCURRENT_MOVES
    webhook_staleness_seconds: Annotated[
        fields.Number,
        Field(
            alias="webhookStalenessSeconds",
            ge=0.5,
            le=3600,
            description="*Ours.* A replica that has heard nothing of leases or rings for this long assigns"
            " nothing in its webhook; the leader's watch places those objects.",
        ),
    ] = 10.0


@dataclass(frozen=True, slots=True, config=_SECTION)
class Controller:
    """Settings of the controllers that the leader runs."""

    sharder: Annotated[
        SharderController, OrDefault, Field(description="How objects are placed, drained and moved.")
    ] = field(default_factory=SharderController)


@dataclass(frozen=True, slots=True, config=_SECTION)
class WebhookServer:
    """The HTTPS server that the API server calls."""

    host: Annotated[fields.Host, Field(description="*Ours.* Interface to listen on; empty: every one.")] = ""
    port: Annotated[
        fields.Count, Field(ge=0, le=fields.MAX_PORT, description="Port to listen on; 0: any free one, for tests.")
    ] = WEBHOOK_PORT
    cert_dir: Annotated[
        fields.Text,
        Field(
            alias="certDir",
            description="Directory with the serving certificate and its key, read again when they change."
            " Unset: `k8s-webhook-server/serving-certs` in the temporary folder if it holds a pair, else the"
            " sharder makes its own certificates and keeps them in a Secret.",
        ),
    ] = ""
    cert_name: Annotated[
        fields.Text, Field(alias="certName", description="File name of the certificate in that directory.")
    ] = "tls.crt"
    key_name: Annotated[fields.Text, Field(alias="keyName", description="File name of the key in that directory.")] = (
        "tls.key"
    )


@dataclass(frozen=True, slots=True, config=_SECTION)
class ServiceReference:
    """The Service in front of the sharder's replicas."""

    namespace: Annotated[fields.Namespace, Field(description="Namespace of the Service.")] = SYSTEM_NAMESPACE
    name: Annotated[fields.ServiceName, Field(description="Name of the Service.")] = SHARDER_SERVICE_ACCOUNT
    port: Annotated[fields.Count, Field(ge=1, le=fields.MAX_PORT, description="Port of the Service.")] = 443
    path: Annotated[
        fields.UrlPath, Field(description="Path in front of the webhook's own, for a proxy; unset: none.")
    ] = None


@dataclass(frozen=True, slots=True, config=_SECTION)
class WebhookClientConfig:
    """How the API server reaches the webhook: by Service unless a URL is given."""

    url: Annotated[
        fields.Url,
        Field(description="Base URL, for a sharder outside the cluster; the ring's path is appended."),
    ] = None
    service: Annotated[
        ServiceReference | None, Field(description="The Service in front of the sharder; the default.")
    ] = None
    ca_bundle: Annotated[
        fields.CaBundle,
        Field(
            alias="caBundle",
            description="Base64 of the PEM CA certificates that the API server must trust. Unset: the"
            " sharder's own CA, or none when certificates come from a directory.",
        ),
    ] = None

    def render(self) -> dict[str, Any]:
        """`clientConfig` as a webhook configuration has it, without the ring's path and the CA."""
        if self.url is not None:
            return {"url": self.url}
        service = self.service or ServiceReference()
        rendered: dict[str, Any] = {"namespace": service.namespace, "name": service.name, "port": service.port}
        return {"service": rendered | ({"path": service.path} if service.path else {})}


@dataclass(frozen=True, slots=True, config=_SECTION)
class WebhookConfig:
    """What goes into each ring's MutatingWebhookConfiguration."""

    annotations: Annotated[
        fields.Annotations,
        Field(description="Annotations added to every webhook configuration, such as cert-manager's."),
    ] = field(default_factory=dict)
    client_config: Annotated[
        WebhookClientConfig,
        OrDefault,
        Field(alias="clientConfig", description="How the API server reaches the webhook."),
    ] = field(default_factory=WebhookClientConfig)
    namespace_selector: Annotated[
        fields.NamespaceSelector,
        Field(
            alias="namespaceSelector",
            description="LabelSelector for the namespaces of rings that have none of their own. Unset: all"
            " but kube-system and sharding-system. Rings with assignment Ranges take one by names alone.",
        ),
    ] = None
    timeout_seconds: Annotated[
        fields.Count,
        Field(
            alias="timeoutSeconds",
            ge=1,
            le=30,
            description="*Ours.* How long the API server waits for an answer before the object passes without its"
            " label. The waits of several rings over one resource add up.",
        ),
    ] = WEBHOOK_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True, config=_SECTION)
class Webhook:
    """The webhook that places objects while they are written."""

    enabled: Annotated[
        fields.Switch,
        Field(
            description="*Ours.* Off: no webhook server and no webhook configurations; the leader's watches"
            " place objects, about a second after they were written."
        ),
    ] = True
    server: Annotated[WebhookServer, OrDefault, Field(description="The HTTPS server that the API server calls.")] = (
        field(default_factory=WebhookServer)
    )
    config: Annotated[
        WebhookConfig, OrDefault, Field(description="What goes into each MutatingWebhookConfiguration.")
    ] = field(default_factory=WebhookConfig)


@dataclass(frozen=True, slots=True, config=_SECTION)
class SharderConfig:
    """Everything that can be set; a file may leave out all of it."""

    client_connection: Annotated[
        ClientConnection,
        OrDefault,
        Field(alias="clientConnection", description="How the sharder talks to the API server."),
    ] = field(default_factory=ClientConnection)
    leader_election: Annotated[
        LeaderElection, OrDefault, Field(alias="leaderElection", description="Which replica runs the controllers.")
    ] = field(default_factory=LeaderElection)
    debugging: Annotated[Debugging, OrDefault, Field(description="Settings of the Go profiler; no effect here.")] = (
        field(default_factory=Debugging)
    )
    health: Annotated[HealthEndpoint, OrDefault, Field(description="Server for /healthz and /readyz.")] = field(
        default_factory=HealthEndpoint
    )
    metrics: Annotated[MetricsEndpoint, OrDefault, Field(description="Server for /metrics.")] = field(
        default_factory=MetricsEndpoint
    )
    controller: Annotated[
        Controller, OrDefault, Field(description="Settings of the controllers that the leader runs.")
    ] = field(default_factory=Controller)
    webhook: Annotated[
        Webhook, OrDefault, Field(description="The webhook that places objects while they are written.")
    ] = field(default_factory=Webhook)
    graceful_shutdown_seconds: Annotated[
        float,
        fields.duration(None),
        Field(
            alias="gracefulShutDown",
            description="Time for an orderly stop; `0s`: none, negative: as long as it takes.",
        ),
    ] = 15.0

    @property
    def graceful_shutdown_limit(self) -> float | None:
        """Seconds that an orderly stop may take; `None`: as long as it takes."""
        return self.graceful_shutdown_seconds if self.graceful_shutdown_seconds >= 0 else None
