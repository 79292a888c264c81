"""The sharder's service put together; tests/integration/test_service.py has it on a real control plane."""

from __future__ import annotations

import asyncio
import random

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
