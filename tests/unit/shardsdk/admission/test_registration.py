"""Configurations that processes outside of a pod make: one of them is asked at a time, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from shardsdk.admission.configuration import MUTATING, VALIDATING, render_configurations
from shardsdk.admission.registration import KEPT_SECONDS, Registration
from shardsdk.admission.webhook import Sort
from shardsdk.errors import ConnectionFailed
from shardsdk.serving.published import Published
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.shardsdk.admission.kinds import webhook

NAME = "sites-dev"


class Process:
    """One that serves the operator's webhooks at an address."""

    def __init__(self, server: MemoryServer, clock: VirtualClock, identity: str, url: str = "") -> None:
        self.url = url or f"https://{identity}:9443"
        published = Published()
        published.loaded.set()
        self.api = MemoryApi(server, clock)
        self.registration = Registration(
            self.api,
            published,
            lambda _: render_configurations([webhook(lambda review: None)], NAME, {"url": self.url}, labels={}),
            installs=True,
            identity=identity,
            clock=clock,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.registration.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


def asked(server: MemoryServer) -> str:
    """Whom the API server asks; empty: nobody."""
    found = server.find(VALIDATING, NAME)
    return "" if found is None else str(found["webhooks"][0]["clientConfig"]["url"])


@in_virtual_time
async def test_the_first_process_is_asked_until_it_ends_and_then_another(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = MemoryServer()
    first, second = Process(server, clock, "first"), Process(server, clock, "second")
    async with first.running():
        await clock.sleep(5)
        async with second.running():
            await clock.sleep(10 * KEPT_SECONDS)
            assert asked(server).startswith(first.url)
            [line] = [each for each in caplog.records if each.levelno == logging.WARNING]
            assert "first" in line.getMessage()

        await second.registration.remove()
        assert asked(server).startswith(first.url)
    await first.registration.remove()
    assert asked(server) == ""
    async with second.running():
        await clock.sleep(5)
        assert asked(server).startswith(second.url)


@in_virtual_time
async def test_a_process_that_was_killed_is_followed_by_another_and_takes_nothing_back(clock: VirtualClock) -> None:
    server = MemoryServer()
    killed, other = Process(server, clock, "killed"), Process(server, clock, "other")
    async with killed.running():
        await clock.sleep(5)
    async with other.running():
        await clock.sleep(KEPT_SECONDS / 2)
        assert asked(server).startswith(killed.url)
        await clock.sleep(KEPT_SECONDS)
        assert asked(server).startswith(other.url)
        await killed.registration.remove()
        async with killed.running():  # it was only stopped for a while
            await clock.sleep(5 * KEPT_SECONDS)
            assert asked(server).startswith(other.url)


@in_virtual_time
async def test_nobody_is_asked_for_what_is_anothers(clock: VirtualClock) -> None:
    server = MemoryServer()
    first, second = Process(server, clock, "first"), Process(server, clock, "second")
    async with first.running():
        await clock.sleep(5)
        async with second.running():
            await clock.sleep(5)
        second.api.fault = Fault.LOST
        await second.registration.remove()
    second.api.fault = Fault.NONE
    async with second.running():
        await clock.sleep(2 * KEPT_SECONDS)
        async with first.running():  # it was only stopped for a while
            await clock.sleep(5)
        first.api.fault = Fault.LOST
        await first.registration.remove()
    assert asked(server).startswith(second.url)


@in_virtual_time
async def test_what_was_made_without_an_answer_is_taken_away(clock: VirtualClock) -> None:
    server = MemoryServer()
    process = Process(server, clock, "process")
    made = process.api.create

    async def create(*args: Any, **options: Any) -> Any:
        await made(*args, **options)
        raise ConnectionFailed("no answer")

    process.api.create = create  # type: ignore[method-assign]
    with pytest.raises(ConnectionFailed):
        await process.registration.refresh()
    assert asked(server).startswith(process.url)
    await process.registration.remove()
    assert asked(server) == ""


@in_virtual_time
async def test_a_process_that_is_called_where_a_killed_one_was_takes_its_place_at_once(clock: VirtualClock) -> None:
    server = MemoryServer()
    killed = Process(server, clock, "killed")
    async with killed.running():
        await clock.sleep(1)
    again = Process(server, clock, "again", killed.url)
    async with again.running():
        await clock.sleep(1)
        await killed.registration.remove()
        assert asked(server).startswith(again.url)
        await again.registration.remove()
        assert asked(server) == ""


@in_virtual_time
async def test_a_configuration_without_a_keeper_is_brought_up_to_date(clock: VirtualClock) -> None:
    server = MemoryServer()
    [left] = render_configurations([webhook(lambda review: None)], NAME, {"url": "https://former:1"}, labels={})
    server.create(VALIDATING, left)
    process = Process(server, clock, "new")
    async with process.running():
        await clock.sleep(1)
        assert asked(server).startswith(process.url)
        await process.registration.remove()
        assert asked(server) == ""


@in_virtual_time
async def test_one_that_cannot_go_yet_is_asked_to_go_once(clock: VirtualClock) -> None:
    server = MemoryServer()
    process = Process(server, clock, "mine")
    async with process.running():
        await clock.sleep(1)
    server.patch(VALIDATING, NAME, None, {"metadata": {"finalizers": ["example.com/held"]}})
    await process.registration.remove()
    assert server.get(VALIDATING, NAME, None)["metadata"]["deletionTimestamp"]


@in_virtual_time
async def test_a_webhook_that_the_applied_configuration_lacks_is_told_and_the_others_are_called(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As when it was declared after the manifests were applied."""
    service: dict[str, object] = {"service": {"name": "sites-webhooks", "namespace": "system"}}
    check, quota, default = (
        replace(webhook(lambda review: None, sort), name=f"{name}.websites.example.com")
        for name, sort in (("check", Sort.VALIDATE), ("quota", Sort.VALIDATE), ("default", Sort.MUTATE))
    )
    server, published = MemoryServer(), Published()
    for each in render_configurations([check, default], "sites", service, labels={}):
        server.create(VALIDATING if each["kind"] == VALIDATING.kind else MUTATING, each)
    published.ca_bundle = b"PEM"
    published.loaded.set()
    registration = Registration(
        MemoryApi(server, clock), published,
        lambda bundle: render_configurations([check, quota, default], "sites", service, labels={}, ca_bundle=bundle),
        installs=False, identity="", clock=clock,
    )  # fmt: skip
    task = asyncio.create_task(registration.run())
    await clock.sleep(60)
    task.cancel()
    for resource in (VALIDATING, MUTATING):
        assert all("caBundle" in each["clientConfig"] for each in server.get(resource, "sites", None)["webhooks"])
    [line] = [vars(each) for each in caplog.records if each.levelno == logging.WARNING]
    assert "has no quota.websites.example.com" in line["reason"]
    assert "shardsdk manifests" in line["reason"]
