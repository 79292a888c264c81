"""The webhook through real admission: what an API server does with our answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest_asyncio

from localcluster import AdminClient, ControlPlane
from sharder.core.views import RingView
from sharder.core.webhookconfig import CERTIFICATES_SECRET
from sharder.webhook.app import Limits
from shardsdk.kube.clock import SystemClock
from shardsdk.serving.certificate_spec import Lifetimes
from shardsdk.serving.secretstore import SelfManaged
from shardsdk.serving.x509 import parse_certificates
from tests.integration.admission import MANIFESTS, SHARDS, WEBHOOKS, Admission, membership, webhook_in_force
from tests.unit.shardsdk.serving.manual_clock import ManualClock


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(control_plane: ControlPlane) -> ControlPlane:
    await control_plane.apply(*MANIFESTS)
    return control_plane


@pytest_asyncio.fixture
async def admission(installed: ControlPlane, admin: AdminClient, namespace: str) -> AsyncIterator[Admission]:
    async with webhook_in_force(installed, admin, namespace) as in_force:
        yield in_force


def owned_by(owner: dict[str, Any]) -> list[dict[str, Any]]:
    metadata = owner["metadata"]
    return [
        {"apiVersion": "v1", "kind": "Secret", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    ]


async def test_a_created_object_comes_back_labelled(admission: Admission) -> None:
    made = await admission.create(name="one", labels={"kept": "yes"})
    assert admission.shard_of(made) == admission.desired("one")
    assert made["metadata"]["labels"]["kept"] == "yes"


async def test_a_dry_run_is_labelled_and_leaves_nothing(admission: Admission) -> None:
    made = await admission.create(name="one", dry_run=True)
    assert admission.shard_of(made) == admission.desired("one")
    assert await admission.admin.find("v1/secrets", "one", admission.namespace) is None


async def test_a_main_object_without_a_name_yet_passes_unlabelled(admission: Admission) -> None:
    made = await admission.create(generateName="one-")
    assert admission.shard_of(made) is None
    assert (admission.namespace, "left_to_placement") in admission.outcomes


async def test_a_copied_object_gets_the_shard_that_it_belongs_to(admission: Admission) -> None:
    """Helm gives a release's next Secret the labels of the last one."""
    labels = admission.labels
    for number, worn in enumerate(("shard-0", "shard-1", "long-gone")):
        copied = {labels.shard: worn, labels.drain: "true", "owner": "helm"}
        made = await admission.create(name=f"release-v{number}", labels=copied)
        assert made["metadata"]["labels"] == {labels.shard: admission.desired(f"release-v{number}"), "owner": "helm"}
    generated = await admission.create(generateName="release-", labels={labels.shard: "shard-0", "owner": "helm"})
    assert generated["metadata"]["labels"] == {"owner": "helm"}


async def test_a_child_keeps_the_label_with_which_its_shard_makes_it(admission: Admission) -> None:
    owner = await admission.create(name="one")
    worn, before = {admission.labels.shard: "shard-0"}, len(admission.outcomes)
    child = await admission.create("v1/configmaps", name="child", labels=worn, ownerReferences=owned_by(owner))
    assert child["metadata"]["labels"] == worn
    assert len(admission.outcomes) == before, "nobody is asked"


async def test_a_removed_label_is_put_back_whatever_became_of_its_shard(admission: Admission) -> None:
    made = await admission.create_on("long-gone", name="one")
    assert admission.shard_of(made) == "long-gone"
    patch = {"metadata": {"labels": {admission.labels.shard: None, "other": "change"}}}
    patched = await admission.admin.patch("v1/secrets", "one", patch, admission.namespace)
    assert admission.shard_of(patched) == "long-gone"
    assert patched["metadata"]["labels"]["other"] == "change"


async def test_an_object_given_to_another_shard_by_hand_stays_with_its_living_one(admission: Admission) -> None:
    made = await admission.create_on("shard-0", name="one")
    other = {"metadata": {"labels": {admission.labels.shard: "shard-1", "other": "change"}}}
    patched = await admission.admin.patch("v1/secrets", "one", other, admission.namespace)
    assert admission.shard_of(patched) == "shard-0"
    assert patched["metadata"]["labels"]["other"] == "change"

    child = await admission.create("v1/configmaps", name="two", ownerReferences=owned_by(made))
    assert admission.shard_of(child) == "shard-0"
    patched = await admission.admin.patch("v1/configmaps", "two", other, admission.namespace)
    assert admission.shard_of(patched) == "shard-0"


async def test_a_child_may_be_given_to_its_new_owners_shard(admission: Admission) -> None:
    labels = admission.labels
    orphan = await admission.create("v1/configmaps", name="two", labels={labels.shard: "shard-0"})
    owner = await admission.create_on("shard-1", name="one")
    adopted = {"metadata": {"ownerReferences": owned_by(owner), "labels": {labels.shard: "shard-1"}}}
    patched = await admission.admin.patch("v1/configmaps", orphan["metadata"]["name"], adopted, admission.namespace)
    assert admission.shard_of(patched) == "shard-1"
    assert (admission.namespace, "already_labelled") in admission.outcomes


async def test_an_object_whose_shard_is_gone_may_be_given_to_another(admission: Admission) -> None:
    await admission.create_on("long-gone", name="one")
    other = {"metadata": {"labels": {admission.labels.shard: "shard-1"}}}
    patched = await admission.admin.patch("v1/secrets", "one", other, admission.namespace)
    assert admission.shard_of(patched) == "shard-1"


async def test_an_acknowledged_drain_passes_unlabelled_where_children_have_to_move_first(admission: Admission) -> None:
    labels = admission.labels
    await admission.create_on("shard-0", name="one", labels={labels.drain: "true"})
    patch = {"metadata": {"labels": {labels.shard: None, labels.drain: None}}}
    patched = await admission.admin.patch("v1/secrets", "one", patch, admission.namespace)
    assert not patched["metadata"].get("labels")


async def test_an_update_never_reassigns(admission: Admission) -> None:
    before = admission.shard_of(await admission.create(name="one"))
    assert before is not None
    view = admission.views[admission.namespace]
    admission.views[admission.namespace] = RingView(view.resolved, membership(SHARDS - {before}))
    patched = await admission.admin.patch("v1/secrets", "one", {"data": {"a": "YQ=="}}, admission.namespace)
    assert admission.shard_of(patched) == before


async def test_a_child_with_generate_name_goes_where_its_owner_is(admission: Admission) -> None:
    elsewhere = min(SHARDS - {str(admission.desired("one"))})
    owner = await admission.create_on(elsewhere, name="one")
    child = await admission.create("v1/configmaps", generateName="one-", ownerReferences=owned_by(owner))
    assert admission.shard_of(child) == elsewhere


async def test_a_child_of_an_unassigned_owner_waits_with_it(admission: Admission) -> None:
    owner = await admission.create(generateName="one-")
    child = await admission.create("v1/configmaps", generateName="one-", ownerReferences=owned_by(owner))
    assert admission.shard_of(child) is None
    assert (admission.namespace, "owner_unassigned") in admission.outcomes


async def test_a_child_whose_owner_is_gone_follows_the_ring(admission: Admission) -> None:
    owner = {"metadata": {"name": "one", "uid": "00000000-0000-0000-0000-000000000000"}}
    child = await admission.create("v1/configmaps", dry_run=True, generateName="one-", ownerReferences=owned_by(owner))
    assert admission.shard_of(child) == admission.desired("one")


async def test_an_object_that_nobody_controls_is_left_alone(admission: Admission) -> None:
    before = len(admission.outcomes)
    made = await admission.create("v1/configmaps", name="mine")
    assert admission.shard_of(made) is None
    assert len(admission.outcomes) == before


async def test_without_shards_objects_pass_unlabelled(admission: Admission) -> None:
    view = admission.views[admission.namespace]
    admission.views[admission.namespace] = RingView(view.resolved, membership(frozenset()))
    assert admission.shard_of(await admission.create(name="one")) is None
    assert (admission.namespace, "no_shard") in admission.outcomes


async def test_a_ring_that_this_replica_does_not_know_yet_lets_objects_pass(admission: Admission) -> None:
    admission.views.clear()
    assert admission.shard_of(await admission.create(name="one")) is None
    assert ("", "unknown_ring") in admission.outcomes


async def test_while_the_webhook_is_down_objects_pass_unlabelled(admission: Admission) -> None:
    await admission.server.stop_gracefully(0.0)
    assert admission.shard_of(await admission.create(name="one")) is None
    assert admission.shard_of(await admission.create(name="two")) is None


async def test_while_the_webhook_stops_in_order_objects_are_still_labelled(
    installed: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    clock = ManualClock()
    async with webhook_in_force(installed, admin, namespace, server_clock=clock) as admission:
        stop = asyncio.create_task(admission.server.stop_gracefully(1.0))
        await clock.asleep()
        for number in range(10):
            assert admission.shard_of(await admission.create(name=f"late-{number}")) is not None
        assert not stop.done()
        clock.jump(timedelta(seconds=1))
        await stop
        assert admission.shard_of(await admission.create(name="too-late")) is None


async def test_a_review_over_the_limit_passes_unlabelled(
    installed: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    async with webhook_in_force(installed, admin, namespace, limits=Limits(review_bytes=200_000)) as admission:
        small = await admission.create(name="small", annotations={"filler": "x" * 100_000})
        assert admission.shard_of(small) is not None
        made = await admission.create(name="large", annotations={"filler": "x" * 250_000})
        assert admission.shard_of(made) is None
        assert (namespace, "too_large") in admission.outcomes


async def test_large_objects_are_labelled_also_when_a_review_brings_two_of_them(admission: Admission) -> None:
    path = f"/api/v1/namespaces/{admission.namespace}/secrets"
    data = {str(index): "A" * 100_000 for index in range(10)}
    made = await admission.admin.request("POST", path, body={"metadata": {"name": "large"}, "data": data})
    shard = admission.shard_of(made)
    assert shard == admission.desired("large")
    patch = {"metadata": {"labels": {admission.labels.shard: None}}}
    assert admission.shard_of(await admission.admin.patch("v1/secrets", "large", patch, admission.namespace)) == shard


class ShiftedClock(SystemClock):
    """The machine's clock, `behind` by a span that a test shortens."""

    __slots__ = ("behind",)

    def __init__(self, behind: timedelta) -> None:
        self.behind = behind

    def now(self) -> datetime:
        return super().now() - self.behind


async def test_certificates_rotate_while_the_api_server_keeps_calling(
    installed: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    """A new authority, then a serving certificate that it signed: no call fails meanwhile."""
    await admin.delete("v1/secrets", CERTIFICATES_SECRET, "sharding-system")
    hours = [timedelta(hours=count) for count in (9, 0.9, 0)]
    lifetimes = Lifetimes(
        authority=timedelta(hours=12), serving=timedelta(hours=12), bundle_spread=timedelta(hours=0.5)
    )
    clock, sources = ShiftedClock(hours[0]), list[SelfManaged]()
    stopped, calls = asyncio.Event(), 0

    async with webhook_in_force(
        installed, admin, namespace, certificates_clock=clock, lifetimes=lifetimes, refresh=sources.append
    ) as admission:
        (source,) = sources

        async def keep_creating(number: int) -> None:
            nonlocal calls
            while not stopped.is_set():
                made = await admission.create(dry_run=True, name=f"busy-{number}-{calls}")
                assert admission.shard_of(made) is not None
                calls += 1

        async def some_calls() -> None:
            enough = calls + 40
            while calls < enough:
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(keep_creating(number))
            await some_calls()
            signers = [signer(source)]
            clock.behind = hours[1]
            await source.refresh()
            assert len(parse_certificates(source.published.ca_bundle or b"")) == 2
            await admission.apply_config()
            await until_the_bundle_is_used(admission)
            await some_calls()
            signers.append(signer(source))
            clock.behind = hours[2]
            await source.refresh()
            await some_calls()
            signers.append(signer(source))
            stopped.set()
    assert signers[0] == signers[1] != signers[2]
    await admin.delete("v1/secrets", CERTIFICATES_SECRET, "sharding-system")


def signer(source: SelfManaged) -> bytes:
    assert source.published.pair is not None
    assert source.published.ca_bundle is not None
    (serving,) = parse_certificates(source.published.pair.certificate)
    authorities = parse_certificates(source.published.ca_bundle)
    return next(authority.pem for authority in authorities if serving.signed_by(authority))


async def until_the_bundle_is_used(admission: Admission) -> None:
    """A further namespace is selected in the same write: its objects are labelled once the write is in force."""
    admin, config = admission.admin, admission.config
    beacon = (await admin.create("v1/namespaces", {"metadata": {"generateName": "beacon-"}}))["metadata"]["name"]
    config["webhooks"][0]["namespaceSelector"] = {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [admission.namespace, beacon]}
        ]
    }
    config["webhooks"][0]["namespaceSelector"]["matchLabels"] = None
    await admin.patch(WEBHOOKS, config["metadata"]["name"], config)
    async with asyncio.timeout(120):
        while admission.shard_of(await admission.create(dry_run=True, name="probe", namespace=beacon)) is None:
            await asyncio.sleep(0.02)
    await admin.delete("v1/namespaces", beacon)
