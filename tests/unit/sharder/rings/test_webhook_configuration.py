"""A ring's webhook configuration, while somebody else changes it too."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, go_webhook_name
from sharder.rings.deps import WebhookSettings
from sharder.rings.webhook_configuration import CALM_SECONDS
from shardsdk.errors import ServerError
from shardsdk.kube.api import Operation, PatchKind
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, CHILDREN, LABELS, RING, Stage, leading, make_stage, ring

WEBHOOK = WebhookSettings({"url": "https://sharder.example"}, {}, lambda: None)
NAME = f"clusterring-{RING}"
#: How long an answer takes.
DELAY_SECONDS = 0.2


def _empty(stage: Stage) -> None:
    stage.server.patch(WEBHOOK_CONFIGURATIONS, NAME, None, {"webhooks": []})


def _delete(stage: Stage) -> None:
    stage.server.delete(WEBHOOK_CONFIGURATIONS, NAME, None)


@pytest.mark.parametrize("meddle", [_empty, _delete])
@in_virtual_time
async def test_a_change_that_is_seen_before_the_answer_to_our_own_is_repaired(
    clock: VirtualClock, meddle: Callable[[Stage], None]
) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    meddled: list[asyncio.TimerHandle] = []

    def on_write(change: object) -> None:
        if not meddled and stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is not None:
            meddled.append(asyncio.get_running_loop().call_later(DELAY_SECONDS / 4, meddle, stage))

    stage.server.listeners.append(on_write)
    stage.api.delay = lambda: DELAY_SECONDS
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: bool(meddled))
        await stage.pass_time(DELAY_SECONDS / 2)
        assert not (stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) or {}).get("webhooks")
        await stage.until(
            lambda: bool((stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) or {}).get("webhooks")), seconds=10
        )
        await stage.pass_time(10)
        before = stage.patches(WEBHOOK_CONFIGURATIONS)
        await stage.pass_time(120)
        assert stage.patches(WEBHOOK_CONFIGURATIONS) == before


def _unlabel(stage: Stage) -> None:
    changed = {"metadata": {"labels": {LEASE_RING_LABEL: None}}, "webhooks": [{"name": "x", "failurePolicy": "Fail"}]}
    stage.server.patch(WEBHOOK_CONFIGURATIONS, NAME, None, changed)


def _unlabel_and_delete(stage: Stage) -> None:
    _unlabel(stage)
    _delete(stage)


@pytest.mark.parametrize("meddle", [_unlabel, _unlabel_and_delete])
@in_virtual_time
async def test_one_without_the_rings_label_is_repaired_as_any_other(
    clock: VirtualClock, meddle: Callable[[Stage], None]
) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Ready") == "True")
        made = stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)
        meddle(stage)
        await stage.pass_time(5)
        repaired = stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)
        assert (repaired["metadata"]["labels"], repaired["webhooks"]) == (made["metadata"]["labels"], made["webhooks"])


@in_virtual_time
async def test_somebody_elses_that_is_called_alike_stays(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    stage.create(WEBHOOK_CONFIGURATIONS, {"metadata": {"name": "clusterring-of-somebody"}, "webhooks": []}, None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Ready") == "True")
        await stage.pass_time(5)
        assert stage.server.find(WEBHOOK_CONFIGURATIONS, "clusterring-of-somebody") is not None


def _bundle(stage: Stage) -> str | None:
    [webhook] = stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)["webhooks"]
    bundle: str | None = webhook["clientConfig"].get("caBundle")
    return bundle


@in_virtual_time
async def test_while_the_authority_is_not_known_what_is_there_stays_and_nothing_is_made(clock: VirtualClock) -> None:
    stage, known, missing = make_stage(clock), list[bytes](), ["secret sharding-system/x: forbidden"]
    webhook = WebhookSettings(
        {"url": "https://sharder.example"}, {}, lambda: known[0] if known else None,
        authority_missing=lambda: missing[0] if missing else None,
    )  # fmt: skip
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage, webhook=webhook):
        await stage.until(lambda: stage.condition("Ready") == "False")
        assert "secret sharding-system/x: forbidden" in stage.message("Ready")
        assert stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is None
        known.append(b"authority")
        missing.clear()
        await stage.until(lambda: stage.condition("Ready") == "True")
        bundle = _bundle(stage)
        assert bundle
    known.clear()
    missing.append("")  # nobody has been asked yet
    async with leading(stage, webhook=webhook) as replica:
        await stage.pass_time(60)
        assert (_bundle(stage), stage.condition("Ready")) == (bundle, "True")
        known.append(b"another")
        missing.clear()
        replica.webhook_changed()
        await stage.until(lambda: _bundle(stage) != bundle, seconds=5)


@in_virtual_time
async def test_once_the_authority_is_known_nothing_lacks_also_where_a_resource_cannot_be_looked_up(
    clock: VirtualClock,
) -> None:
    stage, missing = make_stage(clock), list[str]()
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    webhook = replace(WEBHOOK, authority_missing=lambda: missing[0] if missing else None)
    async with leading(stage, webhook=webhook):
        await stage.until(lambda: stage.condition("Ready") == "True")
    missing.append("secret sharding-system/x: forbidden")
    async with leading(stage, webhook=webhook) as replica:
        await stage.until(lambda: stage.condition("Ready") == "False")

        async def discover(group: str, plural: str) -> Resource | None:
            if plural == CHILDREN.plural:
                raise ServerError("discovery: 503", status=503)
            return await MemoryApi.discover(stage.api, group, plural)

        stage.api.discover = discover  # type: ignore[method-assign]
        both = {"resources": [ALONE, {"resource": CHILDREN.plural}]}
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": both})
        await stage.until(lambda: "503" in stage.message("Ready"))
        missing.clear()
        replica.webhook_changed()
        await stage.until(lambda: "forbidden" not in stage.message("Ready"), seconds=10)


@in_virtual_time
async def test_while_the_authority_is_not_known_another_sharders_configuration_stays(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    created = stage.create(CLUSTERRINGS, ring(ALONE), None)
    rival = go_webhook_name(LABELS)
    owner = {"apiVersion": CLUSTERRINGS.api_version, "kind": CLUSTERRINGS.kind, "name": RING,
             "uid": created["metadata"]["uid"], "controller": True}  # fmt: skip
    stage.create(
        WEBHOOK_CONFIGURATIONS, {"metadata": {"name": rival, "ownerReferences": [owner]}, "webhooks": []}, None
    )
    async with leading(stage, webhook=replace(WEBHOOK, authority_missing=lambda: "")):
        await stage.pass_time(60)
        assert stage.server.find(WEBHOOK_CONFIGURATIONS, rival) is not None


class Merging(MemoryApi):
    """Applying merges webhooks and their conditions by name, as the API server's schema has it."""

    async def send(self, operation: Operation[Any]) -> Any:
        current = self.server.find(WEBHOOK_CONFIGURATIONS, NAME)
        if operation.resource == WEBHOOK_CONFIGURATIONS and operation.kind is PatchKind.APPLY and current is not None:
            body = cast(dict[str, Any], operation.body)
            there = {each["name"]: each for each in current["webhooks"]}
            for each in body["webhooks"]:
                conditions = [*each["matchConditions"], *there.get(each["name"], {}).get("matchConditions", ())]
                merged = {condition["name"]: condition for condition in reversed(conditions)}
                there[each["name"]] = {**each, "matchConditions": list(merged.values())}
            operation = replace(operation, body={**body, "webhooks": list(there.values())})
        return await super().send(operation)


def _add_condition(stage: Stage) -> None:
    [webhook] = stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)["webhooks"]
    webhook = {**webhook, "matchConditions": [*webhook["matchConditions"], {"name": "never", "expression": "false"}]}
    stage.server.patch(WEBHOOK_CONFIGURATIONS, NAME, None, {"webhooks": [webhook]})


def _add_webhook(stage: Stage) -> None:
    webhooks = stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)["webhooks"]
    another = {**webhooks[0], "name": "another.example.com", "failurePolicy": "Fail"}
    stage.server.patch(WEBHOOK_CONFIGURATIONS, NAME, None, {"webhooks": [another, *webhooks]})


@pytest.mark.parametrize("meddle", [_add_condition, _add_webhook])
def test_what_others_add_is_taken_out_and_told_of_once_a_minute(
    meddle: Callable[[Stage], None], caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def removed(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=Merging)
        stage.create(CLUSTERRINGS, ring(ALONE), None)
        async with leading(stage, webhook=WEBHOOK):
            await stage.until(lambda: stage.condition("Ready") == "True")
            [injected] = stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)["webhooks"]
            injected["clientConfig"]["caBundle"] = "Zm9v"
            stage.server.patch(WEBHOOK_CONFIGURATIONS, NAME, None, {"webhooks": [injected]})
            await stage.pass_time(5)
            made = stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)["webhooks"]
            for _ in range(2):
                meddle(stage)
                await stage.pass_time(5)
                assert stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)["webhooks"] == made
            before = stage.patches(WEBHOOK_CONFIGURATIONS)
            await stage.pass_time(120)
            assert stage.patches(WEBHOOK_CONFIGURATIONS) == before
            told = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
            assert told == ["webhooks or conditions of others removed"]

    removed()


def _restrict(stage: Stage) -> None:
    """As a cluster's policy does that keeps webhooks out of some namespaces."""
    made = stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)
    [webhook] = made["webhooks"]
    webhook["namespaceSelector"]["matchExpressions"].append(
        {"key": "control-plane", "operator": "NotIn", "values": ["true"]}
    )
    body = {"apiVersion": made["apiVersion"], "kind": made["kind"], "webhooks": [webhook]}
    stage.server.apply(WEBHOOK_CONFIGURATIONS, NAME, None, body, "policy", force=True)


async def _insist(stage: Stage) -> None:
    """Change it whenever it is another."""
    while True:
        current = stage.server.find(WEBHOOK_CONFIGURATIONS, NAME)
        if current is not None and "control-plane" not in str(current["webhooks"]):
            _restrict(stage)
        await stage.clock.sleep(0.3)


def test_who_changes_it_again_and_again_is_named_and_meets_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def contested(clock: VirtualClock) -> None:
        stage = make_stage(clock)
        stage.create(CLUSTERRINGS, ring(ALONE), None)
        async with leading(stage, webhook=WEBHOOK) as replica:
            await stage.until(lambda: stage.condition("Ready") == "True")
            insisting = asyncio.create_task(_insist(stage))
            await stage.pass_time(120)
            before = stage.patches(WEBHOOK_CONFIGURATIONS)
            for _ in range(300):
                replica.webhook_changed()  # whatever else the ring is reconciled for
                await stage.pass_time(1)
                assert stage.condition("Ready") == "False", "most of the time it is another than the ring asks for"
            assert "WebhookContested" in stage.message("Ready")
            assert stage.patches(WEBHOOK_CONFIGURATIONS) - before <= 10
            insisting.cancel()
            [told] = [each for each in caplog.records if each.levelno >= logging.WARNING]
            assert told.message == "webhook configuration changed again and again"
            assert (told.__dict__["manager"], told.__dict__["field"]) == (
                "policy", "webhooks[0].namespaceSelector.matchExpressions"
            )  # fmt: skip
            [message] = stage.events.of("WebhookContested")
            assert "policy" in message
            assert "namespaceSelector" in message
            await stage.until(lambda: stage.condition("Ready") == "True", seconds=200)
            _restrict(stage)
            await stage.pass_time(2)
            assert "control-plane" not in str(stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None))

    contested()


@in_virtual_time
async def test_a_ring_is_not_ready_while_a_repair_waits_also_after_the_quarrel(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage, webhook=WEBHOOK) as replica:
        await stage.until(lambda: stage.condition("Ready") == "True")
        insisting = asyncio.create_task(_insist(stage))
        await stage.pass_time(75)
        insisting.cancel()
        await stage.until(lambda: "control-plane" not in str(stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)))
        await stage.pass_time(CALM_SECONDS - 5)
        _restrict(stage)
        await stage.pass_time(10)
        replica.webhook_changed()  # whatever else the ring is reconciled for
        await stage.until(lambda: stage.condition("Ready") == "True", seconds=300)
        assert "control-plane" not in str(stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None))


@in_virtual_time
async def test_one_that_is_deleted_is_made_anew_soon_whatever_was_before(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Ready") == "True")
        insisting = asyncio.create_task(_insist(stage))
        await stage.pass_time(75)
        insisting.cancel()
        assert "control-plane" in str(stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)), "a repair of that waits"
        _delete(stage)
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is not None, seconds=6)


@in_virtual_time
async def test_a_ring_by_ranges_has_none_though_one_by_labels_had_its_name(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is not None)
    stage.server.delete(CLUSTERRINGS, RING, None)
    stage.create(CLUSTERRINGS, ring(ALONE, assignment="Ranges", hashBy="Namespace"), None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is None)


@in_virtual_time
async def test_a_new_authority_is_named_within_seconds(clock: VirtualClock) -> None:
    """API servers pass over a webhook whose certificate they cannot verify, and its objects wait for placement."""
    stage, bundle = make_stage(clock), [b"one"]
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage, webhook=replace(WEBHOOK, ca_bundle=lambda: bundle[0])) as replica:

        def named() -> bytes:
            found = stage.server.find(WEBHOOK_CONFIGURATIONS, NAME)
            return b64decode(found["webhooks"][0]["clientConfig"]["caBundle"]) if found is not None else b""

        await stage.until(lambda: named() == b"one" and stage.condition("Ready") == "True")
        await stage.pass_time(60)
        bundle[0] = b"another"
        replica.webhook_changed()
        await stage.until(lambda: named() == b"another", seconds=5)


class Untold(MemoryApi):
    """Nobody can be asked who has changed a webhook configuration."""

    broken = False

    async def send(self, operation: Operation[Any]) -> Any:
        if self.broken and operation.resource == WEBHOOK_CONFIGURATIONS and not operation.body:
            raise ServerError("patch mutatingwebhookconfigurations: etcd is away", status=500)
        return await super().send(operation)


@in_virtual_time
async def test_it_is_repaired_though_nobody_can_say_who_has_changed_it_and_told_once_somebody_can(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Untold)
    assert isinstance(stage.api, Untold)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Ready") == "True")
        stage.api.broken = True
        for _ in range(5):
            _restrict(stage)
            await stage.until(lambda: "control-plane" not in str(stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)))
        assert not any("etcd is away" in each for each in stage.events.of("ReconciliationFailed"))
        stage.api.broken = False
        assert not stage.events.of("WebhookContested")
        _restrict(stage)
        await stage.until(lambda: bool(stage.events.of("WebhookContested")))


@in_virtual_time
async def test_what_others_add_beside_ours_is_no_quarrel(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Ready") == "True")
        for number in range(20):
            noted = {"metadata": {"annotations": {"seen": str(number)}}}
            stage.server.patch(WEBHOOK_CONFIGURATIONS, NAME, None, noted)
            await stage.pass_time(2)
        assert not stage.events.of("WebhookContested")
        _empty(stage)
        await stage.pass_time(2)
        assert stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)["webhooks"]
