"""Who acts as somebody else by a kubeconfig does so in each request, as with kubectl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from shardsdk.contrib.kopf_relay import Relay
from shardsdk.errors import ConfigurationError
from shardsdk.kube.client import Client
from tests.kube_configs import kubeconfig, load
from tests.kube_fakes import CONFIGMAPS, FakeFence
from tests.kube_server import serving

SOMEBODY = {
    "as": "jürgen",
    "as-uid": "7",
    "as-groups": ["developers", "system:authenticated"],
    "as-user-extra": {"example.com/Scopes%": ["view", "edit"], "reason": ["look"]},
}
HEADERS = [
    ("Impersonate-User", "jürgen"),
    ("Impersonate-Uid", "7"),
    ("Impersonate-Group", "developers"),
    ("Impersonate-Group", "system:authenticated"),
    ("Impersonate-Extra-example.com%2FScopes%25", "view"),
    ("Impersonate-Extra-example.com%2FScopes%25", "edit"),
    ("Impersonate-Extra-reason", "look"),
]


async def test_it_goes_with_every_request(tmp_path: Path) -> None:
    seen: list[tuple[str, list[tuple[str, str]]]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        sent = [(name, value) for name, value in request.headers.items() if name.startswith("Impersonate-")]
        seen.append((request.headers["Authorization"], sent))
        found = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "resourceVersion": "2"}}
        return web.json_response({"type": "ADDED", "object": found} if "watch" in request.query else found)

    async with serving(answer) as server:
        access = await load(tmp_path, kubeconfig(tmp_path, {"token": "t", **SOMEBODY}, server=server.url))
        async with Client(access) as client:
            await client.get(CONFIGMAPS, "a", "n")
            await client.patch(CONFIGMAPS, "a", "n", {"data": {}}, fences=[FakeFence(left=30.0)])
            async for _ in client.watch(CONFIGMAPS, "n", resource_version="1"):
                break
        async with Relay(access, [FakeFence(left=30.0)]) as session:
            for method in ("get", "patch"):
                (await session.request(method, str(URL(server.url) / "api"), json={})).release()
    assert seen == [("Bearer t", HEADERS)] * 5


async def test_nobody_is_impersonated_unasked(tmp_path: Path) -> None:
    assert not (await load(tmp_path, kubeconfig(tmp_path, {"token": "t", "as": "", "as-groups": []}))).impersonation


@pytest.mark.parametrize("more", [{"as-uid": "7"}, {"as-groups": ["g"]}, {"as-user-extra": {"a": ["b"]}}])
async def test_more_of_nobody_is_refused_as_by_kubectl(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="as-uid, as-groups and as-user-extra go together with as"):
        await load(tmp_path, kubeconfig(tmp_path, {"token": "t", **more}))


async def test_what_no_header_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="control characters"):
        await load(tmp_path, kubeconfig(tmp_path, {"as": "somebody\r\nImpersonate-Group: system:masters"}))
