"""What another sharder made for a ring goes, and whoever makes it again is named."""

from __future__ import annotations

from typing import Any

import pytest

from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, go_webhook_name
from sharder.rings.deps import WebhookSettings
from shardsdk.errors import ServerError
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, CHILDREN, RING, Stage, leading, make_stage, ring

WEBHOOK = WebhookSettings({"url": "https://sharder.example"}, {}, lambda: None)
RANGES = {"assignment": "Ranges", "hashBy": "Namespace"}


def go_configuration(stage: Stage, **changes: Any) -> dict[str, Any]:
    """As the Go sharder makes it for the ring."""
    uid = stage.server.get(CLUSTERRINGS, RING, None)["metadata"]["uid"]
    owner = {"apiVersion": CLUSTERRINGS.api_version, "kind": "ClusterRing", "name": RING, "uid": uid}
    metadata = {"name": go_webhook_name(parse_ring_name(RING)), "ownerReferences": [{**owner, "controller": True}]}
    return {"metadata": {**metadata, **changes}, "webhooks": []}


@pytest.mark.parametrize(
    ("webhook", "spec"),
    [(WEBHOOK, {}), (None, {}), (WEBHOOK, RANGES)],
    ids=["webhook", "no webhook", "ranges, which need none"],
)
def test_the_go_sharders_configuration_goes_once_ours_is_there(
    webhook: WebhookSettings | None, spec: dict[str, str]
) -> None:
    @in_virtual_time
    async def story(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.create(CLUSTERRINGS, ring(**spec), None)
        theirs = stage.create(WEBHOOK_CONFIGURATIONS, go_configuration(stage), None)["metadata"]["name"]
        async with leading(stage, webhook=webhook):
            await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, theirs) is None, seconds=10)
            ours = stage.server.find(WEBHOOK_CONFIGURATIONS, f"clusterring-{RING}")
            assert (ours is None) == (webhook is None or spec == RANGES)

    story()


@in_virtual_time
async def test_of_a_ring_that_cannot_be_used_the_go_sharders_configuration_goes_too(clock: VirtualClock) -> None:
    """It calls into our webhook, which answers for no such ring."""
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring({"group": "Not A Group", "resource": "x"}), None)
    theirs = stage.create(WEBHOOK_CONFIGURATIONS, go_configuration(stage), None)["metadata"]["name"]
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Ready") == "False", seconds=10)
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, theirs) is None, seconds=10)


@in_virtual_time
async def test_a_configuration_that_looks_like_the_go_sharders_and_is_not_the_rings_stays(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(), None)
    theirs = go_configuration(stage)
    theirs["metadata"]["ownerReferences"][0]["uid"] = "another-ring-of-this-name"
    stage.create(WEBHOOK_CONFIGURATIONS, theirs, None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Ready") == "True")
        await stage.pass_time(120)
        assert stage.server.find(WEBHOOK_CONFIGURATIONS, theirs["metadata"]["name"]) is not None


@pytest.mark.parametrize("spec", [{}, RANGES], ids=["labels", "ranges"])
def test_a_go_sharder_that_is_at_work_still_is_named_and_left_its_configuration_for_a_minute(
    spec: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def story(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.create(CLUSTERRINGS, ring(**spec), None)
        name = go_configuration(stage)["metadata"]["name"]

        def there() -> bool:
            return stage.server.find(WEBHOOK_CONFIGURATIONS, name) is not None

        async with leading(stage, webhook=WEBHOOK):
            await stage.until(lambda: stage.condition("Ready") == "True")
            stage.create(WEBHOOK_CONFIGURATIONS, go_configuration(stage), None)
            await stage.until(lambda: not there(), seconds=5)
            stage.create(WEBHOOK_CONFIGURATIONS, go_configuration(stage), None)
            await stage.until(lambda: stage.condition("Ready") == "False", seconds=5)
            conditions = stage.server.get(CLUSTERRINGS, RING, None)["status"]["conditions"]
            assert f"another sharder is at work: it has made MutatingWebhookConfiguration {name}" in str(conditions)
            for second in range(30):
                # Each has the ring reconciled.
                stage.server.patch(CLUSTERRINGS, RING, None, {"metadata": {"annotations": {"looked": str(second)}}})
                await stage.pass_time(1)
            assert there()
            await stage.until(lambda: not there(), seconds=40)
            await stage.until(lambda: stage.condition("Ready") == "True", seconds=5)

    story()
    assert caplog.messages.count("another sharder is at work") == 1


class Half(MemoryApi):
    """Nobody can say what a resource is."""

    down = True

    async def discover(self, group: str, plural: str) -> Resource | None:
        if self.down and plural == CHILDREN.plural:
            raise ServerError("discovery: 503", status=503)
        return await super().discover(group, plural)


@in_virtual_time
async def test_the_go_sharders_configuration_stays_until_ours_covers_all_that_is_listed(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Half)
    assert isinstance(stage.api, Half)
    stage.create(CLUSTERRINGS, ring(ALONE, {"resource": CHILDREN.plural}), None)
    theirs = stage.create(WEBHOOK_CONFIGURATIONS, go_configuration(stage), None)["metadata"]["name"]
    async with leading(stage, webhook=WEBHOOK):
        await stage.pass_time(60)
        assert stage.server.find(WEBHOOK_CONFIGURATIONS, theirs) is not None
        stage.api.down = False
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, theirs) is None, seconds=60)


def rules(stage: Stage) -> list[list[str]]:
    """The resources that our configuration calls the webhook for."""
    found = stage.server.find(WEBHOOK_CONFIGURATIONS, f"clusterring-{RING}") or {}
    return [rule["resources"] for webhook in found.get("webhooks") or [] for rule in webhook["rules"]]


@in_virtual_time
async def test_a_new_leader_takes_nothing_off_ours_while_a_resource_cannot_be_looked_up(clock: VirtualClock) -> None:
    """Its first reconcile may come before the watch of configurations has shown any."""
    stage = make_stage(clock, api=Half)
    assert isinstance(stage.api, Half)
    stage.api.down = False
    stage.create(CLUSTERRINGS, ring(ALONE, {"resource": CHILDREN.plural}), None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Ready") == "True")
        before = rules(stage)
    stage.api.down = True
    stage.api.delay = lambda: 0.05
    async with leading(stage, webhook=WEBHOOK):
        await stage.pass_time(30)
        assert rules(stage) == before


@in_virtual_time
async def test_a_ring_has_a_configuration_soon_though_a_resource_cannot_be_looked_up(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=Half)
    stage.create(CLUSTERRINGS, ring(ALONE, {"resource": CHILDREN.plural}), None)
    stage.api.delay = lambda: 0.05
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: bool(rules(stage)), seconds=10)
