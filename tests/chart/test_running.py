"""The sharder run as the chart's pods run it: its rendered configuration, its ServiceAccount, its roles.

Without a node there is no Service to route, so the webhook is called by URL; tests/node has it with real pods.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from localcluster import AdminClient, AdminError
from localcluster.ports import LOOPBACK
from shardsdk.protocol.labels import LEASE_RING_LABEL, parse_ring_name
from shardsdk.protocol.leases import render_micro_time
from shardsdk.serving.certificate_spec import ServingNames
from shardsdk.serving.renewal import AUTHORITY_KEY_KEY, BUNDLE_KEY, CERTIFICATE_KEY, PRIVATE_KEY_KEY, parse_stored
from shardsdk.serving.x509 import Issued, issue, make_authority
from tests.chart.helm import NAMESPACE, merge
from tests.chart.identities import account_token, allow, client_of, make_account, make_pod
from tests.chart.releases import (
    CONFIG_RING,
    CONFIGMAPS,
    LEASES,
    RINGS,
    SECRETS,
    WEBHOOKS,
    Cluster,
    free_ports,
    ring_is,
    running,
)

RING = parse_ring_name("one")
VALUES = {"rings": {"one": CONFIG_RING}, "crds": {"upgrade": False}}
#: For a machine that is busy with other things: the sharder looks at its Secret every ten seconds.
PATIENCE_SECONDS = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


# -- shards by hand -------------------------------------------------------------------


@asynccontextmanager
async def shards(api: AdminClient, namespace: str) -> AsyncIterator[Callable[[str], Coroutine[Any, Any, None]]]:
    """Yields what starts a shard of that name; it holds its lease, and renews it."""

    def lease(name: str) -> dict[str, Any]:
        now = render_micro_time(datetime.now(UTC))
        spec = {"holderIdentity": name, "leaseDurationSeconds": 60, "acquireTime": now, "renewTime": now}
        return {"metadata": {"name": name, "labels": {LEASE_RING_LABEL: "one"}}, "spec": spec}

    async def renew(name: str) -> None:
        while True:
            await asyncio.sleep(2)
            await api.patch(LEASES, name, lease(name), namespace)

    async def start(name: str) -> None:
        await api.create(LEASES, lease(name), namespace)
        tasks.append(asyncio.create_task(renew(name)))

    tasks: list[asyncio.Task[None]] = []
    try:
        yield start
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def some_namespace(api: AdminClient) -> AsyncIterator[str]:
    made = await api.create("v1/namespaces", {"metadata": {"generateName": "running-"}})
    try:
        yield made["metadata"]["name"]
    finally:
        await api.delete("v1/namespaces", made["metadata"]["name"])


# -- load --------------------------------------------------------------------------------


@dataclass(slots=True)
class Load:
    """Writers that create objects one after the other; `missed` came back without a shard: nobody answered."""

    api: AdminClient
    namespace: str
    answered: int = 0
    missed: list[str] = field(default_factory=list)

    async def write(self) -> None:
        while True:
            made = await self.api.create(CONFIGMAPS, {"metadata": {"name": f"c-{uuid.uuid4()}"}}, self.namespace)
            if RING.shard in (made["metadata"].get("labels") or {}):
                self.answered += 1
            else:
                self.missed.append(made["metadata"]["name"])
            await asyncio.sleep(0.005)


@asynccontextmanager
async def load(api: AdminClient, namespace: str, writers: int = 4) -> AsyncIterator[Load]:
    made = Load(api, namespace)
    tasks = [asyncio.create_task(made.write()) for _ in range(writers)]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.1)


async def in_use(api: AdminClient, namespace: str) -> None:
    """Return once the API server calls the webhook and it has a shard to name."""
    await api.eventually(RINGS, ring_is("Ready"))

    async def answers() -> bool:
        made = await api.create(CONFIGMAPS, {"metadata": {"name": f"probe-{uuid.uuid4()}"}}, namespace)
        return RING.shard in (made["metadata"].get("labels") or {})

    await until(answers)


async def served(port: int) -> x509.Certificate:
    """The certificate that new connections see."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der)
    finally:
        writer.transport.abort()


# -- tests -------------------------------------------------------------------------------


async def test_its_own_certificates_are_renewed_while_it_is_called(cluster: Cluster, api: AdminClient) -> None:
    """Both are past two thirds of their lives: a new authority joins the bundle, a new pair serves, nobody notices."""
    with free_ports() as ports:
        await cluster.install("--no-hooks", values=merge(ports.values(), VALUES))
        old = await store_aged(api)
        async with (
            some_namespace(api) as namespace,
            shards(api, namespace) as start,
            running(cluster, ports),
        ):
            await start("shard-a")
            await until(lambda: trusts(api, 2))
            await in_use(api, namespace)
            async with load(api, namespace) as writing:

                async def renewed() -> bool:
                    return (await served(ports.webhook)).serial_number != old and writing.answered > 100

                await until(renewed)
                signed = await store_signed_by_the_new(api)

                async def signed_anew() -> bool:
                    return (await served(ports.webhook)).serial_number == signed

                await until(signed_anew)
                enough = writing.answered + 100

                async def went_on() -> bool:
                    return writing.answered > enough

                await until(went_on)
            assert writing.missed == []


async def store_aged(api: AdminClient) -> int:
    """A Secret as a release of eight months ago would have left it; returns the serial number that is served."""
    made_at = datetime.now(UTC) - timedelta(days=250)
    authority = make_authority(made_at, timedelta(days=365))
    serving = issue(authority, ServingNames.of([LOOPBACK]), datetime.now(UTC) - timedelta(days=70), timedelta(days=90))
    await store(api, [authority], authority.key, serving)
    return serial(serving)


async def store(api: AdminClient, authorities: list[Issued], key: bytes, serving: Issued) -> None:
    data = {
        BUNDLE_KEY: b"".join(each.certificate.pem for each in authorities),
        AUTHORITY_KEY_KEY: key,
        CERTIFICATE_KEY: serving.certificate.pem,
        PRIVATE_KEY_KEY: serving.key,
    }
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    await api.create(SECRETS, {"metadata": {"name": "sharder-webhook-certificates"}, "data": encoded}, NAMESPACE)


async def store_signed_by_the_new(api: AdminClient) -> int:
    """What a replica does a day later, once the new authority is trusted everywhere: let it sign."""
    name = "sharder-webhook-certificates"
    data = {key: base64.b64decode(value) for key, value in (await api.get(SECRETS, name, NAMESPACE))["data"].items()}
    stored = parse_stored(data)
    serving = issue(stored.newest, ServingNames.of([LOOPBACK]), datetime.now(UTC), timedelta(days=90))
    pair = {CERTIFICATE_KEY: serving.certificate.pem, PRIVATE_KEY_KEY: serving.key}
    encoded = {key: base64.b64encode(value).decode() for key, value in pair.items()}
    await api.patch(SECRETS, name, {"data": encoded}, NAMESPACE)
    return serial(serving)


def serial(issued: Issued) -> int:
    return x509.load_pem_x509_certificate(issued.certificate.pem).serial_number


async def trusts(api: AdminClient, authorities: int) -> bool:
    """Whether the ring's webhook configuration trusts so many authorities."""
    for each in await api.list(WEBHOOKS):
        for webhook in each["webhooks"]:
            bundle = base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
            return bundle.count(b"BEGIN CERTIFICATE") == authorities
    return False


async def test_certificates_from_a_secret_are_reloaded_while_it_is_called(
    cluster: Cluster, api: AdminClient, tmp_path: Path
) -> None:
    """As a kubelet updates a mounted Secret when cert-manager has renewed it."""
    authority = make_authority(datetime.now(UTC), timedelta(days=365))
    tls = tmp_path / "tls"
    mount(tls, authority)
    bundle = base64.b64encode(authority.certificate.pem).decode()
    secret = {"certificates": {"source": "secret", "secret": {"name": "mine", "caBundle": bundle}}}
    with free_ports() as ports:
        await cluster.install("--no-hooks", values=merge(ports.values(), VALUES, secret))
        async with (
            some_namespace(api) as namespace,
            shards(api, namespace) as start,
            running(cluster, ports, mount=lambda config: config.replace("/etc/sharder/tls", str(tls))),
        ):
            await start("shard-a")
            await in_use(api, namespace)
            first = await served(ports.webhook)
            async with load(api, namespace) as writing:
                mount(tls, authority)

                async def reloaded() -> bool:
                    return (await served(ports.webhook)).serial_number != first.serial_number and writing.answered > 100

                await until(reloaded)
            assert writing.missed == []
            assert await api.find(SECRETS, "sharder-webhook-certificates", NAMESPACE) is None


def mount(folder: Path, authority: Issued) -> None:
    """A fresh pair, swapped in by a link as kubelets do."""
    serving = issue(authority, ServingNames.of([LOOPBACK]), datetime.now(UTC), timedelta(days=90))
    content = folder.with_name(f"data-{serial(serving)}")
    content.mkdir()
    (content / "tls.crt").write_bytes(serving.certificate.pem)
    (content / "tls.key").write_bytes(serving.key)
    link = folder.with_name("link")
    link.symlink_to(content)
    link.replace(folder)


async def test_with_the_policy_on_webhook_and_shards_hand_objects_over(cluster: Cluster, api: AdminClient) -> None:
    """A pod acknowledges, the webhook answers with the next shard, and the policy lets that pass and nothing else."""
    values = {**VALUES, "admissionPolicy": {"enabled": True}}
    with free_ports() as ports:
        await cluster.install("--no-hooks", values=merge(ports.values(), values))
        async with (
            some_namespace(api) as namespace,
            shards(api, namespace) as start,
            running(cluster, ports),
        ):
            await allow(api, namespace, "configmaps")
            await make_account(api, namespace, "controller")
            pod = await make_pod(api, namespace, "shard-a", "controller")
            token = await account_token(api, namespace, "controller", pod)
            await start("shard-a")
            await in_use(api, namespace)
            async with client_of(cluster.plane, token) as shard:
                for number in range(8):
                    made = await shard.create(CONFIGMAPS, {"metadata": {"name": f"c{number}"}}, namespace)
                    assert made["metadata"]["labels"] == {RING.shard: "shard-a"}
                await start("shard-b")
                draining = await api.eventually(CONFIGMAPS, drained, namespace, timeout_seconds=PATIENCE_SECONDS)
                answers = [await acknowledge(shard, each) for each in draining]
                assert {answer["metadata"]["labels"][RING.shard] for answer in answers} == {"shard-b"}
                # The webhook puts a label back that was removed, or replaced, before the policy sees it.
                kept = {"metadata": {"labels": {RING.shard: None}}}
                back = await shard.patch(CONFIGMAPS, answers[0]["metadata"]["name"], kept, namespace)
                assert back["metadata"]["labels"] == {RING.shard: "shard-b"}
                stolen = {"metadata": {"labels": {RING.shard: "shard-a"}}}

                async def put_back() -> bool:
                    try:
                        found = await shard.patch(CONFIGMAPS, answers[0]["metadata"]["name"], stolen, namespace)
                    except AdminError as refused:  # the webhook is not asked before the sharder has learnt its own name
                        if "only the sharder may change" not in str(refused):
                            raise
                        return False
                    assert found["metadata"]["labels"] == {RING.shard: "shard-b"}
                    return True

                await until(put_back)


def drained(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects that the first shard is asked to let go, once every object is where it should be or on its way."""
    return [each for each in objects if RING.drain in (each["metadata"].get("labels") or {})]


async def acknowledge(shard: AdminClient, item: dict[str, Any]) -> dict[str, Any]:
    metadata = item["metadata"]
    change = {"resourceVersion": metadata["resourceVersion"], "labels": {RING.shard: None, RING.drain: None}}
    return await shard.patch(CONFIGMAPS, metadata["name"], {"metadata": change}, metadata["namespace"])
