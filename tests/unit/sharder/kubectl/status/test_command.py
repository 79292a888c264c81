"""`kubectl sharding status`: what it shows of a ring, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import yaml

from sharder.kubectl.outcomes import ExitCode
from sharder.kubectl.session import Session
from sharder.kubectl.status.command import show_status
from shardsdk.errors import ConfigurationError, ConnectionFailed, ShardingError
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, Resource
from shardsdk.testing.memory import MemoryServer
from tests.unit.sharder.kubectl.rings import (
    CONFIGMAPS,
    FAILURES,
    SECRETS,
    SPEC,
    UNUSABLE,
    RestrictedApi,
    Wall,
    lease,
    manifest,
    members,
    raw_ring,
    said,
    session_of,
)


class Cluster:
    """A cluster in memory, with a ring `checksum`."""

    def __init__(self, *leases: Lease, spec: dict[str, Any] | None = None, ring: bool = True, **status: Any) -> None:
        self.server = MemoryServer()
        self.denied: set[tuple[str, str]] = set()
        self.failing: dict[tuple[str, str], ShardingError] = {}
        if ring:
            self.server.arrange(CLUSTERRINGS, raw_ring(spec=spec, **status), None)
        for each in leases:
            self.server.create(LEASES, msgspec.to_builtins(each), each.metadata.namespace)

    def put(self, resource: Resource, name: str, shard: str | None = None, **rest: Any) -> None:
        body = manifest(name, shard, **rest)
        self.server.create(resource, body, rest.get("namespace", "default"))

    def session(self, **options: Any) -> Session:
        clock = options.pop("clock", None) or Wall()
        api = RestrictedApi(self.server, clock, self.denied)
        api.failing = self.failing
        return session_of(api, clock=clock, **options)

    async def status(self, ring: str | None = "checksum", **options: Any) -> tuple[ExitCode, str]:
        session = self.session(**options)
        return await show_status(session, ring), said(session)


def settled(cluster: Cluster, *shards: str, each: int = 2) -> None:
    membership, left = members(*shards), dict.fromkeys(shards, each)
    number = 0
    while any(left.values()):
        number += 1
        shard = membership.target(f"/Secret/default/object-{number}")
        assert shard is not None
        if left[shard]:
            left[shard] -= 1
            cluster.put(SECRETS, f"object-{number}", shard)
            cluster.put(CONFIGMAPS, f"object-{number}-child", shard, owner=f"object-{number}")


async def test_a_settled_ring_fits_into_a_few_lines() -> None:
    cluster = Cluster(lease("one"), lease("two", renewed=4, held=10800))
    settled(cluster, "one", "two")
    code, text = await cluster.status()
    assert code is ExitCode.IN_ORDER
    assert text == (
        "Ring checksum  ready  2 of 2 shards available  settled  fullest shard at 1.00 of the mean\n"
        "  namespaces: kubernetes.io/metadata.name notin (kube-system, sharding-system)\n"
        "  label: shard.alpha.sharding.timebertt.dev/clusterring-96fa8f22-checksum\n"
        "\n"
        "  SHARD   STATE   RENEWED   HELD   SECRETS   CONFIGMAPS   DRAINING   SHARE\n"
        "  one     ready   1s ago    60s          2            2          0     50%\n"
        "  two     ready   4s ago    3h           2            2          0     50%\n"
    )


async def test_a_lease_that_was_given_back_is_held_by_nobody() -> None:
    _, text = await Cluster(lease("one"), lease("gone", holder="", state="dead", held=3600)).status()
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows["gone"][:5] == ["gone", "left", "1s", "ago", "-"]
    assert rows["one"][:5] == ["one", "ready", "1s", "ago", "60s"]


async def test_everything_that_is_amiss_is_said() -> None:
    cluster = Cluster(
        lease("one"),
        lease("two", holder=SHARDER_HOLDER, state="dead"),
        lease("old", renewed=100),
        conditions=[
            {"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "the ring is in use"},
            {
                "type": "DrainsAcknowledged",
                "status": "False",
                "reason": "Overdue",
                "message": "drains wait for their shard",
                "lastTransitionTime": "2030-01-01T11:58:00Z",
            },
        ],
    )
    cluster.put(SECRETS, "nobodys")
    cluster.put(SECRETS, "stranded", "two")
    cluster.put(SECRETS, "ghostly", "ghost")
    cluster.put(SECRETS, "leaving", "one", namespace="kube-system")
    cluster.put(SECRETS, "draining", "one", drain=True)
    code, text = await cluster.status()
    assert code is ExitCode.WRONG
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0].startswith("Ring checksum ready 2 of 3 shards available not settled")
    assert any(line.startswith("two dead, being emptied 1s ago 60s 1 0 0") for line in lines)
    assert any(line.startswith("ghost no lease 1 0 0") for line in lines)
    assert any(line.startswith("(nobody) 1 0") for line in lines)
    assert "! unassigned (no shard owns them): secrets 1 (default/nobodys)" in lines
    assert "! stranded (on a shard that is not available): secrets 2 (default/ghostly, default/stranded)" in lines
    assert "! draining (asked to leave their shard): secrets 1 (default/draining)" in lines
    assert "! leaving (labelled, but outside the ring's scope): secrets 1 (kube-system/leaving)" in lines
    assert "✗ DrainsAcknowledged (Overdue for 2m): drains wait for their shard" in lines
    assert any(line.startswith("! silent: old last renewed 100s ago and still counts as ready") for line in lines)


async def test_wide_shows_the_lease_and_every_condition() -> None:
    cluster = Cluster(lease("one", namespace="apps"))
    _, text = await cluster.status(output="wide")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "SHARD STATE RENEWED HELD NAMESPACE HOLDER DURATION FENCED TRANSITIONS" in lines[4]
    assert lines[5].startswith("one ready 1s ago 60s apps one 15s yes 0")
    assert "✓ Ready (ReconciliationSucceeded): the ring is in use" in lines


async def test_data_has_every_number() -> None:
    cluster = Cluster(lease("one"))
    cluster.put(SECRETS, "a", "one", drain=True)
    cluster.put(SECRETS, "b")
    _, text = await cluster.status(output="json")
    [ring] = json.loads(text)["rings"]
    assert (ring["name"], ring["ready"], ring["settled"]) == ("checksum", True, False)
    assert (ring["unassigned"], ring["stranded"], ring["draining"], ring["misplaced"]) == (1, 0, 1, 0)
    [shard] = ring["shards"]
    assert shard["objects"] == {"secrets": 1, "configmaps": 0}
    assert shard["draining"] == {"secrets": 1, "configmaps": 0}
    assert ring["balance"] == {"fullest": "one", "fullestOfMean": 1.0, "emptiest": "one", "emptiestOfMean": 1.0}
    _, again = await cluster.status(output="yaml")
    assert yaml.safe_load(again) == json.loads(text)


async def test_a_ring_without_shards_is_wrong() -> None:
    code, text = await Cluster().status()
    assert code is ExitCode.WRONG
    assert "0 of 0 shards available" in text


async def test_a_ring_that_no_sharder_has_seen_is_wrong() -> None:
    code, text = await Cluster(lease("one"), observedGeneration=0).status()
    assert (code, "spec not seen by a sharder yet" in text) == (ExitCode.WRONG, True)
    code, text = await Cluster(lease("one"), observedGeneration=None, conditions=None).status()
    assert (code, "not seen by a sharder" in text) == (ExitCode.WRONG, True)


async def test_a_ring_that_cannot_be_used_says_why() -> None:
    code, text = await Cluster(lease("one"), spec={"resources": [{"resource": "Secrets"}]}).status()
    assert code is ExitCode.WRONG
    assert "✗ spec.resources[0].resource: 'Secrets' is no resource; use its lower-case plural" in text


async def test_a_resource_that_is_not_served_is_said_and_the_rest_counted() -> None:
    cluster = Cluster(lease("one"), spec={"resources": [{"resource": "secrets"}, {"group": "x", "resource": "ys"}]})
    cluster.put(SECRETS, "a", "one")
    code, text = await cluster.status()
    assert code is ExitCode.WRONG
    assert "✗ the API server does not serve ys.x" in text
    assert "SECRETS" in text


async def test_a_resource_taken_off_the_ring_is_counted_while_it_has_labels() -> None:
    placed = [{"resource": "secrets"}, {"resource": "configmaps", "controlled": True}]
    cluster = Cluster(lease("one"), spec={"resources": [{"resource": "secrets"}]}, placedResources=placed)
    cluster.put(CONFIGMAPS, "left", "one")
    cluster.put(CONFIGMAPS, "others")
    code, text = await cluster.status()
    assert code is ExitCode.WRONG
    assert "! leaving (labelled, but outside the ring's scope): configmaps 1 (default/left)" in text


# -- with fewer rights -------------------------------------------------------


async def test_without_any_right_it_says_what_is_missing() -> None:
    cluster = Cluster(lease("one"))
    cluster.denied = {("get", "clusterrings"), ("list", "clusterrings"), ("list", "leases")}
    for ring in ("checksum", None):
        code, text = await cluster.status(ring)
        assert code is ExitCode.UNKNOWN
        assert 'the rule {apiGroups: ["sharding.timebertt.dev"], resources: ["clusterrings"]' in text


async def test_without_the_right_to_one_resource_the_rest_is_shown() -> None:
    cluster = Cluster(lease("one"))
    cluster.put(CONFIGMAPS, "child", "one", owner="a")
    cluster.denied = {("list", "secrets")}
    code, text = await cluster.status()
    assert code is ExitCode.UNKNOWN
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "one ready 1s ago 60s ? 1 0" in lines
    assert any(line.startswith("? not read: secrets: you may not read it; grant") for line in lines)


async def test_without_leases_objects_are_counted_by_label_and_not_judged() -> None:
    cluster = Cluster(lease("one"))
    cluster.put(SECRETS, "a", "ghost")
    cluster.denied = {("list", "leases")}
    code, text = await cluster.status()
    assert code is ExitCode.UNKNOWN
    assert "stranded" not in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "ghost ? 1 0 0" in lines


async def test_leases_of_one_namespace_do_when_one_namespace_is_asked_for() -> None:
    cluster = Cluster(lease("one"), lease("two", namespace="other"))
    cluster.put(SECRETS, "a", "two")
    cluster.put(SECRETS, "b", "two", namespace="other")
    cluster.denied = {("list", "leases")}
    code, text = await cluster.status(namespace="default")
    assert code is ExitCode.UNKNOWN
    assert "of objects in namespaces only those of default are counted" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "one ready 1s ago 60s 0 0 0" in [line.replace(" 0%", "") for line in lines]
    assert "two ? 1 0 0" in lines, "its lease may be in another namespace"
    assert "stranded" not in text
    assert text.startswith("Ring checksum  ready  1 of ? shards available")


async def test_scope_by_namespace_labels_that_cannot_be_read_is_said() -> None:
    selector = {"matchLabels": {"team": "a"}}
    cluster = Cluster(lease("one"), spec=SPEC | {"namespaceSelector": selector})
    cluster.put(SECRETS, "a")
    cluster.denied = {("list", "namespaces")}
    code, text = await cluster.status()
    assert code is ExitCode.UNKNOWN
    assert "! unknown: 1 secrets without shard, in or out of the ring's scope" in text
    assert "not read: namespaces" in text


async def test_scope_follows_the_labels_of_namespaces() -> None:
    cluster = Cluster(lease("one"), spec=SPEC | {"namespaceSelector": {"matchLabels": {"team": "a"}}})
    cluster.server.create(NAMESPACES, {"metadata": {"name": "default", "labels": {"team": "a"}}}, None)
    cluster.server.create(NAMESPACES, {"metadata": {"name": "other"}}, None)
    cluster.put(SECRETS, "mine")
    cluster.put(SECRETS, "foreign", namespace="other")
    _, text = await cluster.status()
    assert "secrets 1 (default/mine)" in text


# -- while the API server fails over something --------------------------------


def two_rings() -> Cluster:
    """`another` has Secrets alone and is in order, `checksum` has ConfigMaps as well."""
    cluster = Cluster(lease("one"), lease("other", ring="another"))
    cluster.server.arrange(CLUSTERRINGS, raw_ring("another", spec={"resources": [{"resource": "secrets"}]}), None)
    return cluster


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("verb", ["list", "discover"])
async def test_a_resource_that_fails_is_a_gap_and_everything_else_is_shown(verb: str, failure: ShardingError) -> None:
    cluster = two_rings()
    cluster.failing = {(verb, "configmaps"): failure}
    code, text = await cluster.status(None)
    assert code is ExitCode.UNKNOWN
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "Ring another ready 1 of 1 shard available settled"
    assert "Ring checksum ready 1 of 1 shard available not known whether settled" in lines
    assert "one ready 1s ago 60s 0 ? 0" in lines
    assert f"? not read: configmaps: {failure}" in lines
    another, checksum = json.loads((await cluster.status(None, output="json"))[1])["rings"]
    assert (another["settled"], another["unread"]) == (True, [])
    assert [each["name"] for each in checksum["shards"]] == ["one"]
    assert {each["resource"]: each["counted"] for each in checksum["resources"]} == {
        "secrets": True,
        "configmaps": False,
    }
    assert checksum["unread"] == [{"what": "configmaps", "why": str(failure), "remedy": ""}]
    assert (checksum["problems"], checksum["unassigned"]) == ([], None)


async def test_without_its_main_resource_a_child_has_no_key() -> None:
    cluster = two_rings()
    cluster.failing = {("discover", "secrets"): FAILURES[0]}
    code, text = await cluster.status("checksum", output="json")
    assert code is ExitCode.UNKNOWN
    found = json.loads(text)["rings"][0]
    assert [(each["resource"], each["counted"]) for each in found["resources"]] == [
        ("secrets", False),
        ("configmaps", False),
    ]
    assert [each["what"] for each in found["unread"]] == ["secrets"]


async def test_a_removed_resource_that_cannot_be_asked_for_leaves_it_open() -> None:
    placed = [{"resource": "secrets"}, {"resource": "configmaps", "controlled": True}]
    cluster = Cluster(lease("one"), spec={"resources": [{"resource": "secrets"}]}, placedResources=placed)
    cluster.failing = {("discover", "configmaps"): FAILURES[0]}
    code, text = await cluster.status()
    assert (code, "? not read: configmaps: " in text) == (ExitCode.UNKNOWN, True)


async def test_leases_that_fail_leave_the_objects_counted() -> None:
    cluster = two_rings()
    cluster.put(SECRETS, "a", "one")
    cluster.failing = {("list", "leases"): FAILURES[1]}
    code, text = await cluster.status()
    assert code is ExitCode.UNKNOWN
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "one ? 1 0 0" in lines
    assert f"? not read: leases of all namespaces: {FAILURES[1]}" in lines


async def test_rings_that_fail_are_a_gap_and_the_leases_of_one_are_shown_all_the_same() -> None:
    cluster = two_rings()
    cluster.failing = {("list", "clusterrings"): FAILURES[1], ("get", "clusterrings"): FAILURES[1]}
    code, text = await cluster.status(None, output="json")
    assert code is ExitCode.UNKNOWN
    assert [each["what"] for each in json.loads(text)["unread"]] == ["clusterrings"]
    code, text = await cluster.status()
    assert code is ExitCode.UNKNOWN
    assert text.startswith("Ring checksum  ring not read  1 of 1 shard available")


async def test_no_answer_at_all_ends_it() -> None:
    cluster = two_rings()
    cluster.failing = {("discover", "configmaps"): ConnectionFailed("refused")}
    with pytest.raises(ConnectionFailed):
        await cluster.status(None)


# -- names that cannot be used -------------------------------------------------


@pytest.mark.parametrize("name", UNUSABLE)
async def test_a_ring_whose_name_makes_no_label_says_so_and_others_are_shown(name: str) -> None:
    cluster = two_rings()
    cluster.server.arrange(CLUSTERRINGS, raw_ring(name), None)
    code, text = await cluster.status(None)
    assert code is ExitCode.WRONG
    paragraphs = {each.split()[1]: each for each in f"\n{text}".split("\nRing ")[1:] for each in [f"Ring {each}"]}
    assert paragraphs.keys() == {"another", "checksum", name}
    assert "  label: " not in paragraphs[name]
    assert f"  ✗ metadata.name: ring name '{name}' " in paragraphs[name]
    assert "1 of 1 shard available  settled" in paragraphs["checksum"]
    rings = {each["name"]: each for each in json.loads((await cluster.status(None, output="json"))[1])["rings"]}
    assert (rings[name]["shardLabel"], rings[name]["shards"], rings[name]["unread"]) == (None, None, [])
    assert len(rings[name]["problems"]) == 1
    assert [rings[each]["settled"] for each in ("another", "checksum")] == [True, True]


@pytest.mark.parametrize("name", UNUSABLE)
async def test_of_a_ring_that_may_not_be_read_the_name_alone_says_that_it_is_unusable(name: str) -> None:
    cluster = two_rings()
    cluster.denied = {("get", "clusterrings")}
    code, text = await cluster.status(name)
    assert (code, f"  ✗ ring name '{name}' " in text) == (ExitCode.WRONG, True)


# -- one, several, none ------------------------------------------------------


async def test_without_a_name_every_ring_is_shown() -> None:
    cluster = Cluster(lease("one"))
    cluster.server.arrange(CLUSTERRINGS, raw_ring("another"), None)
    code, text = await cluster.status(None)
    assert code is ExitCode.WRONG
    assert [line.split()[1] for line in text.splitlines() if line.startswith("Ring ")] == ["another", "checksum"]


async def test_no_rings_are_no_problem() -> None:
    assert await Cluster(ring=False).status(None) == (ExitCode.IN_ORDER, "There are no ClusterRings.\n")


async def test_a_ring_that_is_not_there_names_the_remedy() -> None:
    with pytest.raises(
        ConfigurationError, match="there is no ClusterRing 'nope' at https://here; look at `kubectl get"
    ):
        await Cluster().status("nope")
