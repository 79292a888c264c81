"""Rings that come, change and go, and rings that cannot be used; what their conditions and Events say."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster import AdminClient, AdminError, ControlPlane
from tests.integration.harness import REPOSITORY, Stage, set_stage
from tests.integration.scripted import LEASES
from tests.integration.world import LONE_SECRETS, RINGS, SECRETS, TIMEOUT_SECONDS, WEBHOOKS, Family, Ring

#: Between two requests of those that go on all the time: however long a machine takes, what they make stays little.
PAUSE_SECONDS = 0.03


async def test_a_ring_created_changed_and_deleted_while_requests_run(stage: Stage) -> None:
    """No request fails, whatever becomes of the ring; what is left in the end is in place."""
    await stage.sharder()
    stopped, made = asyncio.Event(), 0
    recent: deque[str] = deque(maxlen=10)
    placeholder = Ring(stage.admin, stage.namespace, stage.namespace, (SECRETS,))

    async def keep_creating() -> None:
        nonlocal made
        while not stopped.is_set():
            owner = await placeholder.create(generateName="main-") if made % 3 else await placeholder.create()
            await placeholder.create_child(owner)
            recent.append(owner["metadata"]["name"])
            made += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def keep_writing() -> None:
        while not stopped.is_set():
            for name in tuple(recent):
                await placeholder.patch(name, {"data": {"count": "MQ=="}})
            await asyncio.sleep(PAUSE_SECONDS)

    async def some_more() -> None:
        enough = made + 15
        while made < enough:
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as requests:
        for _ in range(2):
            requests.create_task(keep_creating())
        requests.create_task(keep_writing())
        await some_more()
        ring = await stage.ring()
        await stage.shard(ring, "one")
        await stage.shard(ring, "two")
        await ring.in_force()
        await some_more()
        await ring.update({"resources": [LONE_SECRETS.render()]})
        await some_more()
        await ring.update({"resources": [SECRETS.render()]})
        await ring.condition("Ready")
        await some_more()
        await stage.admin.delete(RINGS, ring.name)
        name = f"clusterring-{ring.name}"
        await stage.admin.eventually(WEBHOOKS, lambda found: name not in {each["metadata"]["name"] for each in found})
        await some_more()
        spec = {"resources": [SECRETS.render()], "namespaceSelector": {"matchLabels": {"none": "such"}}}
        await stage.admin.create(RINGS, {**RING, "metadata": {"name": ring.name}, "spec": spec})
        selector = {"matchLabels": {"none": None, "kubernetes.io/metadata.name": stage.namespace}}
        await ring.update({"namespaceSelector": selector})
        await ring.in_force()
        await some_more()
        stopped.set()
    await ring.in_place()
    await ring.condition("Settled")


async def test_what_was_main_and_is_controlled_by_nothing_in_the_ring_is_released_for_good(stage: Stage) -> None:
    """The webhook is called for that write as for anybody's, and puts nothing back."""
    ring = await stage.ring(LONE_SECRETS, Family("v1/configmaps", "ConfigMap"))
    one = await stage.shard(ring, "one")
    sharder = await stage.sharder()
    await ring.in_force()
    account = await stage.admin.create("v1/serviceaccounts", {"metadata": {"name": "other"}}, stage.namespace)
    reference = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "other", "uid": account["metadata"]["uid"]}
    await ring.create("v1/configmaps", name="its", ownerReferences=[{**reference, "controller": True}])
    await ring.until_on("its", "one", "v1/configmaps")
    await ring.condition("Settled")
    await one.release()
    await ring.update({"resources": [SECRETS.render()]})
    await stage.shard(ring, "two", mains=[SECRETS.main])
    await ring.until_on("its", None, "v1/configmaps")
    assert (ring.name, "not_ours") in sharder.outcomes
    assert (ring.name, "restored") not in sharder.outcomes
    await ring.condition("Settled")
    # Nor does the sharder keep the lease of the shard that is gone.
    holders = {"", "two"}
    await stage.admin.eventually(
        LEASES, lambda leases: {each["spec"]["holderIdentity"] for each in leases} <= holders, stage.namespace
    )


RING = {"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing"}
#: Names of 43 and more characters are cut, and then end in a dash.
UNUSABLE_NAME = "a" * 41 + "-b"


async def test_a_ring_whose_name_cannot_be_a_label_is_refused_by_the_api_server(stage: Stage) -> None:
    for name, why in ((UNUSABLE_NAME, "cannot become a label name"), ("a" * 64, "at most 63 characters")):
        with pytest.raises(AdminError, match=why):
            await stage.admin.create(RINGS, {**RING, "metadata": {"name": name}, "spec": {"resources": []}})


def without_validation(schema: Any) -> Any:
    """A schema as an older CRD had it: structure alone."""
    dropped = {"maxLength", "pattern", "maxItems", "maxProperties", "enum", "required", "default"}
    if isinstance(schema, dict):
        return {
            key: {name: without_validation(each) for name, each in value.items()}
            if key == "properties"
            else without_validation(value)
            for key, value in schema.items()
            if key not in dropped
            and (not key.startswith("x-kubernetes") or key == "x-kubernetes-preserve-unknown-fields")
        }
    return [without_validation(each) for each in schema] if isinstance(schema, list) else schema


#: What is wrong with a spec, and words of the condition that says so.
BAD_SPECS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "twice": ({"resources": [{"resource": "secrets"}, {"resource": "secrets"}]}, ("spec.resources[1]", "secrets")),
    "both-main-and-controlled": (
        {"resources": [{"resource": "secrets", "controlledResources": [{"resource": "secrets"}]}]},
        ("secrets", "controlled"),
    ),
    "no-plural": ({"resources": [{"group": "apps"}]}, ("spec.resources[0].resource",)),
    "wildcard": ({"resources": [{"resource": "*"}]}, ("spec.resources[0].resource",)),
    "bad-selector": (
        {
            "resources": [{"resource": "secrets"}],
            "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]},
        },
        ("spec.namespaceSelector.matchExpressions[0]", "Like"),
    ),
}


async def test_rings_that_an_older_crd_lets_in_are_refused_with_all_reasons_and_recover(
    fresh_control_plane: ControlPlane, tmp_path: Path
) -> None:
    crd = yaml.safe_load((REPOSITORY / "crds" / "clusterrings.yaml").read_text())
    for version in crd["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"] = without_validation(version["schema"]["openAPIV3Schema"])
    older = tmp_path / "crd.yaml"
    older.write_text(yaml.safe_dump(crd))
    await fresh_control_plane.apply(older, REPOSITORY / "rbac" / "sharder.yaml")
    async with fresh_control_plane.admin() as admin, set_stage(fresh_control_plane, admin, "default") as stage:
        good = await stage.ring()
        await stage.shard(good, "one")
        await stage.sharder()
        await good.in_force()
        rings = {name: Ring(admin, name, "default", (SECRETS,)) for name in (*BAD_SPECS, UNUSABLE_NAME)}
        for name in rings:
            spec = BAD_SPECS[name][0] if name in BAD_SPECS else {"resources": [{"resource": "secrets"}]}
            await admin.create(RINGS, {**RING, "metadata": {"name": name}, "spec": spec})
        for name, ring in rings.items():
            condition = await ring.condition("Ready", "False")
            assert condition["reason"] == "ReconciliationFailed"
            for word in BAD_SPECS[name][1] if name in BAD_SPECS else ("shorter ring name",):
                assert word in condition["message"]
            event = await ring.events("ReconciliationFailed")
            assert event["type"] == "Warning"
            assert await admin.find(WEBHOOKS, f"clusterring-{name}") is None
        broken = rings["twice"]
        await broken.update({"resources": [SECRETS.render()]})
        await broken.condition("Ready")
        await broken.update({"resources": [SECRETS.render(), SECRETS.render()]})
        await broken.condition("Ready", "False")
        await admin.eventually(WEBHOOKS, lambda found: "clusterring-twice" not in str(found))
        await good.create_families(2, {"one"})
        await good.in_place()

        # The CRD of today refuses such a name to new rings alone: of one that is there the status can be written.
        before = await admin.get(RINGS, UNUSABLE_NAME)
        await fresh_control_plane.apply(REPOSITORY / "crds", REPOSITORY / "rbac" / "sharder.yaml")
        await until_refused(admin, "a" * 64)
        conditions = [dict(each, message="written") for each in before["status"]["conditions"]]
        await admin.patch(RINGS, UNUSABLE_NAME, {"status": {"conditions": conditions}}, subresource="status")


async def until_refused(admin: AdminClient, name: str) -> None:
    """A CRD that was applied is in force a moment later: wait until a ring of this name is refused."""
    for _ in range(600):
        try:
            await admin.create(RINGS, {**RING, "metadata": {"name": name}, "spec": {"resources": []}})
        except AdminError:
            return
        await admin.delete(RINGS, name)
        await asyncio.sleep(0.1)
    raise AssertionError(f"a ring called {name} is accepted")


async def test_two_shards_of_one_name_get_nothing_and_keep_what_they_have(stage: Stage) -> None:
    elsewhere = (await stage.admin.create("v1/namespaces", {"metadata": {"generateName": "test-"}}))["metadata"]["name"]
    ring = await stage.ring()
    await stage.shard(ring, "one")
    await stage.shard(ring, "two")
    await stage.sharder()
    await ring.in_force()
    places = await ring.create_families(3, {"one", "two"})
    await ring.in_place()
    versions = await ring.versions()
    twin = await stage.shard(ring, "two", namespace=elsewhere)
    condition = await ring.condition("ShardNamesUnique", "False")
    assert "two" in condition["message"]
    assert "a name of its own" in condition["message"]
    await ring.events("Ambiguous")
    for name in ring.pick_names(2, {"one", "two"}):
        assert ring.shard_of(await ring.create(name=name)) == "one"
    assert versions.items() <= (await ring.versions()).items()
    await twin.release()
    await ring.condition("ShardNamesUnique")
    await ring.events("Unique")
    await ring.in_place({"one", "two"})
    assert (await ring.shards_of()).items() >= places.items()
    await stage.admin.delete("v1/namespaces", elsewhere)


async def test_the_settled_condition_turns_true_when_everything_is_in_place_and_not_before(stage: Stage) -> None:
    ring = await stage.ring()
    one = await stage.shard(ring, "one")
    await stage.sharder()
    await ring.in_force()
    await ring.create_families(3, {"one", "two"})
    await ring.condition("Settled")
    one.acknowledging.clear()
    await stage.shard(ring, "two")
    condition = await ring.condition("Settled", "False")
    assert condition["reason"] == "Moving"
    await stage.admin.eventually(RINGS, lambda found: "3 draining" in str(found))
    (found,) = [each for each in await stage.admin.list(RINGS) if each["metadata"]["name"] == ring.name]
    assert found["status"]["draining"] == 3
    assert found["status"]["shards"] == found["status"]["availableShards"] == 2
    one.acknowledging.set()
    await ring.condition("Settled")
    assert await ring.faults() == []


async def test_drains_that_nobody_acknowledges_show_and_are_gone_once_acknowledged(stage: Stage) -> None:
    ring = await stage.ring()
    one = await stage.shard(ring, "one")
    sharder = await stage.sharder(drain_alarm_seconds=1.0)
    await ring.in_force()
    await ring.create_families(2, {"one", "two"})
    one.acknowledging.clear()
    async with ring.history() as history:
        await stage.shard(ring, "two")
        condition = await ring.condition("DrainsAcknowledged", "False")
        assert "on shard one" in condition["message"]
        assert ring.namespace in condition["message"]
        event = await ring.events("Overdue")
        assert event["type"] == "Warning"
        labels = {"ringName": ring.name}
        assert sharder.metric("oldest_drain_age_seconds", **labels) >= 1.0
        assert sharder.metric("draining_objects", **labels, group="", resource="secrets") == 2
        # Nothing is torn from a living shard.
        assert all(stops[-1] in ("one", "one*") for stops in history.stops.values())
        one.acknowledging.set()
        await ring.condition("DrainsAcknowledged")
    await ring.events("Acknowledged")
    await ring.in_place({"one", "two"})
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while sharder.metric("oldest_drain_age_seconds", **labels):
            await asyncio.sleep(0.05)
