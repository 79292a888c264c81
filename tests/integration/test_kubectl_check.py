"""`kubectl sharding explain` and `check` on a real control plane with a real sharder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import AdminClient, ControlPlane
from sharder.rbac import ring_role_name
from tests.integration.harness import Stage
from tests.integration.plugin import Plugin, Said, granted, make_account
from tests.integration.world import RINGS, Ring

VIEWER = yaml.safe_load((Path(__file__).parents[2] / "rbac" / "viewer.yaml").read_text())
Findings = dict[str, list[dict[str, Any]]]


async def check(
    plugin: Plugin, ring: Ring, holds: Callable[[Findings], bool], *arguments: str, code: int | None = None
) -> Findings:
    """Check until `holds` of the findings by level, ending with `code`."""
    lease = f"sharding-system/sharder-{ring.namespace}"
    findings: Findings = {}

    def found(said: Said) -> bool:
        assert said.code in (0, 1, 3), said.err
        findings.clear()
        for each in said.data["findings"]:
            findings.setdefault(each["level"], []).append(each)
        return holds(findings) and code in (None, said.code)

    try:
        await plugin.until(found, "sharding", "check", ring.name, "--lease", lease, "-o", "json", *arguments)
    except TimeoutError:
        raise TimeoutError(f"not found: {findings}") from None
    return findings


def says(level: str, topic: str, words: str) -> Callable[[Findings], bool]:
    """Whether a finding of this level and topic has these words."""

    def holds(findings: Findings) -> bool:
        return any(each["topic"] == topic and words in each["message"] for each in findings.get(level, ()))

    return holds


async def test_a_ring_in_order_passes_every_check(plugin: Plugin, ring: Ring) -> None:
    findings = await check(plugin, ring, lambda found: not found.keys() - {"ok"}, code=0)
    assert {each["topic"] for each in findings["ok"]} == {
        "sharder", "permissions", "definitions", "spec", "namespaces", "shards", "objects", "drains", "certificates",
        "reachable",
    }  # fmt: skip
    assert says("ok", "reachable", "the webhook put a label back that a dry run had taken off")(findings)


async def test_the_dry_run_leaves_the_object_as_it_was(plugin: Plugin, ring: Ring) -> None:
    before = await ring.versions()
    await check(plugin, ring, says("ok", "reachable", "put a label back"))
    assert await ring.versions() == before


async def test_text_has_a_line_and_a_remedy_for_each(plugin: Plugin, ring: Ring) -> None:
    said = await plugin.sharding("check", ring.name, "--lease", "sharding-system/nobody", "--quiet")
    assert (said.code, said.err) == (1, "")
    lines = said.out.splitlines()
    assert lines[0] == "Sharder"
    assert lines[1].startswith("  ✗ sharder       there is no lease sharding-system/nobody")
    assert lines[2].strip().startswith("→ start the sharder")
    assert lines[-1].startswith("1 problem")


async def test_a_webhook_that_does_not_answer_is_found_by_calling_it(plugin: Plugin, stage: Stage, ring: Ring) -> None:
    for sharder in stage.sharders:
        await sharder.webhook_off()
    await check(plugin, ring, says("problem", "reachable", "did not put a label back"), code=1)
    await check(plugin, ring, lambda found: "problem" not in found, "--no-probe", code=0)


async def test_missing_permissions_are_found_and_the_remedy_mends_them(
    plugin: Plugin, stage: Stage, admin: AdminClient
) -> None:
    # A type of its own: what the role of any other ring lets the sharder do with Secrets holds for the whole cluster.
    ships = await stage.install_type("Ship")
    ring = await stage.ring(ships)
    await stage.sharder()
    role = "rbac.authorization.k8s.io/v1/clusterroles"
    await admin.delete(role, ring_role_name(ring.name))

    def lacking(findings: Findings) -> bool:
        words = f"may not list ships.{ships.group}"
        return any(says(level, "permissions", words)(findings) for level in ("problem", "warning"))

    await check(plugin, ring, lacking)
    roles = await plugin.sharding("rbac", ring.name)
    assert roles.code == 0
    assert (await plugin.run("apply", "-f", "-", stdin=roles.out)).code == 0
    await check(plugin, ring, says("ok", "permissions", "may list, watch, patch every resource of the ring"))


async def test_what_is_wrong_with_a_ring_is_found(plugin: Plugin, stage: Stage, ring: Ring, admin: AdminClient) -> None:
    await ring.update({"namespaceSelector": {"matchLabels": {"no": "namespace"}}})
    await check(plugin, ring, says("problem", "namespaces", "no namespace is selected by"), code=1)
    await ring.update({"resources": [{"group": "example.com", "resource": "nonsenses"}]})
    await check(plugin, ring, says("problem", "spec", "the API server does not serve nonsenses.example.com"), code=1)


async def test_shards_of_one_name_and_of_no_ring_are_found(
    plugin: Plugin, stage: Stage, ring: Ring, admin: AdminClient
) -> None:
    other = (await admin.create("v1/namespaces", {"metadata": {"generateName": "test-"}}))["metadata"]["name"]
    lease = {"holderIdentity": "one", "leaseDurationSeconds": 3600}
    labels = {"alpha.sharding.timebertt.dev/clusterring": ring.name}
    path = "coordination.k8s.io/v1/leases"
    await admin.create(path, {"metadata": {"name": "one", "labels": labels}, "spec": lease}, other)
    try:
        await check(plugin, ring, says("problem", "shards", "the name one is held in several namespaces"), code=1)
        labels = {"alpha.sharding.timebertt.dev/clusterring": f"{ring.name}-gone"}
        await admin.create(path, {"metadata": {"name": "lost", "labels": labels}, "spec": lease}, other)
        said = await plugin.sharding("check")
        assert said.code == 1
        assert f"{other}/lost belong to ring {ring.name}-gone, which is not there" in said.out
    finally:
        await admin.delete("v1/namespaces", other)


async def test_with_the_viewers_role_everything_but_the_certificate_and_the_call_is_checked(
    plugin: Plugin, ring: Ring, admin: AdminClient, installed: ControlPlane
) -> None:
    viewer = plugin.as_user(await make_account(installed, admin, ring.namespace))
    resources = {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["list"]}
    async with granted(admin, ring.namespace, [*VIEWER["rules"], resources]):
        findings = await check(viewer, ring, lambda found: not found.keys() - {"ok", "skipped"}, code=0)
        assert {each["topic"] for each in findings["skipped"]} == {"certificates", "reachable"}
        said = await viewer.sharding("explain", "secret", "object-1", "-n", ring.namespace)
        assert (said.code, said.err) == (0, "")


# -- explain --------------------------------------------------------------------


async def test_an_object_and_its_child_are_explained(plugin: Plugin, ring: Ring) -> None:
    [owner] = [each for each in await ring.objects() if each["metadata"]["name"] == "object-1"]
    said = await plugin.sharding("explain", "secret/object-1", "-n", ring.namespace, "-o", "json")
    assert said.code == 0
    [explained] = said.data["rings"]
    assert explained["ring"] == ring.name
    assert explained["key"] == f"/Secret/{ring.namespace}/object-1"
    assert explained["shard"] == explained["desiredShard"] == ring.shard_of(owner)
    assert (explained["decision"], explained["inPlace"]) == ("KEEP", True)
    [child] = [
        each["metadata"]["name"]
        for each in await ring.objects("v1/configmaps")
        if each["metadata"]["ownerReferences"][0]["name"] == "object-1"
    ]
    said = await plugin.sharding("explain", "cm", child, "-n", ring.namespace)
    assert said.code == 0
    assert f"children follow their owner: Secret object-1 is on shard {ring.shard_of(owner)}" in said.out


async def test_an_object_that_nobody_owns_says_what_is_missing(plugin: Plugin, stage: Stage, ring: Ring) -> None:
    for shard in stage.shards:
        await shard.release()
    await ring.create(name="late")

    def told(said: Said) -> bool:
        assert said.code == 1
        return "an available shard: start one" in said.out

    said = await plugin.until(told, "sharding", "explain", "secrets", "late", "-n", ring.namespace)
    assert "it waits: no shard of the ring is available" in said.out


async def test_the_label_of_a_deleted_ring_is_named(plugin: Plugin, ring: Ring, admin: AdminClient) -> None:
    await admin.delete(RINGS, ring.name)
    said = await plugin.sharding("explain", "secrets", "object-1", "-n", ring.namespace)
    assert said.code == 1
    assert f"ring {ring.name} is not there; `kubectl sharding cleanup {ring.name}` takes its labels off" in said.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense", "a"], "the API server serves no resource called 'nonsense'"),
        (["secrets", "no-such-secret"], "there is no Secret 'no-such-secret' in namespace default"),
        (["secrets"], "say which object: `explain RESOURCE NAME`"),
    ],
)
async def test_what_is_not_there_is_one_line(plugin: Plugin, arguments: list[str], words: str) -> None:
    said = await plugin.sharding("explain", *arguments)
    assert (said.code, said.out) == (2, "")
    [line] = said.err.splitlines()
    assert line.startswith(f"kubectl-sharding: {words}")


async def test_objects_are_offered_by_the_shell(plugin: Plugin, ring: Ring) -> None:
    assert "object-1" in await plugin.offered("explain", "secrets", "-n", ring.namespace, "object-1")
    assert await plugin.offered("explain", "sec") == ["secrets"]
