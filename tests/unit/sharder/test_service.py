"""The sharder's service put together; tests/integration/test_service.py has it on a real control plane."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from sharder.config import parse_config
from sharder.service import _Service
from sharder.telemetry import Telemetry
from shardsdk.kube.clock import SystemClock
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi

HEAD = "apiVersion: config.sharding.timebertt.dev/v1alpha1\nkind: SharderConfig\n"
EXPIRY = "controller_sharding_webhook_certificate_expiry_timestamp_seconds"


@pytest.mark.parametrize("webhook", ["true", "false"])
async def test_the_end_of_the_certificate_is_measured_whoever_serves_with_it(webhook: str) -> None:
    config = parse_config(f"{HEAD}metrics: {{secure: true}}\nwebhook: {{enabled: {webhook}}}\n").config
    telemetry, clock = Telemetry.create(), SystemClock()
    service = _Service(config, MemoryApi(MemoryServer(), clock), telemetry, clock, random.Random(1))
    certificates = service._certificates
    assert certificates is not None
    running = asyncio.create_task(certificates.run())
    try:
        async with asyncio.timeout(30):
            await certificates.published.loaded.wait()
        assert certificates.published.pair is not None
        assert telemetry.registry.get_sample_value(EXPIRY) == certificates.published.pair.expires_at.timestamp()
    finally:
        running.cancel()


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _fail() -> None:
    raise RuntimeError("the certificates cannot be kept")


async def test_the_error_of_a_part_that_fails_is_what_the_service_ends_with() -> None:
    """Not that of the parts that are cancelled for it."""
    service = object.__new__(_Service)
    parts: dict[str, Any] = {name: SimpleNamespace(run=_for_ever) for name in ("_recorder", "_account", "_replica")}
    service.__dict__ = {
        **parts, "_webhook": None, "_certificates": SimpleNamespace(run=_fail), "_clock": SystemClock(),
        "_telemetry": Telemetry.create(),
    }  # fmt: skip
    with pytest.raises(RuntimeError, match="certificates cannot be kept"):
        await service.run()
