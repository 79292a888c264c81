"""The reflector on a real API server: permissions, identities, types that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest_asyncio
import yaml

from localcluster import AdminClient, ControlPlane
from shardsdk.errors import Forbidden, NotFound, Unauthorized
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.reflector import EventKind
from shardsdk.kube.selectors import Selector, equals, exists
from shardsdk.protocol.objects import Resource
from tests.integration.following import following
from tests.kube_fakes import CONFIGMAPS


@pytest_asyncio.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(await load_access(str(control_plane.admin_kubeconfig))) as opened:
        yield opened


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


async def test_entering_changing_and_leaving_a_selection(client: Client, namespace: str) -> None:
    await client.create(CONFIGMAPS, config_map("a", team="x"), namespace)
    selector = Selector(labels=exists("team"))
    async with following(client, namespace=namespace, selector=selector) as mine:
        await mine.reflector.synced.wait()
        await client.create(CONFIGMAPS, config_map("b"), namespace)
        await client.patch(CONFIGMAPS, "b", namespace, {"metadata": {"labels": {"team": "y"}}})
        await client.patch(CONFIGMAPS, "a", namespace, {"metadata": {"labels": {"team": "z"}}})
        last = await client.patch(CONFIGMAPS, "a", namespace, {"metadata": {"labels": {"team": None}}})
        await client.delete(CONFIGMAPS, "b", namespace)
        await mine.until(lambda: not mine.names and len(mine.deltas) == 5)
        assert mine.story == [
            (EventKind.ADDED, "a"),
            (EventKind.ADDED, "b"),
            (EventKind.MODIFIED, "a"),
            (EventKind.DELETED, "a"),
            (EventKind.DELETED, "b"),
        ]
        left = mine.deltas[3]
        assert left.object.metadata.resource_version == last.metadata.resource_version
        assert left.old is not None
        assert left.old.metadata.label("team") == "z"
        assert [delta.initial for delta in mine.deltas] == [True, False, False, False, False]


async def test_a_restart_follows_a_new_selection(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await client.create(CONFIGMAPS, config_map(name, team=name), namespace)
    team = ["a"]

    def selector() -> Selector:
        return Selector(labels=equals("team", team[0]))

    async with following(client, namespace=namespace, selector=selector) as mine:
        await mine.reflector.synced.wait()
        team[0] = "b"
        await mine.reflector.listed(mine.reflector.restart())
        assert mine.story == [(EventKind.ADDED, "a"), (EventKind.ADDED, "b"), (EventKind.DELETED, "a")]
        await client.patch(CONFIGMAPS, "a", namespace, {"metadata": {"labels": {"team": "b"}}})
        await mine.until(lambda: mine.names == {"a", "b"})


async def test_a_missing_permission_is_said_and_its_grant_noticed(
    client: Client, control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    await admin.create("v1/serviceaccounts", {"metadata": {"name": "follower"}}, namespace)
    path = await control_plane.service_account_kubeconfig(namespace, "follower")
    await client.create(CONFIGMAPS, config_map("a"), namespace)
    async with Client(await load_access(str(path))) as limited, following(limited, namespace=namespace) as mine:
        await mine.until(lambda: isinstance(mine.reflector.failure, Forbidden))
        assert 'verbs: ["watch"]' in mine.reflector.status()
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]
        kind = "rbac.authorization.k8s.io/v1/roles"
        await admin.create(kind, {"metadata": {"name": "follow"}, "rules": rules}, namespace)
        binding = {
            "metadata": {"name": "follow"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "follow"},
            "subjects": [{"kind": "ServiceAccount", "name": "follower", "namespace": namespace}],
        }
        await admin.create("rbac.authorization.k8s.io/v1/rolebindings", binding, namespace)
        await mine.until(lambda: "a" in mine.names)
        await mine.until(lambda: mine.reflector.failure is None)
        # And when it is taken away again: what is known stays, and the reason is said.
        await admin.delete("rbac.authorization.k8s.io/v1/rolebindings", "follow", namespace)
        user = f"system:serviceaccount:{namespace}:follower"
        await admin.until_allowed("watch", "v1/configmaps", namespace, user=user, allowed=False)
        mine.reflector.restart()
        await mine.until(lambda: isinstance(mine.reflector.failure, Forbidden))
        assert "a" in mine.names


def replace_token(kubeconfig: Path, token_file: Path) -> str:
    """Make a kubeconfig read its token from a file; the token."""
    content = yaml.safe_load(kubeconfig.read_text())
    token = str(content["users"][0]["user"]["token"])
    content["users"][0]["user"] = {"tokenFile": str(token_file)}
    kubeconfig.write_text(yaml.safe_dump(content))
    token_file.write_text(token)
    return token


async def test_a_token_that_is_rotated_is_picked_up(
    client: Client, control_plane: ControlPlane, admin: AdminClient, namespace: str, tmp_path: Path
) -> None:
    """The ServiceAccount is made anew, so that the old token is rejected at once."""
    await admin.create("v1/serviceaccounts", {"metadata": {"name": "follower"}}, namespace)
    binding = {
        "metadata": {"name": f"{namespace}-follower"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "follower", "namespace": namespace}],
    }
    await admin.create("rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    token_file = tmp_path / "token"
    path = await control_plane.service_account_kubeconfig(namespace, "follower", tmp_path / "kubeconfig")
    replace_token(path, token_file)
    access = await load_access(str(path))
    async with Client(access) as rotating, following(rotating, namespace=namespace) as mine:
        await mine.reflector.synced.wait()
        await admin.delete("v1/serviceaccounts", "follower", namespace)
        await admin.create("v1/serviceaccounts", {"metadata": {"name": "follower"}}, namespace)

        async def rejected() -> bool:
            try:
                await rotating.get(CONFIGMAPS, "kube-root-ca.crt", namespace)
            except Unauthorized:
                return True
            except NotFound:
                return False
            return False

        async with asyncio.timeout(120):
            while not await rejected():  # the API server remembers a good token for some seconds
                await asyncio.sleep(0.2)
        mine.reflector.restart()
        await mine.until(lambda: isinstance(mine.reflector.failure, Unauthorized))
        fresh = await control_plane.service_account_kubeconfig(namespace, "follower", tmp_path / "fresh")
        replace_token(fresh, token_file)
        await client.create(CONFIGMAPS, config_map("after-rotation"), namespace)
        await mine.until(lambda: "after-rotation" in mine.names)
        await mine.until(lambda: mine.reflector.failure is None)
    await admin.delete("rbac.authorization.k8s.io/v1/clusterrolebindings", f"{namespace}-follower")


WIDGETS = Resource("kube-tests.example.com", "v1", "widgets", "Widget")


async def test_a_type_that_is_not_there_yet_and_then_goes(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.kube-tests.example.com"},
        "spec": {
            "group": "kube-tests.example.com",
            "names": {"kind": "Widget", "plural": "widgets"},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }
    async with following(client, WIDGETS, namespace=namespace) as mine:
        await mine.until(lambda: isinstance(mine.reflector.failure, NotFound))
        assert await client.discover(WIDGETS.group, WIDGETS.plural) is None
        await control_plane.apply(stdin=yaml.safe_dump(crd))
        await mine.until(mine.reflector.synced.is_set)
        async with asyncio.timeout(120):
            while await client.discover(WIDGETS.group, WIDGETS.plural) != WIDGETS:
                await asyncio.sleep(0.1)
        body = {"apiVersion": WIDGETS.api_version, "kind": "Widget", "metadata": {"name": "w"}}
        await client.create(WIDGETS, body, namespace)
        await mine.until(lambda: mine.names == {"w"})
        await control_plane.kubectl("delete", "crd", "widgets.kube-tests.example.com")
        await mine.until(lambda: not mine.names)
        await mine.until(lambda: isinstance(mine.reflector.failure, NotFound))


@asynccontextmanager
async def one_seat(admin: AdminClient, user: str) -> AsyncIterator[None]:
    """Whatever `user` asks for beyond one request at a time is answered with 429 and Retry-After."""
    group = "flowcontrol.apiserver.k8s.io/v1"
    refuse = {"lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    limited = {"type": "Limited", "limited": {"nominalConcurrencyShares": 0, **refuse}}
    anything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rule = {"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [anything]}
    schema = {"priorityLevelConfiguration": {"name": user}, "matchingPrecedence": 2, "rules": [rule]}
    await admin.create(f"{group}/prioritylevelconfigurations", {"metadata": {"name": user}, "spec": limited})
    await admin.create(f"{group}/flowschemas", {"metadata": {"name": user}, "spec": schema})
    yield
    await admin.delete(f"{group}/flowschemas", user)
    await admin.delete(f"{group}/prioritylevelconfigurations", user)


@asynccontextmanager
async def slow_creates(admin: AdminClient, namespace: str, seconds: int) -> AsyncIterator[None]:
    """Creating a config map labelled `slow` takes so long: its webhook accepts connections and says nothing."""
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    hook = {
        "name": "slow.kube-tests.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "objectSelector": {"matchLabels": {"slow": "yes"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "timeoutSeconds": seconds,
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    await admin.create(kind, {"metadata": {"name": namespace}, "webhooks": [hook]})
    yield
    await admin.delete(kind, namespace)
    silent.close()


async def test_an_api_server_that_asks_for_patience_gets_it(
    client: Client, control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    user = f"throttled-{namespace}"
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    await admin.create("rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    calls: list[int] = []
    access = await load_access(str(control_plane.kubeconfig(user)))
    async with (
        one_seat(admin, user),
        slow_creates(admin, namespace, 4),
        Client(access, on_call=lambda _verb, status, _seconds: calls.append(status)) as slow,
    ):
        await client.create(CONFIGMAPS, config_map("a"), namespace)
        occupying: asyncio.Task[object] | None = None
        async with asyncio.timeout(120):
            while 429 not in calls:  # the API server takes a moment to follow its own configuration
                if occupying is None or occupying.done():
                    body = {"metadata": {"generateName": "slow-", "labels": {"slow": "yes"}}}
                    occupying = asyncio.ensure_future(slow.create(CONFIGMAPS, body, namespace))
                await asyncio.sleep(0.1)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await slow.find(CONFIGMAPS, "a", namespace)
        calls.clear()
        async with following(slow, namespace=namespace) as mine:
            await mine.until(lambda: 429 in calls)
            assert not mine.reflector.synced.is_set()
            await mine.until(lambda: "a" in mine.names)
            await mine.until(lambda: mine.reflector.failure is None)
        if occupying is not None:
            await occupying
    await admin.delete("rbac.authorization.k8s.io/v1/clusterrolebindings", user)
