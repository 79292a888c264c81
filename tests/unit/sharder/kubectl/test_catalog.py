"""Resources are found by the names that people use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sharder.kubectl.catalog import Catalog, read_catalog
from shardsdk.errors import ConfigurationError
from shardsdk.protocol.objects import GroupResource


def entry(name: str, kind: str, *short: str, verbs: tuple[str, ...] = ("list",)) -> dict[str, Any]:
    return {
        "resource": name,
        "responseKind": {"kind": kind},
        "scope": "Namespaced",
        "singularResource": kind.lower(),
        "shortNames": list(short),
        "verbs": list(verbs),
    }


def group(name: str, **versions: list[dict[str, Any]]) -> dict[str, Any]:
    listed = [{"version": version, "resources": resources} for version, resources in versions.items()]
    return {"metadata": {"name": name} if name else {}, "versions": listed}


AGGREGATED: dict[str, Any] = {
    "/api": {
        "kind": "APIGroupDiscoveryList",
        "items": [group("", v1=[entry("secrets", "Secret"), entry("events", "Event", "ev")])],
    },
    "/apis": {
        "kind": "APIGroupDiscoveryList",
        "items": [
            group("apps", v1=[entry("deployments", "Deployment", "deploy")], v1beta1=[entry("deployments", "Old")]),
            group("events.k8s.io", v1=[entry("events", "Event", "ev")]),
        ],
    },
}
OLD = {"/api": {"kind": "APIVersions", "versions": ["v1"]}, "/apis": {"kind": "APIGroupList", "groups": []}}


class Paths:
    """Answers raw requests from a table."""

    def __init__(self, table: dict[str, Any]) -> None:
        self.table = table

    async def raw(self, method: str, path: str, **_: Any) -> bytes:
        assert method == "GET"
        return json.dumps(self.table[path]).encode()


async def catalog(table: dict[str, Any]) -> Catalog:
    api: Any = Paths(table)
    return await read_catalog(api)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("secrets", GroupResource("", "secrets")),
        ("secret", GroupResource("", "secrets")),
        ("Secret", GroupResource("", "secrets")),
        ("deploy", GroupResource("apps", "deployments")),
        ("deployments.apps", GroupResource("apps", "deployments")),
        ("deployments.v1.apps", GroupResource("apps", "deployments")),
    ],
)
async def test_every_usual_name_finds_it(text: str, found: GroupResource) -> None:
    [served] = (await catalog(AGGREGATED)).named(text)
    assert served.resource.group_resource == found
    assert served.resource.version == "v1"
    assert served.resource.namespaced


async def test_a_name_in_two_groups_finds_both_the_core_one_first() -> None:
    known = await catalog(AGGREGATED)
    assert [each.resource.group for each in known.named("ev")] == ["", "events.k8s.io"]
    assert [each.resource.group for each in known.named("ev.events.k8s.io")] == ["events.k8s.io"]


async def test_what_is_not_served_is_not_found() -> None:
    known = await catalog(AGGREGATED)
    assert known.named("nonsense") == known.named("deploy.other") == known.named("nonsense.apps") == []
    assert known.named("deployments.apps")


async def test_a_group_whose_server_is_down_is_said_and_hides_no_other() -> None:
    away = {"metadata": {"name": "away.example.com"}, "versions": [{"version": "v1", "freshness": "Stale"}]}
    table = {**AGGREGATED, "/apis": {**AGGREGATED["/apis"], "items": [*AGGREGATED["/apis"]["items"], away]}}

    known = await catalog(table)

    assert known.unread == ("away.example.com/v1",)
    assert known.named("deployments.apps")


async def test_a_server_that_is_too_old_is_refused_with_what_it_takes() -> None:
    with pytest.raises(ConfigurationError, match=r"Kubernetes 1\.30 or newer"):
        await catalog(OLD)
