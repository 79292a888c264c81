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
from shardsdk.protocol.leases import Lease
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


async def explain_only(
    spec: dict[str, Any],
    *leases: Lease,
    shard: str | None = "one",
    drain: bool = False,
    failing: tuple[tuple[str, str], ...] = (),
    **status: Any,
) -> tuple[ExitCode, Any]:
    """What is said of a ConfigMap with the labels of the ring, the only one; of `leases`, one may be the sharder's."""
    server = MemoryServer()
    server.arrange(CLUSTERRINGS, raw_ring(spec=spec, **status), None)
    for each in leases:
        server.create(LEASES, msgspec.to_builtins(each), each.metadata.namespace)
    server.create(CONFIGMAPS, manifest("a", shard, owner="b", drain=drain), "default")
    api = Discovering(server, Wall(), set())
    api.failing = dict.fromkeys(failing, FAILURES[1])
    code, document = await explained(api)
    [made] = document["rings"]
    assert (made["ring"], made["shard"]) == ("checksum", shard)
    return code, made


async def test_what_a_ring_needs_and_is_not_served_is_named() -> None:
    widgets = {"group": "example.com", "resource": "widgets", "controlledResources": [{"resource": "configmaps"}]}
    code, made = await explain_only({"resources": [widgets]})
    assert (code, made["inPlace"], made["role"]) == (ExitCode.WRONG, False, "controlled")
    assert made["because"] == ["the API server does not serve widgets.example.com"]
    assert made["then"] == "it stays as it is until widgets.example.com is served"
    assert made["missing"] == ["widgets.example.com: install its CustomResourceDefinition, or take it off the ring"]


OFF: dict[str, Any] = {"resources": [{"resource": "secrets"}]}
MAIN: dict[str, Any] = {"placedResources": [{"resource": "configmaps"}]}
CHILD: dict[str, Any] = {"placedResources": [{"resource": "configmaps", "controlled": True}]}
LEADER = lease("sharder", holder="sharder-1", namespace="sharding-system", ring="")
ASKS = "the next resync asks one to let go of it (drain label); then it is nobody's"
ASKED = (
    "one has been asked to let go (drain label) and has not acknowledged that yet (one write that takes both labels off"
    " and does nothing else)"
)
TAKES = "the sharder takes the labels off: it left the ring's scope"
ANSWER = "the answer of one: look into its log, or stop it, and its objects move without it"
OWNERS_FIRST = "the sharder takes the labels off, once the owners that leave the ring have left their shards"
RELIST = "somebody who takes the labels off: list the resource once more, and take it off while a sharder leads"


@pytest.mark.parametrize(
    ("leases", "placed", "drain", "decision", "then", "missing"),
    [
        ([lease("one")], MAIN, False, "DRAIN", ASKS, []),
        ([lease("one")], MAIN, True, "AWAIT", ASKED, [ANSWER]),
        ([], MAIN, False, "RELEASE", TAKES, []),
        ([lease("one", holder="", state="dead")], MAIN, True, "RELEASE", TAKES, []),
        ([lease("one")], CHILD, False, "RELEASE", OWNERS_FIRST, []),
        ([], CHILD, True, "RELEASE", OWNERS_FIRST, []),
    ],
)
async def test_of_a_resource_that_was_taken_off_the_ring_the_shards_lease_decides(
    leases: list[Lease], placed: dict[str, Any], drain: bool, decision: str, then: str, missing: list[str]
) -> None:
    code, made = await explain_only(OFF, LEADER, *leases, drain=drain, **placed)
    assert (code, made["inPlace"], made["draining"]) == (ExitCode.WRONG, False, drain)
    assert made["because"] == ["the ring lists its resource no longer"]
    assert (made["decision"], made["then"], made["missing"]) == (decision, then, missing)


async def test_two_leases_of_one_name_keep_what_was_taken_off_the_ring_where_it_is() -> None:
    _, made = await explain_only(OFF, LEADER, lease("one"), lease("one", namespace="other"), drain=True, **MAIN)
    assert (made["decision"], made["missing"]) == (
        "DEFER", ["a name of its own for each shard: one is held in more than one namespace"],
    )  # fmt: skip


@pytest.mark.parametrize("placed", [MAIN, CHILD])
async def test_of_a_resource_that_was_taken_off_the_ring_is_told_what_keeps_the_sharder(placed: dict[str, Any]) -> None:
    refused = {"type": "Settled", "status": "False", "reason": "Refused", "message": "1 stranded"}
    _, made = await explain_only(OFF, conditions=[refused], observedGeneration=0, **placed)
    sharder, spec, placement = made["missing"]
    assert sharder.startswith("a sharder: there is no lease sharding-system/sharder: no sharder has ever led here")
    assert spec == "a sharder that has seen the ring's present spec"
    assert "Event PlacementRefused has one, and why (kubectl describe clusterring checksum)" in placement


async def test_without_the_leases_it_is_open_what_becomes_of_a_resource_taken_off_the_ring() -> None:
    code, made = await explain_only(OFF, lease("one"), failing=(("list", "leases"),), **MAIN)
    assert (code, made["inPlace"], made["decision"]) == (ExitCode.UNKNOWN, None, None)
    assert made["because"] == ["the ring lists its resource no longer"]
    assert made["then"] == "not known: not everything could be read"


@pytest.mark.parametrize(
    ("shard", "drain", "placed", "why"),
    [
        ("one", False, {}, "the ring's status does not have the resource among placedResources"),
        (None, True, {}, "the ring's status does not have the resource among placedResources"),
        (None, True, MAIN, "the sharder goes by the shard label, and there is only the drain label"),
        (None, True, CHILD, "the sharder goes by the shard label, and there is only the drain label"),
    ],
)
async def test_labels_of_a_resource_off_the_ring_that_no_sharder_looks_for_stay(
    shard: str | None, drain: bool, placed: dict[str, Any], why: str
) -> None:
    code, made = await explain_only(OFF, LEADER, lease("one"), shard=shard, drain=drain, **placed)
    assert (code, made["inPlace"], made["decision"]) == (ExitCode.WRONG, False, None)
    assert made["because"] == ["the ring lists its resource no longer"]
    assert (made["then"], made["missing"]) == (f"it keeps the labels: {why}", [RELIST])


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
