"""Leases of sharder and shards come before other requests, as a real API server classifies them."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from localcluster import ControlPlane
from tests.chart.helm import CONTROLLER, NAMESPACE, Helm, select
from tests.chart.identities import account_token, make_account

SCHEMAS = "flowcontrol.apiserver.k8s.io/v1/flowschemas"
LEVELS = "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
SPACE = "flows"
CHECKSUM = CONTROLLER / "examples" / "checksum.yaml"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
HEADERS = ("X-Kubernetes-PF-FlowSchema-UID", "X-Kubernetes-PF-PriorityLevel-UID")


@dataclass(frozen=True, slots=True)
class Flows:
    """Both charts' FlowSchemas in force; `uids` of them and of the priority level."""

    plane: ControlPlane
    uids: dict[str, str]

    async def classify(self, account: tuple[str, str], method: str, path: str, body: Any = None) -> tuple[str, str]:
        """FlowSchema and priority level of a request. That it may be forbidden comes later and does not matter."""
        async with self.plane.admin() as admin:
            token = await account_token(admin, *account)
        [cluster] = yaml.safe_load(self.plane.admin_kubeconfig.read_text())["clusters"]
        tls = ssl.create_default_context(cadata=b64decode(cluster["cluster"]["certificate-authority-data"]).decode())
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"}
        async with (
            aiohttp.ClientSession(cluster["cluster"]["server"], connector=aiohttp.TCPConnector(ssl=tls)) as session,
            session.request(method, path, headers=headers, json=body) as answer,
        ):
            schema, level = (answer.headers[name] for name in HEADERS)
            return schema, level


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def flows(chart_control_plane: ControlPlane, helm: Helm) -> AsyncIterator[Flows]:
    values = yaml.safe_load(CHECKSUM.read_text())
    rendered = [
        *select(helm.render(), "FlowSchema"),
        *select(helm.render(values, chart=CONTROLLER, namespace=SPACE, release="checksum"), "FlowSchema"),
    ]
    names = {each["metadata"]["name"] for each in rendered}
    assert names == {"sharder-leases", "checksum-leases"}
    async with chart_control_plane.admin() as admin:
        for namespace, account in ((NAMESPACE, "sharder"), (SPACE, "checksum"), (SPACE, "other")):
            if await admin.find("v1/namespaces", namespace) is None:
                await admin.namespace(namespace)
            await make_account(admin, namespace, account)
        await chart_control_plane.apply(stdin=yaml.safe_dump_all(rendered))
        uids = {name: (await admin.get(SCHEMAS, name))["metadata"]["uid"] for name in names}
        uids["leader-election"] = (await admin.get(LEVELS, "leader-election"))["metadata"]["uid"]
        made = Flows(chart_control_plane, uids)
        # An API server takes up new schemas a moment after it has stored them.
        async with asyncio.timeout(60):
            for who, name in (((NAMESPACE, "sharder"), "sharder-leases"), ((SPACE, "checksum"), "checksum-leases")):
                path = f"{LEASES.format(SPACE)}/probe"
                while (await made.classify(who, "GET", path))[0] != uids[name]:
                    await asyncio.sleep(0.1)
        yield made
        for name in names:
            await admin.delete(SCHEMAS, name)
        await admin.delete("v1/serviceaccounts", "sharder", NAMESPACE)
        await admin.delete("v1/namespaces", SPACE)


@pytest.mark.parametrize(("method", "name"), [("GET", "/x"), ("PATCH", "/x"), ("PUT", "/x"), ("POST", "")])
@pytest.mark.parametrize(
    ("account", "schema"),
    [((NAMESPACE, "sharder"), "sharder-leases"), ((SPACE, "checksum"), "checksum-leases")],
    ids=["sharder", "shard"],
)
async def test_reads_and_writes_of_a_lease_have_the_level_of_leader_election(
    flows: Flows, account: tuple[str, str], schema: str, method: str, name: str
) -> None:
    body = None if method == "GET" else {"metadata": {"name": "x"}}
    classified = await flows.classify(account, method, LEASES.format(SPACE) + name, body)
    assert classified == (flows.uids[schema], flows.uids["leader-election"])


@pytest.mark.parametrize(
    ("account", "method", "path"),
    [
        ((NAMESPACE, "sharder"), "PATCH", f"/api/v1/namespaces/{SPACE}/secrets/x"),
        ((NAMESPACE, "sharder"), "GET", LEASES.format(SPACE)),
        ((SPACE, "checksum"), "PATCH", f"/api/v1/namespaces/{SPACE}/secrets/x"),
        ((SPACE, "checksum"), "PATCH", LEASES.format("default") + "/x"),
        ((SPACE, "other"), "PATCH", LEASES.format(SPACE) + "/x"),
    ],
    ids=["the sharder's moves", "its lists", "a shard's writes", "leases elsewhere", "another account"],
)
async def test_nothing_else_has(flows: Flows, account: tuple[str, str], method: str, path: str) -> None:
    _, level = await flows.classify(account, method, path, None if method == "GET" else {})
    assert level != flows.uids["leader-election"]


@pytest.mark.parametrize("chart", ["sharder", "controller"])
def test_it_can_be_switched_off(helm: Helm, chart: str) -> None:
    off = {"priorityAndFairness": {"enabled": False}}
    if chart == "sharder":
        documents = helm.render(off)
    else:
        documents = helm.render({**yaml.safe_load(CHECKSUM.read_text()), **off}, chart=CONTROLLER, release="checksum")
    assert select(documents, "FlowSchema") == []
