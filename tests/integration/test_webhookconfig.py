"""A real API server takes the rendered configuration and calls in exactly when an answer is needed.

Nobody listens at the webhook's address and the failure policy is turned to
Fail, so a request that would call in fails and every other passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
import pytest_asyncio

from localcluster import AdminClient, AdminError, ControlPlane
from sharder.core.ringspec import ResolvedMain, ResolvedRing, parse_ring
from sharder.core.webhookconfig import differs, render_webhook
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.protocol.objects import Resource
from tests.integration.admission import MANIFESTS

SHARDER = "system:serviceaccount:sharding-system:sharder"
CONFIGURATIONS = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")


def ring_over(namespace: str) -> ResolvedRing:
    """Main ConfigMaps with controlled Secrets, in one namespace of a control plane that others use too."""
    raw = {
        "metadata": {"name": namespace},
        "spec": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
    }
    return ResolvedRing(parse_ring(raw), (ResolvedMain(CONFIGMAPS, (SECRETS,)),))


async def calls_in(request: Awaitable[Any]) -> bool:
    try:
        await request
    except AdminError as error:
        if "failed calling webhook" not in str(error):
            raise
        return True
    return False


@pytest_asyncio.fixture
async def ring(admin: AdminClient, namespace: str) -> AsyncIterator[ResolvedRing]:
    """The ring's configuration is in force; ConfigMaps `before` and `labelled` are older than it."""
    made = ring_over(namespace)
    wanted = render_webhook(made, client_config={"url": "https://127.0.0.1:1"}, account=SHARDER)
    # No such ring exists: the garbage collector would take its configuration away.
    del wanted["metadata"]["ownerReferences"]
    wanted["webhooks"][0]["failurePolicy"] = "Fail"
    await admin.create("v1/configmaps", {"metadata": {"name": "before"}}, namespace)
    await admin.create("v1/configmaps", metadata("labelled", made, labelled=True), namespace)
    created = await admin.create(CONFIGURATIONS, wanted)
    assert not differs(created, wanted)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    probe = {"metadata": {"generateName": "probe-"}}
    async with asyncio.timeout(120):
        while not await calls_in(admin.request("POST", path, body=probe, query={"dryRun": "All"})):
            await asyncio.sleep(0.05)
    yield made
    await admin.delete(CONFIGURATIONS, wanted["metadata"]["name"])


def metadata(name: str, ring: ResolvedRing, *, labelled: bool, controller: bool | None = None) -> dict[str, Any]:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "before", "uid": "1", "controller": controller}
    return {
        "metadata": {
            "name": name,
            "labels": {ring.spec.labels.shard: "a"} if labelled else {"app": "x"},
            "ownerReferences": [] if controller is None else [reference],
        }
    }


@pytest.mark.parametrize(
    ("resource", "labelled", "controller", "called"),
    [
        ("v1/configmaps", False, None, True),
        ("v1/configmaps", False, True, True),
        ("v1/configmaps", True, None, True),
        ("v1/secrets", False, True, True),
        ("v1/secrets", False, False, False),
        ("v1/secrets", False, None, False),
        ("v1/secrets", True, True, False),
        ("v1/serviceaccounts", False, True, False),
    ],
)
async def test_a_creation_calls_in_when_it_may_have_to_be_placed(
    admin: AdminClient,
    namespace: str,
    ring: ResolvedRing,
    resource: str,
    labelled: bool,
    controller: bool | None,
    called: bool,
) -> None:
    body = metadata("x", ring, labelled=labelled, controller=controller)
    assert await calls_in(admin.create(resource, body, namespace)) is called


async def test_an_update_calls_in_when_its_result_is_unlabelled(
    admin: AdminClient, namespace: str, ring: ResolvedRing
) -> None:
    shard = ring.spec.labels.shard

    def update(name: str, body: dict[str, Any]) -> Awaitable[Any]:
        return admin.patch("v1/configmaps", name, body, namespace)

    assert not await calls_in(update("labelled", {"data": {"k": "v"}}))
    assert await calls_in(update("labelled", {"metadata": {"labels": {shard: None}}}))
    assert await calls_in(update("before", {"data": {"k": "v"}}))
    assert not await calls_in(update("before", {"metadata": {"labels": {shard: "a"}}}))


async def test_an_update_calls_in_when_anyone_but_the_sharder_changes_the_label(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, ring: ResolvedRing
) -> None:
    shard = ring.spec.labels.shard

    def labelled(name: str) -> dict[str, Any]:
        return {"metadata": {"labels": {shard: name}}}

    assert await calls_in(admin.patch("v1/configmaps", "labelled", labelled("b"), namespace))
    assert not await calls_in(admin.patch("v1/configmaps", "labelled", labelled("a"), namespace))
    child = metadata("labelled", ring, labelled=True, controller=True)
    child["metadata"]["ownerReferences"][0]["uid"] = (await admin.get("v1/configmaps", "before", namespace))[
        "metadata"
    ]["uid"]
    await admin.create("v1/secrets", child, namespace)
    await admin.create("v1/secrets", metadata("lone", ring, labelled=True), namespace)
    assert await calls_in(admin.patch("v1/secrets", "labelled", labelled("b"), namespace))
    assert not await calls_in(admin.patch("v1/secrets", "lone", labelled("b"), namespace))

    await control_plane.apply(*MANIFESTS)
    sharder, account = SHARDER.split(":")[2:]
    await allow_configmaps(admin, namespace, sharder, account)
    async with Client(await load_access(str(await control_plane.service_account_kubeconfig(sharder, account)))) as api:
        moved = await api.patch(CONFIGMAPS, "labelled", namespace, labelled("b"))
        assert moved.metadata.label(shard) == "b"


async def allow_configmaps(admin: AdminClient, namespace: str, of: str, account: str) -> None:
    """Let the account of the namespace `of` patch them; in force on return."""
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]
    await admin.create(f"{group}/v1/roles", {"metadata": {"name": "sharder"}, "rules": rules}, namespace)
    await admin.create(
        f"{group}/v1/rolebindings",
        {
            "metadata": {"name": "sharder"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "sharder"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": of}],
        },
        namespace,
    )
    await admin.until_allowed("patch", "v1/configmaps", namespace, user=f"system:serviceaccount:{of}:{account}")


async def test_other_namespaces_are_left_alone(admin: AdminClient, ring: ResolvedRing) -> None:
    body = {"metadata": {"generateName": "x-"}}
    assert not await calls_in(
        admin.request("POST", "/api/v1/namespaces/default/configmaps", body=body, query={"dryRun": "All"})
    )
