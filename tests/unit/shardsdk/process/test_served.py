"""A misspelt plural, a version that is not there, a CRD that was not installed: each with what was meant."""

from __future__ import annotations

import pytest

from shardsdk.process.served import find_unserved
from shardsdk.protocol.objects import Resource
from tests.kube_server import Handler, refuses, says, talking

LISTED = says({"resources": [{"name": "websites"}, {"name": "websites/status"}, {"name": "gadgets"}]})
MISSING = refuses(404, message="404 page not found")


@pytest.mark.parametrize(
    ("plural", "version", "answers", "words"),
    [
        ("websites", "v1", [LISTED], []),
        ("website", "v1", [LISTED], ["did you mean 'websites'?"]),
        ("frobs", "v1", [LISTED], ["there is gadgets, websites", "install its CustomResourceDefinition"]),
        (
            "websites",
            "v2",
            [MISSING, says({"versions": [{"version": "v1"}, {"version": "v1beta1"}]})],
            ["'v2'", "v1, v1beta1"],
        ),
        ("websites", "v1", [MISSING, MISSING], ["does not know the group 'example.com'", "install its"]),
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
