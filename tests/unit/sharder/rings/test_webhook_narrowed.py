"""A ring's webhook configuration, where an admission plugin of the cluster adds to its namespaceSelector."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, cast

import pytest

from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from sharder.rings.deps import WebhookSettings
from shardsdk.kube.api import Operation, PatchKind
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, RING, leading, make_stage, ring

WEBHOOK = WebhookSettings({"url": "https://sharder.example"}, {}, lambda: None)
NAME = f"clusterring-{RING}"
ADDED = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gke-gmp-system"]}


class Narrowing(MemoryApi):
    """Adds to every webhook that is applied, as GKE Autopilot does."""

    async def send(self, operation: Operation[Any]) -> Any:
        if operation.resource == WEBHOOK_CONFIGURATIONS and operation.kind is PatchKind.APPLY:
            body = cast(dict[str, Any], operation.body)
            narrowed = []
            for each in body["webhooks"]:
                expressions = [*each["namespaceSelector"].get("matchExpressions", ()), ADDED]
                narrowed.append({**each, "namespaceSelector": {"matchExpressions": expressions}})
            operation = replace(operation, body={**body, "webhooks": narrowed})
        return await super().send(operation)


def test_what_an_admission_plugin_adds_is_told_once_and_not_fought_over(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def narrowed(clock: VirtualClock) -> None:
        stage = make_stage(clock, api=Narrowing)
        stage.create(CLUSTERRINGS, ring(ALONE), None)
        async with leading(stage, webhook=WEBHOOK):
            await stage.until(lambda: stage.condition("Ready") == "True")
            for _ in range(2):
                stage.server.delete(WEBHOOK_CONFIGURATIONS, NAME, None)
                await stage.pass_time(5)
                assert stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is not None
            before = stage.patches(WEBHOOK_CONFIGURATIONS)
            await stage.pass_time(300)
            assert stage.patches(WEBHOOK_CONFIGURATIONS) == before
            assert stage.condition("Ready") == "True"
        [told] = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert told.message == "webhook configuration narrowed by an admission plugin"
        assert (told.__dict__["configuration"], told.__dict__["expressions"]) == (NAME, [ADDED])

    narrowed()
