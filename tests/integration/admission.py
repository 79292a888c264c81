"""The webhook in force on a real API server, without the controllers around it.

The ring is made as its user makes it, the webhook runs as the sharder's own
ServiceAccount, and the API server calls it by URL with the bundle of the
certificates that it made itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localcluster import AdminClient, ControlPlane
from localcluster.admin import path_of
from sharder.core.hashring import HashRing
from sharder.core.membership import Membership
from sharder.core.ringspec import parse_ring, resolve
from sharder.core.views import RingView
from sharder.core.webhookconfig import CERTIFICATES_SECRET, render_webhook, webhook_name
from sharder.webhook.app import Limits, build_app
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.process.health import Address
from shardsdk.protocol.labels import RingLabels, parse_ring_name
from shardsdk.protocol.objects import Resource
from shardsdk.serving.certificate_spec import Lifetimes, ServingNames
from shardsdk.serving.published import Published
from shardsdk.serving.secretstore import SelfManaged
from shardsdk.serving.server import WebhookServer

#: What has to be installed first: `crds` and `rbac` of the repository.
MANIFESTS = [Path(__file__).parents[2] / folder for folder in ("crds", "rbac")]
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
WEBHOOKS = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
RINGS = "sharding.timebertt.dev/v1alpha1/clusterrings"
SHARDS = frozenset({"shard-0", "shard-1", "shard-2"})
ACCOUNT = "system:serviceaccount:sharding-system:sharder"
NAMES = ServingNames.of(["127.0.0.1"])


def membership(shards: frozenset[str]) -> Membership:
    return Membership(available=shards, ready=shards, ring=HashRing(shards))


@dataclass
class Admission:
    """A ring over secrets (main) and configmaps (controlled) in one namespace, and the webhook that serves it."""

    admin: AdminClient
    namespace: str
    labels: RingLabels
    views: dict[str, RingView]
    server: WebhookServer
    published: Published
    config: dict[str, Any]
    outcomes: list[tuple[str, str]] = field(default_factory=list)

    async def create(self, resource: str = "v1/secrets", *, dry_run: bool = False, **metadata: Any) -> dict[str, Any]:
        query = {"dryRun": "All"} if dry_run else {}
        path = path_of(resource, metadata.pop("namespace", self.namespace))
        made: dict[str, Any] = await self.admin.request("POST", path, body={"metadata": metadata}, query=query)
        return made

    async def create_on(self, shard: str, resource: str = "v1/secrets", **metadata: Any) -> dict[str, Any]:
        """Make an object that some shard has, wherever it belongs."""
        labels = {self.labels.shard: shard, **metadata.pop("labels", {})}
        with self.behind():
            return await self.create(resource, labels=labels, **metadata)

    @contextmanager
    def behind(self) -> Iterator[None]:
        """The webhook's replica is behind: what is made with a shard label keeps it."""
        view = self.views[self.namespace]
        self.views[self.namespace] = replace(view, stale=True)
        try:
            yield
        finally:
            self.views[self.namespace] = view

    def shard_of(self, made: dict[str, Any]) -> str | None:
        shard: str | None = (made["metadata"].get("labels") or {}).get(self.labels.shard)
        return shard

    def desired(self, name: str) -> str | None:
        return self.views[self.namespace].membership.target(f"/Secret/{self.namespace}/{name}")

    async def apply_config(self) -> None:
        """Write the webhook configuration with the bundle of now, and wait until the API server calls by it."""
        view = self.views[self.namespace]
        client_config = {"url": f"https://127.0.0.1:{self.server.port}"}
        self.config = render_webhook(
            view.resolved, client_config=client_config, ca_bundle=self.published.ca_bundle, account=ACCOUNT
        )
        if await self.admin.find(WEBHOOKS, webhook_name(self.namespace)) is None:
            await self.admin.create(WEBHOOKS, self.config)
        else:
            await self.admin.patch(WEBHOOKS, webhook_name(self.namespace), self.config)

    async def in_force(self) -> None:
        """Return once a created object comes back labelled."""
        async with asyncio.timeout(120):
            while self.shard_of(await self.create(dry_run=True, name="probe")) is None:
                await asyncio.sleep(0.02)


def _ring_of(namespace: str, alone: Sequence[Resource]) -> dict[str, Any]:
    """A ring over the namespace, with secrets that control configmaps."""
    return {
        "metadata": {"name": namespace},
        "kind": "ClusterRing",
        "apiVersion": "sharding.timebertt.dev/v1alpha1",
        "spec": {
            "resources": [
                {"resource": "secrets", "controlledResources": [{"resource": "configmaps"}]},
                *({"group": each.group, "resource": each.plural} for each in alone),
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        },
    }


@asynccontextmanager
async def webhook_in_force(
    plane: ControlPlane,
    admin: AdminClient,
    namespace: str,
    *,
    limits: Limits | None = None,
    certificates_clock: Clock | None = None,
    lifetimes: Lifetimes | None = None,
    refresh: Callable[[SelfManaged], None] = lambda source: None,
    server_clock: Clock | None = None,
    alone: Sequence[Resource] = (),
) -> AsyncIterator[Admission]:
    """`alone`: further main resources, which control nothing."""
    ring = await admin.create(RINGS, _ring_of(namespace, alone))
    served = {each.group_resource: each for each in (SECRETS, CONFIGMAPS, *alone)}
    resolved, missing = resolve(parse_ring(ring), served)
    assert not missing
    views = {namespace: RingView(resolved, membership(SHARDS))}
    kubeconfig = await plane.service_account_kubeconfig("sharding-system", "sharder")
    async with Client(await load_access(str(kubeconfig))) as api:
        source = SelfManaged(
            api,
            namespace="sharding-system",
            name=CERTIFICATES_SECRET,
            names=NAMES,
            clock=certificates_clock or SystemClock(),
            lifetimes=lifetimes,
        )
        await source.refresh()
        refresh(source)
        outcomes: list[tuple[str, str]] = []
        app = build_app(
            views.get,
            api,
            clock=SystemClock(),
            on_outcome=lambda name, outcome, seconds: outcomes.append((name, outcome)),
            limits=limits,
            account=lambda: ACCOUNT,
        )
        server = WebhookServer(
            app,
            source.published,
            clock=server_clock or SystemClock(),
            address=Address("127.0.0.1", 0),
        )
        server.bind()
        running = asyncio.create_task(server.run())
        admission = Admission(
            admin, namespace, parse_ring_name(namespace), views, server, source.published, {}, outcomes
        )
        try:
            await admission.apply_config()
            await admission.in_force()
            yield admission
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            server.close()
            await admin.delete(WEBHOOKS, webhook_name(namespace))
            await admin.delete(RINGS, namespace)
