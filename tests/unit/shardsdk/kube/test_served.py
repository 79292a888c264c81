"""A misspelt plural, a version that is not there, a CRD that was not installed: each with what was meant."""

from __future__ import annotations

import asyncio
import random

import pytest

from shardsdk.errors import NotServed
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Reflector
from shardsdk.kube.served import find_unserved
from shardsdk.protocol.objects import PartialObject, Resource
from tests.kube_server import Handler, refuses, says, talking

LISTED = says(
    {
        "resources": [
            {"name": "websites", "kind": "Website"},
            {"name": "websites/status", "kind": "Website"},
            {"name": "gadgets", "kind": "Gadget"},
        ]
    }
)
LISTED_OTHERS = says({"resources": [{"name": "gadgets", "kind": "Gadget"}]})
VERSIONS = says({"preferredVersion": {"version": "v1"}, "versions": [{"version": "v1beta1"}, {"version": "v1"}]})
ONE_VERSION = says({"versions": [{"version": "v1"}]})
MISSING = refuses(404, message="404 page not found")


@pytest.mark.parametrize(
    ("plural", "version", "answers", "words"),
    [
        ("websites", "v1", [LISTED], []),
        ("website", "v1", [LISTED, ONE_VERSION], ["it has the kind Website as websites in example.com/v1"]),
        ("gadget", "v1", [LISTED_OTHERS, ONE_VERSION], ["it has gadgets: is the plural of Website right?"]),
        ("frobs", "v1", [LISTED_OTHERS, ONE_VERSION], ["install what brings it", "(example.com/v1 has gadgets)"]),
        ("websites", "v2", [MISSING, VERSIONS, LISTED, LISTED], ["in version v2; there is v1 and v1beta1: write one"]),
        ("websites", "v2", [MISSING, VERSIONS, LISTED_OTHERS, LISTED], ["in version v2; there is v1beta1: write one"]),
        ("websites", "v1", [LISTED_OTHERS, VERSIONS, LISTED], ["not served in version v1; there is v1beta1"]),
        ("sites", "v2", [MISSING, ONE_VERSION, LISTED], ["write plural 'websites' and version 'v1' where Website is"]),
        ("websites", "v1", [MISSING, MISSING], ["does not know websites.example.com; install what brings it"]),
        ("websites", "v1", [refuses(403, "Forbidden")], []),
        ("websites", "v1", [says("nonsense")], []),
    ],
)
async def test_what_is_not_served(plural: str, version: str, answers: list[Handler], words: list[str]) -> None:
    async with talking(*answers) as (client, server):
        found = await find_unserved(client, [Resource("example.com", version, plural, "Website")])
    assert len(found) == bool(words)
    for each in words:
        assert each in found[0]
    assert server.seen[0].path == f"/apis/example.com/{version}"


async def test_the_core_group_has_a_path_of_its_own() -> None:
    async with talking(says({"resources": [{"name": "secrets"}]})) as (client, server):
        assert await find_unserved(client, [Resource("", "v1", "secrets", "Secret")]) == []
    assert server.seen[0].path == "/api/v1"


async def test_each_list_is_fetched_once() -> None:
    resources = [Resource("example.com", "v1", plural, "") for plural in ("websites", "gadgets", "frobs", "gizmos")]
    async with talking(LISTED, ONE_VERSION) as (client, server):
        assert len(await find_unserved(client, resources)) == 2
    assert [each.path for each in server.seen] == ["/apis/example.com/v1", "/apis/example.com"]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            [LISTED_OTHERS, VERSIONS, LISTED],
            "websites.example.com is not served in version v1; there is v1beta1: write one of these where Website is"
            " declared; where it was served before, serve it again",
        ),
        (
            [refuses(403, "Forbidden")],
            "the API server does not serve this type, or not in this version; install its CustomResourceDefinition, or"
            " have that serve the version",
        ),
    ],
    ids=["in another version", "nobody can tell"],
)
async def test_who_reads_what_is_not_served_says_what_is(answers: list[Handler], words: str) -> None:
    failed = asyncio.Event()
    async with talking(MISSING, *answers) as (client, _):
        resource = Resource("example.com", "v1", "websites", "Website")
        reflector: Reflector[PartialObject] = Reflector(
            client, resource, on_failing=failed.set, clock=SystemClock(), rng=random.Random(1)
        )
        running = asyncio.create_task(reflector.run())
        await failed.wait()
        running.cancel()
    assert isinstance(reflector.failure, NotServed)
    assert reflector.failure.status == 404
    assert str(reflector.failure) == f"watch websites.example.com: 404 without reason: 404 page not found — {words}"
