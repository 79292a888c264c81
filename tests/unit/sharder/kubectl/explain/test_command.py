"""`kubectl sharding explain`: one ring that fails keeps no other from being explained."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sharder.kubectl.explain.command import show_explanation
from sharder.kubectl.outcomes import ExitCode
from sharder.kubectl.rbac import print_roles_of_ring
from shardsdk.errors import ShardingError
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from shardsdk.testing.memory import MemoryServer
from tests.unit.sharder.kubectl.rings import (
    CONFIGMAPS,
    FAILURES,
    SECRETS,
    UNUSABLE,
    RestrictedApi,
    Wall,
    lease,
    manifest,
    raw_ring,
    said,
    session_of,
)

LEASE = ("sharding-system", "sharder")


class Discovering(RestrictedApi):
    """Says what it serves; of the resources in `away` it cannot say more."""

    away: tuple[str, ...] = ()

    async def raw(self, method: str, path: str, **_: Any) -> bytes:
        entries = [
            {"resource": each.plural, "responseKind": {"kind": each.kind}, "scope": "Namespaced", "verbs": ["get"]}
            for each in (SECRETS, CONFIGMAPS)
        ]
        group = {"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": entries}]}
        items = [group] if path == "/api" else []
        return json.dumps({"kind": "APIGroupDiscoveryList", "items": items}).encode()

    async def discover(self, group: str, plural: str) -> Resource | None:
        if plural in self.away:
            raise FAILURES[1]
        return await super().discover(group, plural)


def api_of(*names: str) -> Discovering:
    """A ConfigMap of the ring `plain`, as a main resource, and of `checksum`, as a child; rings called `names`."""
    server = MemoryServer()
    server.arrange(CLUSTERRINGS, raw_ring(), None)
    for name in ("plain", *names):
        server.arrange(CLUSTERRINGS, raw_ring(name, spec={"resources": [{"resource": "configmaps"}]}), None)
    for each in (lease("one"), lease("other", ring="plain")):
        server.create(LEASES, msgspec.to_builtins(each), each.metadata.namespace)
    server.create(CONFIGMAPS, manifest("a", "one", owner="b"), "default")
    return Discovering(server, Wall(), set())


async def explained(api: Discovering) -> tuple[ExitCode, dict[str, Any]]:
    session = session_of(api, output="json")
    return await show_explanation(session, "configmaps", "a", LEASE), json.loads(said(session))


async def test_a_ring_whose_main_resource_fails_is_not_known_and_the_others_are_explained() -> None:
    api = api_of()
    api.away = ("secrets",)
    code, document = await explained(api)
    rings = {each["ring"]: each for each in document["rings"]}
    assert code is ExitCode.WRONG  # `plain` has not given it to anybody
    assert rings["plain"]["decision"] == "ASSIGN"
    assert (rings["checksum"]["role"], rings["checksum"]["shard"]) == ("controlled", "one")
    assert (rings["checksum"]["inPlace"], rings["checksum"]["decision"]) == (None, None)
    assert rings["checksum"]["because"] == ["whether the API server serves secrets could not be read"]
    assert {"what": "secrets", "why": str(FAILURES[1]), "remedy": ""} in document["unread"]


async def test_a_resource_that_fails_is_not_one_that_no_ring_lists() -> None:
    api = api_of()
    api.away = ("configmaps", "secrets")
    code, document = await explained(api)
    assert code is ExitCode.UNKNOWN
    assert [each["inPlace"] for each in document["rings"]] == [None, None]


async def test_leases_and_leader_that_fail_leave_it_open() -> None:
    api = api_of()
    api.failing = {("list", "leases"): FAILURES[1], ("get", "leases"): FAILURES[1]}
    code, document = await explained(api)
    assert code is ExitCode.UNKNOWN
    assert {each["what"] for each in document["unread"]} == {
        "leases of all namespaces", "the sharder's lease sharding-system/sharder",
    }  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
async def test_a_ring_whose_name_makes_no_label_is_passed_over(name: str) -> None:
    _, document = await explained(api_of(name))
    assert {each["ring"] for each in document["rings"]} == {"checksum", "plain"}


async def test_without_the_rings_nothing_is_explained_or_granted() -> None:
    api = api_of()
    api.failing = {("list", "clusterrings"): FAILURES[1], ("get", "clusterrings"): FAILURES[1]}
    with pytest.raises(ShardingError, match="503 ServiceUnavailable"):
        await explained(api)
    with pytest.raises(ShardingError, match="or pass its manifest with -f"):
        await print_roles_of_ring(session_of(api), "plain", LEASE)


async def explain_only(spec: dict[str, Any], *, drain: bool = False, **status: Any) -> tuple[ExitCode, Any]:
    """What is said of a ConfigMap with the labels of the ring, the only one."""
    server = MemoryServer()
    server.arrange(CLUSTERRINGS, raw_ring(spec=spec, **status), None)
    server.create(CONFIGMAPS, manifest("a", "one", owner="b", drain=drain), "default")
    code, document = await explained(Discovering(server, Wall(), set()))
    [made] = document["rings"]
    assert (made["ring"], made["shard"], made["decision"]) == ("checksum", "one", None)
    return code, made


async def test_what_a_ring_needs_and_is_not_served_is_named() -> None:
    widgets = {"group": "example.com", "resource": "widgets", "controlledResources": [{"resource": "configmaps"}]}
    code, made = await explain_only({"resources": [widgets]})
    assert (code, made["inPlace"], made["role"]) == (ExitCode.WRONG, False, "controlled")
    assert made["because"] == ["the API server does not serve widgets.example.com"]
    assert made["then"] == "it stays as it is until widgets.example.com is served"
    assert made["missing"] == ["widgets.example.com: install its CustomResourceDefinition, or take it off the ring"]


@pytest.mark.parametrize(
    ("placed", "drain", "then"),
    [
        ({"resource": "configmaps"}, False, "the next resync asks one to let go of it (drain label); then it is n"),
        ({"resource": "configmaps"}, True, "one has been asked to let go of it (drain label) and has not answered yet"),
        ({"resource": "configmaps", "controlled": True}, False, "the sharder takes the labels off, once the owners"),
        ({"resource": "secrets"}, False, "it keeps the labels: the ring's status does not have the resource among"),
    ],
)
async def test_of_a_resource_that_was_taken_off_the_ring_labels_are_explained(
    placed: dict[str, Any], drain: bool, then: str
) -> None:
    code, made = await explain_only({"resources": [{"resource": "secrets"}]}, drain=drain, placedResources=[placed])
    assert (code, made["inPlace"], made["draining"]) == (ExitCode.WRONG, False, drain)
    assert made["because"] == ["the ring lists its resource no longer"]
    assert made["then"].startswith(then)
    assert len(made["missing"]) == 1


async def test_a_ring_that_is_invalid_explains_what_has_its_labels() -> None:
    twice = {"resources": [{"resource": "configmaps"}, {"resource": "configmaps"}]}
    code, made = await explain_only(twice)
    assert (code, made["inPlace"]) == (ExitCode.WRONG, False)
    assert made["because"][0].startswith("spec.resources[1]: ")
    assert made["missing"] == ["a ring that can be used: correct ClusterRing checksum"]

    server = MemoryServer()
    server.arrange(CLUSTERRINGS, raw_ring(spec=twice), None)
    server.create(CONFIGMAPS, manifest("a"), "default")
    session = session_of(Discovering(server, Wall(), set()))
    assert await show_explanation(session, "configmaps", "a", LEASE) is ExitCode.WRONG
    assert "no ring lists configmaps (of rings that are invalid nobody can tell: checksum); nothing" in said(session)
