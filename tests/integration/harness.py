"""A stage for integration tests: real sharders, scripted shards, rings, on the shared control plane.

Sharders run in this process with everything that a replica has (webhook,
certificates, Events) under the ServiceAccount `sharder` with the rights of
rbac/sharder.yaml and the rings' roles; shards under one with those of
rbac/shard.yaml.  Only the test itself looks on as an administrator.

::

    async def test_…(stage: Stage) -> None:
        ring = await stage.ring()                       # secrets with configmaps, in the test's namespace
        one = await stage.shard(ring, "one")            # started; stage.shard(…, start=False) is not
        sharder = await stage.sharder()                 # webhook on; settings: see `replica_settings`
        await ring.in_force()                           # the webhook labels what is created
        places = await ring.create_families(10, {"one", "two"})   # as many for each
        await ring.in_place({"one"})                    # everything where it belongs, "one" alone being available
        await one.crash() / .release() / .restart() / .pause() / .resume()
        await sharder.stop() / .crash() / .webhook_off() / .webhook_on()
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from localcluster import AdminClient, ControlPlane
from localcluster.ports import reserve_port
from sharder.core.takeover import Limits
from sharder.core.webhookconfig import CERTIFICATES_SECRET
from sharder.replica import Replica, ReplicaSettings
from sharder.rings.deps import WebhookSettings
from sharder.telemetry import Telemetry
from sharder.webhook.account import OwnAccount
from sharder.webhook.app import build_app
from shardsdk.events.recorder import EventRecorder
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.health import Address
from shardsdk.serving.certificate_spec import ServingNames
from shardsdk.serving.secretstore import SelfManaged
from shardsdk.serving.server import WebhookServer
from tests.integration.rights import SYSTEM as SYSTEM
from tests.integration.rights import Rights
from tests.integration.scripted import Object, Script, ScriptedShard
from tests.integration.world import RINGS, SECRETS, TIMEOUT_SECONDS, WEBHOOKS, Family, Ring, group_and_plural

REPOSITORY: Final = Path(__file__).parents[2]
LOOPBACK: Final = "127.0.0.1"
_TYPES: Final = "apiextensions.k8s.io/v1/customresourcedefinitions"
_PLUGGED_SECONDS: Final = 3600.0


def replica_settings(lease_name: str, **changes: Any) -> ReplicaSettings:
    """A replica that lives fast, but keeps its lease on a busy machine; `changes` are fields of ReplicaSettings."""
    settings: dict[str, Any] = {
        "timings": LeaseTimings(lease_duration=12, renew_deadline=9, retry_period=1),
        "lease_name": lease_name,
        "staleness_seconds": 4.0,
        "settle_after_seconds": 1.0,
        "drain_alarm_seconds": 60.0,
        "takeover": Limits(
            min_hold_seconds=3.0, stall_seconds=5.0, retry_after_stall_seconds=1.0, return_after_seconds=0.5
        ),
    }
    return ReplicaSettings(**settings | changes)


@dataclass(slots=True)
class Plug:
    """The fence by which a crash takes the API server away from a replica, in the middle of whatever it does."""

    name: str = "plug"
    pulled: bool = False

    def remaining(self) -> float:
        return 0.0 if self.pulled else _PLUGGED_SECONDS


class Sharder:
    """One replica in this process; its webhook can be switched off and on.

    `port`: where the webhook is served; set before the start, it takes another's place.
    """

    def __init__(self, kubeconfig: Path, settings: ReplicaSettings, *, webhook: bool, clock: Clock, seed: int) -> None:
        self.settings = settings
        self.telemetry = Telemetry.create()
        self.outcomes: list[tuple[str, str]] = []
        self.failures: list[BaseException] = []
        self._kubeconfig = kubeconfig
        self._with_webhook = webhook
        self._clock = clock
        self._rng = Random(seed)
        self._plug = Plug()
        self._closed = False
        self._closing = contextlib.AsyncExitStack()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.port = 0

    async def start(self) -> None:
        """Start, and return when the caches are in; who leads shows later."""
        access = await load_access(str(self._kubeconfig), clock=self._clock)
        metrics = self.telemetry.metrics
        self.api = await self._closing.enter_async_context(
            Client(access, fence=self._plug, clock=self._clock, on_call=metrics.api_called)
        )
        self.recorder = EventRecorder(self.api, "sharder", self._clock, self._rng)
        webhook = await self._prepare_webhook() if self._with_webhook else None
        self.replica = Replica(
            self.api, self.settings, metrics=metrics, recorder=self.recorder,
            webhook=webhook, clock=self._clock, rng=self._rng,
        )  # fmt: skip
        if self._with_webhook:
            self.certificates.published.on_change(self.replica.webhook_changed)
            await self.webhook_on()
            self._run("account", self.account.run())
            self._run("certificates", self.certificates.run())
        self._run("events", self.recorder.run())
        self._run("replica", self.replica.run())
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self.replica.cache.ring_informer.synced.wait()
            await self.replica.cache.lease_informer.synced.wait()

    async def stop(self) -> None:
        """Stop in order: hand over, write the last Events.  One that has been stopped stays so."""
        if self._closed:
            return
        await self.webhook_off()
        await self._end("replica")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self.recorder.flush()
        await self._close()

    async def crash(self) -> None:
        """Be gone from one moment to the next: nothing is handed over, nothing more is written."""
        self._plug.pulled = True
        await self._close()

    async def webhook_off(self) -> None:
        """Stop serving the webhook; the API server finds nobody there."""
        await self._end("webhook")

    async def webhook_on(self) -> None:
        """Serve the webhook, always on the same port."""
        app = build_app(
            self.replica.cache.view, self.api, clock=self._clock, on_outcome=self._count,
            on_assigned=lambda ring, resource: self.telemetry.metrics.resource(ring, resource).assignments.inc(),
            on_not_served=self.replica.cache.resolve_again, account=lambda: self.account.name,
        )  # fmt: skip
        server = WebhookServer(
            app, self.certificates.published, clock=self._clock, address=Address(LOOPBACK, self.port)
        )
        server.bind()
        self.port = server.port
        self._run("webhook", server.run())

    def metric(self, name: str, **labels: str) -> float:
        """One value of /metrics; 0 for a series that is not there."""
        self.telemetry.metrics.prepare_scrape()
        return self.telemetry.registry.get_sample_value(f"controller_sharding_{name}", labels) or 0.0

    def writes(self) -> float:
        """Patches of every kind that this replica has sent."""
        families = self.telemetry.registry.collect()
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "controller_sharding_api_requests_total" and sample.labels.get("verb") == "patch"
        )

    async def _prepare_webhook(self) -> WebhookSettings:
        self.certificates = SelfManaged(
            self.api, namespace=SYSTEM, name=CERTIFICATES_SECRET, names=ServingNames.of([LOOPBACK]), clock=self._clock
        )  # fmt: skip
        await self.certificates.refresh()
        self._reserve_port()
        published = self.certificates.published
        client_config = {"url": f"https://{LOOPBACK}:{self.port}"}
        self.account = OwnAccount(self.api, self._clock, lambda: self.replica.webhook_changed())
        return WebhookSettings(
            client_config=client_config, annotations={}, ca_bundle=lambda: published.ca_bundle,
            account=lambda: self.account.name,
        )  # fmt: skip

    def _reserve_port(self) -> None:
        if self.port:
            return
        port = reserve_port()
        self._closing.callback(port.release)
        self.port = port.number

    def _count(self, ring: str, outcome: str, seconds: float) -> None:
        self.outcomes.append((ring, outcome))
        self.telemetry.metrics.webhook_answered(ring, outcome, seconds)

    def _run(self, name: str, work: Any) -> None:
        self._tasks[name] = asyncio.create_task(work, name=name)

    async def _end(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is None:
            return
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            self.failures.append(result)

    async def _close(self) -> None:
        self._closed = True
        for name in list(self._tasks):
            await self._end(name)
        await self._closing.aclose()
        if self.failures:
            raise self.failures[0]


@dataclass
class Stage:
    """Everything on one test's stage; `close` clears it."""

    plane: ControlPlane
    admin: AdminClient
    namespace: str
    rings: list[Ring] = field(default_factory=list)
    shards: list[ScriptedShard] = field(default_factory=list)
    sharders: list[Sharder] = field(default_factory=list)
    _closing: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _types: list[str] = field(default_factory=list)
    _shard_client: AdminClient | None = None

    def __post_init__(self) -> None:
        self._rights = Rights(self.admin, self.namespace)

    async def ring(
        self, *families: Family, name: str | None = None, grant: bool = True, shards_may: bool = True, **spec: Any
    ) -> Ring:
        """Create a ring (by default secrets with configmaps) over the test's namespace, with the rights it needs."""
        name = name or (self.namespace if not self.rings else f"{self.namespace}-{len(self.rings) + 1}")
        ring = Ring(self.admin, name, self.namespace, families or (SECRETS,))
        self.rings.append(ring)
        if grant:
            await self.grant(ring.name, ring.resources)
        if shards_may:
            await self._rights.grant_shards([family for each in self.rings for family in each.families])
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        body = {
            "apiVersion": "sharding.timebertt.dev/v1alpha1",
            "kind": "ClusterRing",
            "metadata": {"name": name},
            "spec": {"resources": [each.render() for each in ring.families], "namespaceSelector": selector, **spec},
        }
        await self.admin.create(RINGS, body)
        return ring

    async def sharder(
        self,
        *,
        webhook: bool = True,
        clock: Clock | None = None,
        start: bool = True,
        kubeconfig: Path | None = None,
        **changes: Any,
    ) -> Sharder:
        """A replica; all of one test share a lease unless told otherwise.  `changes` are fields of ReplicaSettings."""
        kubeconfig = kubeconfig or await self.plane.service_account_kubeconfig(SYSTEM, "sharder")
        settings = replica_settings(**{"lease_name": f"sharder-{self.namespace}", **changes})
        made = Sharder(kubeconfig, settings, webhook=webhook, clock=clock or SystemClock(), seed=len(self.sharders))
        self.sharders.append(made)
        if start:
            await made.start()
        return made

    async def shard(
        self,
        ring: Ring,
        name: str,
        *,
        start: bool = True,
        namespace: str | None = None,
        mains: Sequence[str] | None = None,
        script: Script | None = None,
    ) -> ScriptedShard:
        """A shard of `ring`, by default in the test's namespace and for all of the ring's main resources."""
        mains = mains or [family.main for family in ring.families]
        client = await self._client_of_shards()
        made = ScriptedShard(client, ring.name, ring.labels, namespace or self.namespace, name, mains, script)
        self.shards.append(made)
        if start:
            await made.start()
        return made

    async def install_type(self, kind: str, *, namespaced: bool = True) -> Family:
        """Have the API server serve a type of this test's own; it goes with the stage."""
        family = await self._serve_type(kind, f"{kind.lower()}s", namespaced=namespaced)
        self._types.append(_type_of(family))
        return family

    async def remake_type(self, family: Family, kind: str) -> Family:
        """Take a type away, with its objects, and make another one of its name, of this kind, as soon as that goes."""
        name, (_, plural) = _type_of(family), group_and_plural(family.main)
        await self.admin.delete(_TYPES, name)
        await self.admin.eventually(_TYPES, lambda types: all(each["metadata"]["name"] != name for each in types))
        remade = await self._serve_type(kind, plural, namespaced=family.namespaced)
        return replace(remade, controlled=family.controlled)

    async def _serve_type(self, kind: str, plural: str, *, namespaced: bool) -> Family:
        group = f"{self.namespace}.example.com"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        scope = "Namespaced" if namespaced else "Cluster"
        names = {"plural": plural, "singular": kind.lower(), "kind": kind}
        name = f"{plural}.{group}"
        spec = {"group": group, "scope": scope, "names": names, "versions": [version]}
        await self.admin.create(_TYPES, {"metadata": {"name": name}, "spec": spec})
        await self.admin.eventually(_TYPES, lambda types: _is_established(types, name))
        return Family(f"{group}/v1/{plural}", kind, namespaced=namespaced)

    async def grant(self, ring: str, resources: Iterable[str], *, verbs: Sequence[str] | None = None) -> None:
        """Let the sharder place `resources`, as `sharder rbac` says (or only with `verbs`); in force on return."""
        await self._rights.grant_sharder(ring, resources, verbs)

    async def close(self) -> None:
        """Stop everything and take it away; errors of what ran are raised."""
        stops = [*(shard.crash for shard in self.shards), *(sharder.stop for sharder in self.sharders)]
        errors = [error for stop in stops if (error := await _failure_of(stop))]
        for ring in self.rings:
            await self.admin.delete(WEBHOOKS, f"clusterring-{ring.name}")
            await self.admin.delete(RINGS, ring.name)
        for name in self._types:
            await self.admin.delete(_TYPES, name)
        await self._rights.withdraw()
        await self._closing.aclose()
        if errors:
            raise errors[0]

    async def _client_of_shards(self) -> AdminClient:
        """The API server as shards may use it; the class is only named after its usual user."""
        if self._shard_client is None:
            kubeconfig = await self.plane.service_account_kubeconfig(self.namespace, "shard")
            config = yaml.safe_load(kubeconfig.read_text())
            authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
            client = AdminClient(self.plane.url, authority, config["users"][0]["user"]["token"])
            self._shard_client = await self._closing.enter_async_context(client)
        return self._shard_client


async def _failure_of(stop: Callable[[], Awaitable[None]]) -> Exception | None:
    try:
        await stop()
    except Exception as error:
        return error
    return None


def _type_of(family: Family) -> str:
    """The name of its definition."""
    group, plural = group_and_plural(family.main)
    return f"{plural}.{group}"


def _is_established(types: list[Object], name: str) -> bool:
    return any(
        each["metadata"]["name"] == name and condition["type"] == "Established" and condition["status"] == "True"
        for each in types
        for condition in each.get("status", {}).get("conditions") or []
    )


@contextlib.asynccontextmanager
async def set_stage(plane: ControlPlane, admin: AdminClient, namespace: str) -> AsyncIterator[Stage]:
    """A stage in `namespace`, cleared afterwards."""
    stage = Stage(plane, admin, namespace)
    try:
        yield stage
    finally:
        await stage.close()
