"""An operator's webhooks in force on a real API server: under its own rights, behind something like a Service."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from localcluster import AdminClient, AdminError, ControlPlane
from shardsdk import CustomResource, Model, Operator
from shardsdk.admission import Denied, Operation, Review, Serving
from shardsdk.admission.configuration import RESOURCES, secret_name
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.process.world import load_world
from shardsdk.protocol.objects import Resource
from shardsdk.rbac import account_with
from shardsdk.serving.certificate_spec import Lifetimes
from tests.ports import free_port

LOOPBACK = "127.0.0.1"


class PageSpec(Model):
    html: str
    replicas: int = 0


class Page(CustomResource[PageSpec], group="admission.example.com", version="v1"):
    """A page."""


PAGES = "admission.example.com/v1/pages"


@dataclass
class Seen:
    """What an operator's validating function was asked: operation, name, dry run."""

    asked: list[tuple[str, str, bool]] = field(default_factory=list)


def pages(name: str, namespace: str, seen: Seen, **options: Any) -> Operator:
    """Fills in replicas, refuses pages without content, and fails at pages that say so."""
    operator = Operator(name, watch_namespace=namespace, **options)

    @operator.mutate(Page)
    def fill_in(review: Review[Page]) -> None:
        review.object.spec.replicas = review.object.spec.replicas or 2

    @operator.validate(Page, on=["create", "update", "delete"])
    async def check(review: Review[Page]) -> str | None:
        seen.asked.append((review.operation.value, review.name, review.dry_run))
        if review.operation is Operation.DELETE and review.name == "kept":
            raise Denied("it is kept")
        if not review.object.spec.html:
            raise Denied("is empty", field="spec.html")
        if review.object.spec.html == "bug":
            raise RuntimeError("no such page")
        return "it is short" if len(review.object.spec.html) < 2 else None

    return operator


def body(name: str, html: str = "<h1>", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission.example.com/v1",
        "kind": "Page",
        "metadata": {"name": name, **metadata},
        "spec": {"html": html},
    }


class Balancer:
    """A port that hands connections on to one of `backends`, as a Service does to its ready pods."""

    def __init__(self) -> None:
        self.backends: list[int] = []
        self._turn = 0
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self._turn += 1
        try:
            port = self.backends[self._turn % len(self.backends)]
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, port)
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        except (OSError, ZeroDivisionError):
            writer.close()
        finally:
            self._open.discard(task)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@dataclass
class Replica:
    """A process of the operator's; `port` is where its webhooks are."""

    manager: Manager
    port: int
    running: asyncio.Task[ExitCode]

    def stop(self) -> asyncio.Task[ExitCode]:
        """Tell it to end, as SIGTERM does."""
        self.manager.stopping.set()
        return self.running


@dataclass
class InForce:
    """An operator in a namespace, with its configurations applied."""

    plane: ControlPlane
    admin: AdminClient
    namespace: str
    operator: Operator
    balancer: Balancer
    kubeconfig: str
    lifetimes: Lifetimes | None = None
    replicas: list[Replica] = field(default_factory=list)

    async def start(self) -> Replica:
        """One more replica, which answers calls once this returns."""
        serving = Serving(host=LOOPBACK, port=free_port(), address=LOOPBACK, installs=False, lifetimes=self.lifetimes)
        manager = self.operator.manager(webhooks=serving, namespace=self.namespace, kubeconfig=self.kubeconfig)
        running = await run(manager, self.kubeconfig)
        made = Replica(manager, serving.port, running)
        self.replicas.append(made)
        await until_ready(serving.port, running)
        self.balancer.backends.append(serving.port)
        return made

    async def create(self, name: str, html: str = "<h1>", *, dry_run: bool = False) -> dict[str, Any]:
        query = {"dryRun": "All"} if dry_run else {}
        made: dict[str, Any] = await self.admin.request("POST", self.path, body=body(name, html), query=query)
        return made

    @property
    def path(self) -> str:
        return f"/apis/admission.example.com/v1/namespaces/{self.namespace}/pages"

    async def in_force(self) -> None:
        """Return once a created object comes back changed."""
        async with asyncio.timeout(60):
            while True:
                with suppress(AdminError):
                    if (await self.create("probe", dry_run=True))["spec"].get("replicas") == 2:
                        return
                await asyncio.sleep(0.05)


async def run(manager: Manager, kubeconfig: str) -> asyncio.Task[ExitCode]:
    world = replace(await load_world(kubeconfig, None, manager.metrics), serve=False, signals=False)
    return asyncio.create_task(manager.run_async(world))


async def until_ready(port: int, running: asyncio.Task[Any]) -> None:
    """Return once handshakes succeed: a Service calls no pod before."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(60):
        while not running.done():
            with suppress(OSError):
                _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
                writer.close()
                return
            await asyncio.sleep(0.02)
    raise AssertionError(f"the operator has ended: {running.result()!r}")


async def apply(plane: ControlPlane, manifests: Sequence[dict[str, Any]]) -> None:
    await plane.kubectl("apply", "--server-side", "-f-", stdin="\n---\n".join(map(json.dumps, manifests)))


async def granted_kubeconfig(plane: ControlPlane, namespace: str, operator: Operator, serving: Serving) -> str:
    """Of an account that may do what the operator says it needs when it serves its webhooks so."""
    granted = operator.permissions(webhooks=serving)
    access = account_with(
        namespace, operator.name, own=granted.own, objects=granted.objects, cluster=granted.cluster,
        namespaces=[namespace],
    )  # fmt: skip
    await apply(plane, access)
    return str(await plane.service_account_kubeconfig(namespace, operator.name))


@asynccontextmanager
async def webhooks_in_force(
    plane: ControlPlane,
    admin: AdminClient,
    namespace: str,
    operator: Operator,
    *,
    replicas: int = 1,
    lifetimes: Lifetimes | None = None,
) -> AsyncIterator[InForce]:
    """The operator's replicas under rights that it says it needs, called by URL; everything is gone afterwards."""
    kubeconfig = await granted_kubeconfig(plane, namespace, operator, Serving())
    balancer = Balancer()
    async with balancer.listening() as port:
        url = {"url": f"https://{LOOPBACK}:{port}"}
        configurations = operator.webhook_configurations(namespace, client_config=url)
        await apply(plane, configurations)
        made = InForce(plane, admin, namespace, operator, balancer, kubeconfig, lifetimes)
        try:
            for _ in range(replicas):
                await made.start()
            if replicas:
                await made.in_force()
            yield made
        finally:
            for each in configurations:
                await admin.delete(_named(RESOURCES_BY_KIND[each["kind"]]), each["metadata"]["name"])
            for replica in made.replicas:
                replica.running.cancel()
            await asyncio.gather(*(each.running for each in made.replicas), return_exceptions=True)
            await admin.delete("v1/secrets", secret_name(operator.name), namespace)


RESOURCES_BY_KIND: dict[str, Resource] = {each.kind: each for each in RESOURCES.values()}


def _named(resource: Resource) -> str:
    return f"{resource.api_version}/{resource.plural}"
