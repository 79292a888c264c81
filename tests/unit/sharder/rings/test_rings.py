"""What surrounds a ring: status and webhook configuration, written when they differ and not more often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from sharder.placement.labels import LabelAssignment
from sharder.rings.deps import WebhookSettings
from sharder.rings.ring_controller import RingController
from shardsdk.errors import Forbidden, ServerError
from shardsdk.kube.sessions import CONNECTIONS, Lane
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family
from tests.unit.sharder.placement.stage import ALONE, CHILDREN, OWNERS, RING, leading, make_stage, ring, thing

WEBHOOK = WebhookSettings({"url": "https://sharder.example"}, {}, lambda: None)


class Forbidding(MemoryApi):
    """Permissions cannot be asked for, some resources cannot be looked up."""

    hides: frozenset[str] = frozenset()

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        raise Forbidden("create selfsubjectaccessreviews.authorization.k8s.io", status=403)

    async def discover(self, group: str, plural: str) -> Resource | None:
        if plural in self.hides:
            raise ServerError("the aggregated API server is away", status=503)
        return await super().discover(group, plural)


@in_virtual_time
async def test_objects_are_placed_although_permissions_cannot_be_asked_for(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Forbidding)
    stage.set_up(ring(), "one")
    stage.create(OWNERS, thing("it"))
    async with leading(stage):
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=5)


@in_virtual_time
async def test_a_resource_that_was_taken_off_and_cannot_be_looked_up_holds_up_nothing(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Forbidding)
    assert isinstance(stage.api, Forbidding)
    stage.api.hides = frozenset({CHILDREN.plural})
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    listed = [{"group": "", "resource": CHILDREN.plural, "controlled": False}]
    stage.server.patch(CLUSTERRINGS, RING, None, {"status": {"placedResources": listed}}, subresource="status")
    stage.start("one")
    stage.create(OWNERS, thing("it"))
    async with leading(stage):
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=5)
        status = stage.server.get(CLUSTERRINGS, RING, None)["status"]
        assert {"group": "", "resource": CHILDREN.plural, "controlled": False} in status["placedResources"]


@in_virtual_time
async def test_a_steady_stream_of_new_objects_is_no_steady_stream_of_status_writes(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    stage.api.lag = lambda: 0.1
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        before = stage.patches(CLUSTERRINGS)
        for number in range(120):
            stage.create(OWNERS, thing(f"generated-{number}"))
            await stage.pass_time(0.5)
        assert stage.patches(CLUSTERRINGS) - before <= 2 * 60 / 3 + 2
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=10)


@in_virtual_time
async def test_a_webhook_configuration_that_somebody_keeps_changing_is_repaired_at_a_calm_pace(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    name = f"clusterring-{RING}"

    async def meddle() -> None:
        while True:
            if stage.server.get(WEBHOOK_CONFIGURATIONS, name, None)["webhooks"]:
                stage.server.patch(WEBHOOK_CONFIGURATIONS, name, None, {"webhooks": []})
            await stage.pass_time(0.01)

    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, name) is not None)
        await stage.pass_time(5)
        assert stage.patches(WEBHOOK_CONFIGURATIONS) <= 2
        stage.server.patch(WEBHOOK_CONFIGURATIONS, name, None, {"webhooks": []})
        await stage.until(lambda: bool(stage.server.get(WEBHOOK_CONFIGURATIONS, name, None)["webhooks"]), seconds=2)
        before = stage.patches(WEBHOOK_CONFIGURATIONS)
        meddling = asyncio.create_task(meddle())
        await stage.pass_time(30)
        meddling.cancel()
        assert 3 < stage.patches(WEBHOOK_CONFIGURATIONS) - before < 12


class Unlisted(MemoryApi):
    """Webhook configurations may not be listed."""

    async def watch(self, resource: Resource, *args: Any, **more: Any) -> AsyncIterator[Any]:
        if resource == WEBHOOK_CONFIGURATIONS:
            raise Forbidden("watch mutatingwebhookconfigurations", status=403)
        async for event in super().watch(resource, *args, **more):
            yield event


@in_virtual_time
async def test_objects_are_placed_although_webhook_configurations_may_not_be_listed(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Unlisted)
    stage.set_up(ring(), "one")
    stage.create(OWNERS, thing("it"))
    async with leading(stage):
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=15)


@in_virtual_time
async def test_left_over_webhook_configurations_go_when_a_leader_begins(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    refused = ring({"group": "Not A Group", "resource": "x"}, name="refused")
    stage.create(CLUSTERRINGS, refused, None)
    for name in ("refused", "deleted"):
        left = {"metadata": {"name": f"clusterring-{name}", "labels": {LEASE_RING_LABEL: name}}, "webhooks": []}
        stage.create(WEBHOOK_CONFIGURATIONS, left, None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: not stage.server.select(WEBHOOK_CONFIGURATIONS), seconds=10)


@in_virtual_time
async def test_children_keep_their_labels_while_their_owners_type_is_not_served(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    create_family(stage, "family", shard="one", children=("one",))
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.api.served.remove(OWNERS)
        replica.cache.resolve_again(RING)
        await stage.until(lambda: stage.condition("ResourcesServed") == "False")
        await stage.pass_time(60)
        assert stage.label(CHILDREN, "family-0") == "one"
        listed = stage.server.get(CLUSTERRINGS, RING, None)["status"]["placedResources"]
        assert {each["resource"]: each["controlled"] for each in listed} == {"owners": False, "configmaps": True}


@in_virtual_time
async def test_an_owner_that_leaves_the_ring_is_let_go_before_its_children(clock: VirtualClock) -> None:
    """Its shard would make them anew: it works on the owner, and sees them no longer."""
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    create_family(stage, "family", shard="one", children=("one",))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": []}})
        await stage.until(lambda: stage.draining(OWNERS, "family"), seconds=10)
        await stage.pass_time(90)
        assert stage.label(CHILDREN, "family-0") == "one"
        stage.acknowledge("family")
        await stage.until(lambda: stage.label(CHILDREN, "family-0") is None, seconds=90)
        await stage.until(lambda: not stage.server.get(CLUSTERRINGS, RING, None)["status"]["placedResources"])


@in_virtual_time
async def test_conditions_tell_of_an_owner_that_no_shard_lets_go_of_after_its_resource_was_taken_off(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    create_family(stage, "family", shard="one", children=("one", "one"))

    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": []}})
        await stage.until(lambda: stage.draining(OWNERS, "family"), seconds=10)
        leaving = "the ring lists no longer, and has labels on: 2 configmaps, 1 owners.example.org"
        await stage.until(lambda: leaving in stage.message("Settled"), seconds=30)
        assert stage.condition("Settled") == "False"
        await stage.until(lambda: stage.condition("DrainsAcknowledged") == "False", seconds=70)
        stuck = stage.message("DrainsAcknowledged")
        assert "owners.example.org default/family on shard one, of a resource that the ring lists no longer" in stuck
        assert "take both labels off these objects" in stuck
        stage.acknowledge("family")
        await stage.until(lambda: stage.condition("DrainsAcknowledged") == "True", seconds=10)
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=90)
        assert stage.label(CHILDREN, "family-0") is None


@in_virtual_time
async def test_too_many_watches_show_in_the_log_and_then_in_the_rings_condition(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def warned() -> bool:
        return "watches of all rings near their limit" in [record.message for record in caplog.records]

    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)  # 4 + 3 for the owners + 2 for their children
    monkeypatch.setitem(CONNECTIONS, Lane.STREAMS, 12)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Ready") == "True")
        assert not warned()
    monkeypatch.setitem(CONNECTIONS, Lane.STREAMS, 11)
    async with leading(stage):
        await stage.until(warned)
        assert stage.condition("Ready") == "True"
    monkeypatch.setitem(CONNECTIONS, Lane.STREAMS, 8)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Ready") == "False")
        conditions = stage.server.get(CLUSTERRINGS, RING, None)["status"]["conditions"]
        assert "the rings together take 9 watches, and a leader holds 8 at most" in str(conditions)


class Losing(MemoryApi):
    """The right to watch owners may be taken away."""

    lost = False

    async def watch(self, resource: Resource, *args: Any, **more: Any) -> AsyncIterator[Any]:
        if self.lost and resource == OWNERS:
            raise Forbidden("watch owners", status=403)
        async for event in super().watch(resource, *args, **more):
            yield event

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        return not self.lost or (verb, resource) != ("watch", OWNERS.group_resource)


@in_virtual_time
async def test_a_right_that_is_taken_away_while_nothing_moves_is_named_at_once(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Losing)
    assert isinstance(stage.api, Losing)
    stage.set_up(ring(), "one")
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(100)
        stage.api.lost = True
        assert replica._leader is not None
        replica._leader._restart_watches()
        await stage.until(lambda: stage.condition("PermissionsGranted") == "False", seconds=10)
        stage.api.lost = False
        await stage.until(lambda: stage.condition("PermissionsGranted") == "True", seconds=40)


@in_virtual_time
async def test_a_ring_at_rest_is_not_looked_at_again(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[float] = []

    def look(controller: RingController, right: Any = RingController._look) -> Any:
        looked.append(clock.monotonic())
        return right(controller)

    monkeypatch.setattr(RingController, "_look", look)
    stage = make_stage(clock)
    stage.set_up(ring(), "one")
    stage.create(OWNERS, thing("it"))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(5)
        looked.clear()
        writes = stage.patches(CLUSTERRINGS)
        await stage.pass_time(200)  # shards renew meanwhile
        assert not looked
        assert stage.patches(CLUSTERRINGS) == writes, "what is written down is not written again"
        stage.create(OWNERS, thing("another"))
        await stage.until(lambda: bool(looked), seconds=2)


@in_virtual_time
async def test_a_ring_that_is_not_at_rest_is_summed_up_once_a_second(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed_up: list[float] = []

    def summarize(assignment: LabelAssignment, right: Any = LabelAssignment.summarize) -> Any:
        summed_up.append(clock.monotonic())
        return right(assignment)

    asked: list[str] = []

    async def discover(api: MemoryApi, group: str, plural: str, right: Any = MemoryApi.discover) -> Any:
        asked.append(plural)
        return await right(api, group, plural)

    monkeypatch.setattr(LabelAssignment, "summarize", summarize)
    monkeypatch.setattr(MemoryApi, "discover", discover)
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    stage.create(OWNERS, thing("it"))  # and no shard for it
    async with leading(stage):
        await stage.pass_time(30)
        assert stage.condition("Settled") != "True"
        summed_up.clear()
        asked.clear()
        await stage.pass_time(60)
        assert 55 <= len(summed_up) <= 70
        assert not asked, "its resources are not looked up anew while they are served"


class Refusing(MemoryApi):
    """The sharder may not patch the children."""

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        return (verb, resource) != ("patch", CHILDREN.group_resource)


@in_virtual_time
async def test_a_right_that_is_missing_for_what_was_taken_off_is_named(clock: VirtualClock) -> None:
    """Whoever renews a ring's role just after the ring takes it away too early."""
    stage = make_stage(clock, api=Refusing)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    listed = [{"group": "", "resource": CHILDREN.plural, "controlled": False}]
    stage.server.patch(CLUSTERRINGS, RING, None, {"status": {"placedResources": listed}}, subresource="status")
    stage.create(CHILDREN, thing("left", shard="one"))
    stage.start("one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("PermissionsGranted") == "False")
        conditions = stage.server.get(CLUSTERRINGS, RING, None)["status"]["conditions"]
        assert any("may not patch configmaps" in each["message"] for each in conditions)


@in_virtual_time
async def test_a_bug_in_summing_a_ring_up_is_told_once_and_tried_on(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    tries: list[str] = []

    def look(controller: RingController) -> bool:
        tries.append(controller.name)
        raise AssertionError(f"a bug {'at first' if len(tries) < 20 else 'of another kind'}")

    monkeypatch.setattr(RingController, "_look", look)
    async with leading(stage):
        await stage.until(lambda: len(tries) > 40, seconds=120)
    assert caplog.messages.count("state of a ring not summed up") == 2
    caplog.clear()  # a fault of ours that was meant to be
