"""A replica's webhooks: where they are served, by which certificate, and what keeps them from it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shardsdk.admission import Serving
from shardsdk.admission.configuration import VALIDATING, render_configurations
from shardsdk.admission.service import REMOVE_AT_ONCE_SECONDS, REMOVE_SECONDS, SERVE_ON_SECONDS, WebhookService
from shardsdk.admission.settings import stop_seconds
from shardsdk.admission.webhook import Webhook
from shardsdk.errors import ConfigurationError
from shardsdk.kube.clock import SystemClock
from shardsdk.process.workload import CANCEL_SECONDS
from shardsdk.serving.secretstore import SelfManaged
from shardsdk.serving.server import WebhookServer
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from tests.ports import free_port
from tests.unit.shardsdk.admission.kinds import webhook
from tests.unit.shardsdk.serving.fake_secrets import FakeSecrets
from tests.unit.shardsdk.serving.serving import NAMES

#: More than an end at once takes on a machine that stands still for a while, and less than one in order may.
ENDED_SECONDS = REMOVE_SECONDS - 0.5


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("POD_NAMESPACE", raising=False)


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("POD_NAMESPACE", "system")


def service(
    serving: Serving,
    stopping: asyncio.Event | None = None,
    namespace: str | None = None,
    webhooks: Sequence[Webhook] = (),
) -> WebhookService:
    return WebhookService(
        "sites",
        webhooks or [webhook(lambda review: None)],
        serving,
        namespace=namespace,
        stopping=stopping or asyncio.Event(),
        render=lambda *_: [],
    )


@asynccontextmanager
async def running(serving: Serving, secrets: FakeSecrets) -> AsyncIterator[WebhookService]:
    made = service(serving)
    task = asyncio.create_task(made.run(secrets.api))
    try:
        async with asyncio.timeout(60):
            while made.check_ready() is not None:
                assert not task.done(), task.result()
                await asyncio.sleep(0.01)
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


async def shake_hands(port: int, authority: bytes, name: str) -> dict[str, Any]:
    trust = ssl.create_default_context(cadata=authority.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=name)
    certificate: dict[str, Any] = writer.get_extra_info("peercert")
    writer.close()
    return certificate


@pytest.mark.usefixtures("pod")
async def test_in_a_pod_the_certificate_is_of_its_service_and_shared_by_a_secret() -> None:
    secrets, serving = FakeSecrets(), Serving(host="127.0.0.1", port=free_port())
    async with running(serving, secrets):
        authority = secrets.data("system", "sites-webhook-certificates")["ca.crt"]
        certificate = await shake_hands(serving.port, authority, "sites-webhooks.system.svc")
        assert certificate["subject"] == ((("commonName", "sites webhooks"),),)
    async with running(serving, secrets):
        await shake_hands(serving.port, authority, "sites-webhooks.system.svc")
    assert secrets.writes == ["create"]


async def test_outside_of_a_pod_the_certificate_is_of_the_address_and_kept_nowhere() -> None:
    secrets, serving = FakeSecrets(), Serving(host="127.0.0.1", port=free_port(), address="localhost:8443")
    async with running(serving, secrets) as made:
        published = made._published
        assert published is not None
        assert published.ca_bundle is not None
        await shake_hands(serving.port, published.ca_bundle, "localhost")
    assert not secrets.writes


@pytest.mark.parametrize("address", ["", "localhost:8443"])
@pytest.mark.usefixtures("pod")
async def test_metrics_tell_until_when_the_certificate_is_valid(address: str) -> None:
    async with running(Serving(host="127.0.0.1", port=free_port(), address=address), FakeSecrets()) as made:
        assert made._published is not None
        assert made._published.pair is not None
        read = made._metrics.registry.get_sample_value
        expiry = read("shardsdk_webhook_certificate_expiry_timestamp_seconds")
        assert expiry == made._published.pair.expires_at.timestamp()
        loads = [read("shardsdk_webhook_certificate_loads_total", {"result": each}) for each in ("loaded", "refused")]
        assert loads == [0 if address else 1, 0]


async def test_outside_of_a_pod_nothing_is_served_unless_an_address_is_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = service(Serving())
    await made.run(FakeSecrets().api)
    assert made.check_ready() is None
    [line] = caplog.records
    assert (line.levelno, "they need an address" in line.message) == (logging.WARNING, True)


async def test_a_pod_that_does_not_know_its_namespace_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, pod: None
) -> None:
    monkeypatch.delenv("POD_NAMESPACE")
    made = service(Serving())
    assert made.check_ready() == "no serving certificate yet"
    with pytest.raises(ConfigurationError, match="set POD_NAMESPACE by the downward API"):
        await made.run(FakeSecrets().api)


@pytest.mark.parametrize(
    ("address", "remedy"), [("127.0.0.1", "`--webhooks HOST:PORT` or Serving.port"), ("", "Serving.port")]
)
@pytest.mark.usefixtures("pod")
async def test_a_port_that_is_taken_is_named(address: str, remedy: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        made = service(Serving(host="127.0.0.1", port=port, address=address))
        with pytest.raises(ConfigurationError, match=f"port {port} .*`lsof .*:{port} .*set {remedy} to a free port"):
            await made.run(FakeSecrets().api)


class Outside:
    """A process outside of a pod, which makes its configurations itself."""

    def __init__(self, stopping: asyncio.Event | None = None) -> None:
        clock, self.port = SystemClock(), free_port()
        self.server = MemoryServer(now=clock.now)
        self.api = MemoryApi(self.server, clock)
        webhooks = [webhook(lambda review: None)]
        self.service = WebhookService(
            "sites", webhooks, Serving(host="127.0.0.1", port=self.port, address="127.0.0.1"), namespace=None,
            stopping=stopping or asyncio.Event(),
            render=lambda _, client, name, bundle: render_configurations(webhooks, name, client, labels={}),
        )  # fmt: skip

    @property
    def asked(self) -> bool:
        return self.server.find(VALIDATING, "sites-dev") is not None

    async def serve(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self.service.run(self.api))
        async with asyncio.timeout(60):
            while not self.asked:
                await asyncio.sleep(0.01)
        return task


async def test_one_that_is_cancelled_as_when_its_lease_is_lost_takes_its_configurations_away() -> None:
    outside = Outside()
    task = await outside.serve()
    task.cancel()
    await asyncio.wait([task], timeout=ENDED_SECONDS)
    assert task.cancelled()
    assert not outside.asked


async def test_one_whose_port_is_taken_away_takes_its_configurations_away(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = asyncio.Event()

    async def run(_: object) -> None:
        await broken.wait()
        raise OSError("no more of this")

    monkeypatch.setattr(WebhookServer, "run", run)
    outside = Outside()
    task = await outside.serve()
    broken.set()
    with pytest.raises(OSError, match="no more of this"):
        await task
    assert not outside.asked


async def test_one_that_is_cancelled_and_cannot_take_them_away_says_how_to_and_ends_in_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outside = Outside()
    task = await outside.serve()
    outside.api.fault = Fault.LOST
    task.cancel()
    await asyncio.wait([task], timeout=ENDED_SECONDS)
    assert task.cancelled()
    [line] = [vars(each) for each in caplog.records if each.levelno == logging.ERROR]
    assert REMOVE_AT_ONCE_SECONDS < CANCEL_SECONDS
    assert line["configuration"] == "sites-dev"
    assert line["remedy"].startswith("kubectl delete")
    assert line["remedy"].endswith(" sites-dev")


async def test_one_that_has_made_none_tells_nobody_to_delete_any(caplog: pytest.LogCaptureFixture) -> None:
    outside = Outside()
    outside.api.fault = Fault.LOST
    task = asyncio.create_task(outside.service.run(outside.api))
    async with asyncio.timeout(60):
        while outside.service.check_ready() is not None:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task], timeout=ENDED_SECONDS)
    assert task.cancelled()
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR] == []


@pytest.mark.parametrize(("timeouts", "seconds"), [([5], 5), ([5, 30, 10], 30)])
async def test_what_has_begun_is_answered_for_as_long_as_somebody_waits(timeouts: list[int], seconds: int) -> None:
    webhooks = [webhook(lambda review: None, timeout_seconds=each) for each in timeouts]
    made = service(Serving(host="127.0.0.1", port=0), webhooks=webhooks)
    server = made._bind(SelfManaged(FakeSecrets().api, namespace="", name="", names=NAMES, clock=SystemClock()))
    server.close()
    assert server.finish_seconds == seconds
    assert stop_seconds(webhooks) >= seconds + SERVE_ON_SECONDS + REMOVE_SECONDS


@pytest.mark.parametrize("address", ["", ":1", "host:port", "host:70000", "https://host", "host/path", "a@host", "::1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write host or host:port.*\[::1\]:9443"):
        Serving.reached_at(address)


@pytest.mark.parametrize(("address", "port"), [("host", 0), ("host:8443", 8443), ("[::1]:1", 1)])
def test_it_listens_on_the_port_that_it_is_called_at(address: str, port: int) -> None:
    assert Serving.reached_at(address).port == port
