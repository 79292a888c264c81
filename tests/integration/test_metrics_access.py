"""Metrics that the API server guards: who gets them from a real sharder, and over what."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from localcluster.installation import ROOT, Installation, Sharder
from localcluster.ports import LOOPBACK, reserve_port
from sharder.core.webhookconfig import CERTIFICATES_SECRET
from tests.integration.harness import SYSTEM
from tests.integration.processes import STEADY

RBAC = "rbac.authorization.k8s.io/v1"
ACCOUNTS = "v1/serviceaccounts"
REVIEWS = "authorization.k8s.io/v1/subjectaccessreviews"
READER = {"kind": "ClusterRole", "name": "sharding:metrics-reader", "apiGroup": "rbac.authorization.k8s.io"}


@dataclass
class Door:
    """A sharder whose metrics are guarded."""

    replica: Sharder
    url: str
    plane: ControlPlane
    admin: AdminClient
    namespace: str

    async def token(self, account: str) -> str:
        """Of a new ServiceAccount."""
        await self.admin.create(ACCOUNTS, {"metadata": {"name": account}}, self.namespace)
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        made = await self.admin.request("POST", path, body={"spec": {"expirationSeconds": 3600}})
        return str(made["status"]["token"])

    async def let_ask(self) -> None:
        """Let the sharder ask whose a token is, and what its owner may; in force on return."""
        await self.plane.apply(ROOT / "rbac" / "metrics.yaml")
        await self.may_ask(True)

    async def may_ask(self, allowed: bool) -> None:
        """Wait until the sharder may ask, or may not any more."""
        user = f"system:serviceaccount:{SYSTEM}:sharder"
        await self.admin.until_allowed("create", "authentication.k8s.io/v1/tokenreviews", user=user, allowed=allowed)

    async def grant(self, account: str) -> None:
        """Let it read metrics; in force on return.  The binding goes with its namespace's name."""
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.namespace}
        body = {"metadata": {"name": self.binding}, "roleRef": READER, "subjects": [subject]}
        await self.admin.create(f"{RBAC}/clusterrolebindings", body)
        user = f"system:serviceaccount:{self.namespace}:{account}"
        review = {"spec": {"user": user, "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}}
        async with asyncio.timeout(120):
            while not (await self.admin.create(REVIEWS, review))["status"]["allowed"]:
                await asyncio.sleep(0.05)

    @property
    def binding(self) -> str:
        return f"metrics-{self.namespace}"

    async def get(self, token: str | None = None) -> tuple[int, str, str]:
        """Status, text and WWW-Authenticate; the certificate must be the one that its authority has signed."""
        secret = await self.admin.get("v1/secrets", CERTIFICATES_SECRET, SYSTEM)
        trusted = ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        async with aiohttp.ClientSession() as session, session.get(self.url, ssl=trusted, headers=headers) as answer:
            return answer.status, await answer.text(), answer.headers.get("WWW-Authenticate", "")


@pytest_asyncio.fixture(params=[True, False], ids=["webhook", "no webhook"])
async def door(
    request: pytest.FixtureRequest, control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> AsyncIterator[Door]:
    port = reserve_port()
    config: dict[str, Any] = {"metrics": {"bindAddress": f"{LOOPBACK}:{port.number}", "secure": True}}
    async with Installation(control_plane, STEADY, webhook=request.param, config=config) as installation:
        replica = await installation.start_sharder("sharder")
        door = Door(replica, f"https://{LOOPBACK}:{port.number}/metrics", control_plane, admin, namespace)
        yield door
        await replica.process.stop()
    port.release()
    await admin.delete(f"{RBAC}/clusterrolebindings", door.binding)
    for name in ("sharder-metrics-access", "sharding:metrics-reader"):
        await admin.delete(f"{RBAC}/clusterroles", name)
    await admin.delete(f"{RBAC}/clusterrolebindings", "sharder-metrics-access")
    await door.may_ask(False)


async def test_only_who_is_granted_them_reads_metrics_and_over_tls_only(door: Door) -> None:
    prometheus, stranger = await door.token("prometheus"), await door.token("stranger")

    status, said, _ = await door.get(prometheus)
    assert (status, "tokenreviews" in said) == (500, True), "the sharder may not ask, and says what is missing"
    assert "Nobody can read the metrics" in door.replica.process.log.read_text()

    await door.let_ask()
    await door.grant("prometheus")
    status, said, _ = await door.get(prometheus)
    assert status == 200, said
    assert "controller_sharding_" in said

    assert await door.get() == (401, 'send "Authorization: Bearer TOKEN", with a token of this cluster\n', "Bearer")
    status, _, asked = await door.get("forged")
    assert (status, asked) == (401, "Bearer")
    status, said, _ = await door.get(stranger)
    assert status == 403
    assert f"system:serviceaccount:{door.namespace}:stranger may not read /metrics" in said

    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(door.url.replace("https", "http"), headers={"Authorization": f"Bearer {prometheus}"})


async def test_nothing_of_a_token_is_logged(door: Door) -> None:
    await door.let_ask()
    token = await door.token("prometheus")
    await door.get(token)
    await door.get("forged-token")
    log = door.replica.process.log.read_text()
    assert token not in log
    assert "forged-token" not in log
