"""A ring's webhook configuration, while somebody else changes it too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from sharder.rings.deps import WebhookSettings
from shardsdk.protocol.objects import CLUSTERRINGS
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
