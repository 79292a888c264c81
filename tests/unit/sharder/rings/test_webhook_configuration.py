"""A ring's webhook configuration, while somebody else changes it too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from sharder.rings.deps import WebhookSettings
from shardsdk.kube.api import Operation, PatchKind
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, RING, Stage, leading, make_stage, ring

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
            for _ in range(20):
                meddle(stage)
                await stage.pass_time(2)
                assert stage.server.get(WEBHOOK_CONFIGURATIONS, NAME, None)["webhooks"] == made
            before = stage.patches(WEBHOOK_CONFIGURATIONS)
            await stage.pass_time(120)
            assert stage.patches(WEBHOOK_CONFIGURATIONS) == before
            told = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
            assert told == ["webhooks or conditions of others removed"]

    removed()
