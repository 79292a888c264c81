"""What a request is made of: that a mistake in it is told for what it is, and not sent as something else."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from aiohttp import web

from shardsdk.errors import ApiError, ConfigurationError, MethodNotAllowed, NotFound
from shardsdk.kube.api import Api, PatchKind
from shardsdk.kube.client import Client
from shardsdk.kube.credentials import FixedCredentials
from shardsdk.kube.server import direct_access
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from tests.kube_fakes import CONFIGMAPS
from tests.kube_server import refuses, says, serving, talking

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
NO_SUCH_PATH = "the server could not find the requested resource"
MADE = {"metadata": {"name": "web", "namespace": "team"}}


@pytest.mark.parametrize(
    "ask",
    [
        lambda api: api.get(DEPLOYMENTS, "web"),
        lambda api: api.patch(DEPLOYMENTS, "web", None, {}),
        lambda api: api.update(DEPLOYMENTS, {"metadata": {"name": "web"}}),
        lambda api: api.delete(DEPLOYMENTS, "web"),
    ],
    ids=["get", "patch", "update", "delete"],
)
async def test_a_namespace_that_was_forgotten_is_asked_for(ask: Callable[[Api], Awaitable[object]]) -> None:
    async with talking(refuses(404, "NotFound", NO_SUCH_PATH)) as (client, _):
        with pytest.raises(NotFound, match=r"deployments\.apps live in namespaces.*pass namespace=") as caught:
            await ask(client)
    assert "CustomResourceDefinition" not in str(caught.value)


async def test_so_it_is_for_what_is_to_be_created() -> None:
    async with talking(refuses(405, "MethodNotAllowed", "the server does not allow this method")) as (client, _):
        with pytest.raises(MethodNotAllowed, match=r"deployments\.apps live in namespaces.*pass namespace="):
            await client.create(DEPLOYMENTS, {"metadata": {"name": "web"}})


@pytest.mark.parametrize(
    ("resource", "namespace", "reason", "words"),
    [
        (DEPLOYMENTS, "team", "NotFound", NO_SUCH_PATH),
        (CLUSTERRINGS, None, "NotFound", NO_SUCH_PATH),
        # In no namespace, whatever the Resource says: the API server has looked for it.
        (DEPLOYMENTS, None, "NotFound", 'deployments.apps "web" not found'),
    ],
    ids=["a namespace was given", "in no namespace", "declared as if in one"],
)
async def test_no_namespace_is_asked_for_where_that_is_not_what_is_wrong(
    resource: Resource, namespace: str | None, reason: str, words: str
) -> None:
    async with talking(refuses(404, reason, words)) as (client, _):
        with pytest.raises(ApiError) as caught:
            await client.get(resource, "web", namespace)
    assert "live in namespaces" not in str(caught.value)


class Spec(msgspec.Struct):
    ratio: float


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"spec": {"ratio": math.nan}}, r"spec\.ratio is nan"),
        ({"spec": {"rules": [{"weights": [1.0, math.inf]}]}}, r"spec\.rules\[0\]\.weights\[1\] is inf"),
        ({"spec": {"weights": (1.0, math.nan)}}, r"spec\.weights\[1\] is nan"),
        ({"spec": {"a": None, "ratio": -math.inf}}, r"spec\.ratio is -inf"),
        ({"spec": Spec(math.nan)}, r"spec\.ratio is nan"),
    ],
)
async def test_a_number_that_json_does_not_have_is_refused_before_it_becomes_null(
    body: dict[str, Any], where: str
) -> None:
    """In a merge patch null takes the field away."""
    async with talking(says(MADE)) as (client, server):
        with pytest.raises(ConfigurationError, match=f"patch deployments.apps team/web: {where}"):
            await client.patch(DEPLOYMENTS, "web", "team", body)
        with pytest.raises(ConfigurationError, match=where):
            await client.create(DEPLOYMENTS, {**MADE, **body})
        assert server.seen == []


async def test_one_in_a_json_patch_is_refused_too() -> None:
    change = {"op": "replace", "path": "/spec/ratio", "value": math.nan}
    async with talking(says(MADE)) as (client, server):
        with pytest.raises(ConfigurationError, match=r"\[0\]\.value is nan"):
            await client.patch(DEPLOYMENTS, "web", "team", [change], kind=PatchKind.JSON)
        assert server.seen == []


async def test_null_itself_is_sent() -> None:
    body = {"metadata": {"labels": {"null": None}}, "spec": {"ratio": 0.5, "says": "null"}}
    async with talking(says(MADE)) as (client, server):
        await client.patch(DEPLOYMENTS, "web", "team", body)
        await client.patch(CONFIGMAPS, "web", "team", {"data": None})
        assert [each.json for each in server.seen] == [body, {"data": None}]


async def test_a_name_that_is_no_text_is_refused() -> None:
    """As an argument that is not UTF-8 comes from the command line."""
    async with talking(says(MADE)) as (client, server):
        with pytest.raises(ConfigurationError, match="cannot be a name: it is no UTF-8"):
            await client.get(DEPLOYMENTS, "\udcff", "team")
        assert server.seen == []


async def test_a_bare_request_shows_the_clients_credentials_and_none_besides() -> None:
    """Of two Authorization headers it would be left to chance which one counts."""
    seen: list[list[str]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.getall("Authorization"))
        return web.json_response({})

    async with serving(answer) as server:
        access = replace(direct_access(server.url), credentials=FixedCredentials("Bearer t"))
        async with Client(access) as client:
            await client.raw("GET", "/version", headers={"Authorization": "Bearer mine"})
    assert seen == [["Bearer t"]]
