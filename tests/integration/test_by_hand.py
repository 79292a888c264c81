"""What people and policies do to objects behind the sharder's back, and where that leads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from localcluster import AdminError
from localcluster.admin import path_of
from sharder.core import observed
from tests.integration.harness import Sharder, Stage
from tests.integration.world import BODIES, LONE_SECRETS, TIMEOUT_SECONDS, Family, Ring

CHILDREN = "v1/configmaps"
JOBS = Family("batch/v1/jobs", "Job")
POLICIES = "admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDINGS = "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

#: Who waits for a shard that was never seen waits in vain.
LONGER_THAN_ANY_TEST = 3600.0


async def set_up(
    stage: Stage, *, sync_period_seconds: float = 300.0, webhook: bool = True, **spec: Any
) -> tuple[Ring, Sharder]:
    ring = await stage.ring(**spec)
    await stage.shard(ring, "one")
    await stage.shard(ring, "two")
    sharder = await stage.sharder(sync_period_seconds=sync_period_seconds, webhook=webhook)
    if webhook:
        await ring.in_force()
    return ring, sharder


async def test_a_drain_label_without_a_shard_is_taken_off_with_the_placement(stage: Stage) -> None:
    ring, _ = await set_up(stage)
    drain = {ring.labels[1]: "true"}
    await ring.create(labels=drain, name="by-name")
    await ring.create(labels=drain, generateName="generated-")
    await ring.in_place()


async def test_labels_that_no_lease_can_have_the_name_of_are_replaced_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed, "UNSEEN_SECONDS", LONGER_THAN_ANY_TEST)
    ring, _ = await set_up(stage, webhook=False)
    owner = await ring.create(name="mine", labels={ring.labels[0]: "No_Shard"})
    await ring.create_child(owner, name="child", labels={ring.labels[0]: "No_Shard_Either"})
    await ring.in_place()


async def test_an_empty_shard_label_is_no_shard(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "UNSEEN_SECONDS", LONGER_THAN_ANY_TEST)
    ring, _ = await set_up(stage, webhook=False)
    await ring.create(name="mine", labels={ring.labels[0]: ""})
    await ring.in_place()


async def test_an_object_put_on_another_shard_by_hand_stays_where_it_is(stage: Stage) -> None:
    ring, sharder = await set_up(stage)
    places = await ring.create_families(1, {"one", "two"})
    name = next(name for name, shard in places.items() if shard == "one")
    await account_in_force(ring, sharder)
    async with ring.history() as history:
        patched = await ring.patch(name, {"metadata": {"labels": {ring.labels[0]: "two"}, "annotations": {"a": "b"}}})
        assert ring.shard_of(patched) == "one"
        await ring.in_place()
    assert set(history.of(name)) == {"one"}


async def test_a_shard_label_that_is_changed_or_removed_with_the_status_is_put_back(stage: Stage) -> None:
    """Of most built-in kinds a write of the status may change labels, too."""
    ring = await stage.ring(LONE_SECRETS, JOBS)
    await stage.shard(ring, "one")
    await stage.shard(ring, "two")
    sharder = await stage.sharder()
    await ring.in_force()
    await account_in_force(ring, sharder)
    spec = {"suspend": True, "template": {"spec": {**BODIES["v1/pods"]["spec"], "restartPolicy": "Never"}}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mine"}, "spec": spec}
    made = await stage.admin.request("POST", path_of(JOBS.main, ring.namespace), body=body)
    shard = ring.shard_of(made)
    assert shard in ("one", "two")
    for label in ("two" if shard == "one" else "one", None):
        change = {"metadata": {"labels": {ring.labels[0]: label}, "annotations": {"changed": "yes"}}}
        await stage.admin.patch(JOBS.main, "mine", change, ring.namespace, subresource="status")
        found = await ring.get("mine", JOBS.main)
        assert (ring.shard_of(found), found["metadata"]["annotations"]["changed"]) == (shard, "yes")


async def account_in_force(ring: Ring, sharder: Sharder) -> None:
    """Until the API server lets the sharder know who changes labels: the sharder first has to learn its own name."""
    probe = await ring.create(name="probe")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        number = 0
        while True:
            number += 1
            change = {"metadata": {"labels": {ring.labels[0]: f"nobody-{number}"}}}
            path = f"/api/v1/namespaces/{ring.namespace}/secrets/{probe['metadata']['name']}"
            patched = await ring.admin.request(
                "PATCH", path, body=change, query={"dryRun": "All"}, content_type="application/merge-patch+json"
            )
            if ring.shard_of(patched) == ring.shard_of(probe):
                return


async def test_without_webhook_an_object_put_on_another_shard_by_hand_is_drained_back_by_the_next_resync(
    stage: Stage,
) -> None:
    ring, _ = await set_up(stage, sync_period_seconds=1.0, webhook=False)
    places = await ring.create_families(1, {"one", "two"})
    await ring.in_place()
    name = next(name for name, shard in places.items() if shard == "one")
    async with ring.history() as history:
        await ring.patch(name, {"metadata": {"labels": {ring.labels[0]: "two"}}})
        await ring.in_place()
    assert history.of(name)[:4] == ["one", "two", "two*", "-"]


async def test_an_object_that_gets_an_owner_later_goes_to_its_shard(stage: Stage) -> None:
    ring, _ = await set_up(stage)
    await ring.create(CHILDREN, name="adopted")
    owner = await ring.create()
    adopted = await ring.patch("adopted", {"metadata": {"ownerReferences": ring.reference_to(owner)}}, CHILDREN)
    assert ring.shard_of(adopted) == ring.shard_of(owner)


async def test_another_shards_orphan_that_is_adopted_follows_its_owner_by_the_next_resync(stage: Stage) -> None:
    """By somebody who leaves its label alone, as kubectl does and Go shards; `shardsdk.claim` brings it along."""
    ring, _ = await set_up(stage, sync_period_seconds=1.0)
    names = {shard: name for name, shard in ring.pick_names(1, {"one", "two"}).items()}
    await ring.create(CHILDREN, name="adopted", labels={ring.labels[0]: "two"})
    owner = await ring.create(name=names["one"])
    await ring.patch("adopted", {"metadata": {"ownerReferences": ring.reference_to(owner)}}, CHILDREN)
    await ring.until_on("adopted", "one", CHILDREN)
    await ring.in_place()


async def test_a_child_that_changes_its_owner_follows_by_the_next_resync(stage: Stage) -> None:
    ring, _ = await set_up(stage, sync_period_seconds=1.0)
    names = {shard: name for name, shard in ring.pick_names(1, {"one", "two"}).items()}
    first, second = [await ring.create(name=names[shard]) for shard in ("one", "two")]
    await ring.create_child(first, name="child")
    await ring.patch("child", {"metadata": {"ownerReferences": ring.reference_to(second)}}, CHILDREN)
    await ring.until_on("child", "two", CHILDREN)
    await ring.in_place()


async def test_where_unassigned_children_are_not_watched_webhook_and_resync_place_them(stage: Stage) -> None:
    ring, sharder = await set_up(stage, sync_period_seconds=1.0, watchUnassignedControlled=False)
    owner = await ring.create()
    assert ring.shard_of(await ring.create_child(owner)) == ring.shard_of(owner)
    await sharder.webhook_off()
    await ring.create_child(owner, name="missed")
    await ring.until_on("missed", ring.shard_of(owner), CHILDREN)


async def test_a_policy_that_refuses_one_objects_label_holds_up_no_other(stage: Stage) -> None:
    """Until the policy goes, that object waits; then it is placed without anyone's doing."""
    ring, sharder = await set_up(stage)
    await sharder.webhook_off()
    await ring.create(name="refused-too")
    await ring.in_place()
    await forbid_updates(stage, ring, "refused")
    try:
        await ring.create(name="refused")
        places = await ring.create_families(5, {"one", "two"})
        for name, shard in places.items():
            await ring.until_on(name, shard)
        # Numbers alone are written every few seconds only: at first it may say how many families were on their way.
        await ring.condition("Settled", "False", says="1 unassigned")
        event = await ring.events("PlacementRefused")
        assert event["type"] == "Warning"
        assert "secrets " in event["message"]
        assert f"{stage.namespace}/refused cannot be given to shard " in event["message"]
        assert "not this one" in event["message"]
    finally:
        await stage.admin.delete(POLICY_BINDINGS, stage.namespace)
        await stage.admin.delete(POLICIES, stage.namespace)
    await ring.in_place()
    await ring.condition("Settled")


async def forbid_updates(stage: Stage, ring: Ring, name: str) -> None:
    """Have the API server refuse every update of Secrets whose name begins so, and of `…-too`; in force on return."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["secrets"]}
    expression = f"!object.metadata.name.startsWith('{name}')"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "not this one"}],
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}
    binding = {
        "policyName": stage.namespace,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    await stage.admin.create(POLICIES, {"metadata": {"name": stage.namespace}, "spec": spec})
    await stage.admin.create(POLICY_BINDINGS, {"metadata": {"name": stage.namespace}, "spec": binding})
    in_force = False
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not in_force:
            try:
                await ring.patch(f"{name}-too", {"metadata": {"annotations": {"a": str(next(ring.numbers))}}})
            except AdminError as error:
                in_force = "not this one" in str(error)
