"""Webhook configurations that cannot be watched: people are told, and what somebody deletes is made anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sharder.core.lasting import LASTING_SECONDS
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from sharder.rings.deps import WebhookSettings
from shardsdk.errors import Forbidden, ServerError
from shardsdk.kube.api import Operation, Selection
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, CHILDREN, OWNERS, RING, Stage, leading, make_stage, ring

WEBHOOK = WebhookSettings({"url": "https://sharder.example"}, {}, lambda: None)
NAME = f"clusterring-{RING}"


class Unwatched(MemoryApi):
    """Webhook configurations cannot be watched."""

    broken = False

    async def read_events(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        if self.broken and selection.resource == WEBHOOK_CONFIGURATIONS:
            raise Forbidden("watch mutatingwebhookconfigurations: no", status=403)
        async for event in super().read_events(selection, options):
            yield event
            if self.broken and selection.resource == WEBHOOK_CONFIGURATIONS:
                return


def unwatched(clock: VirtualClock, api: type[Unwatched] = Unwatched, **spec: Any) -> tuple[Stage, Unwatched]:
    stage = make_stage(clock, api=api)
    assert isinstance(stage.api, Unwatched)
    stage.set_up(ring(ALONE, **spec), "one")
    return stage, stage.api


@in_virtual_time
async def test_one_that_is_deleted_is_made_anew_within_minutes_and_the_ring_says_why_not_at_once(
    clock: VirtualClock,
) -> None:
    stage, api = unwatched(clock)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.broken = True
        stage.server.patch(WEBHOOK_CONFIGURATIONS, NAME, None, {"metadata": {"labels": {"x": "y"}}})  # ends the watch
        await stage.until(lambda: stage.condition("Ready") == "False", seconds=2 * LASTING_SECONDS)
        [message] = stage.events.of("ReconciliationFailed")
        assert "mutatingwebhookconfigurations.admissionregistration.k8s.io cannot be read: watch" in message
        assert stage.condition("Settled") == "True", "objects are placed without it"
        for _ in range(2):
            stage.server.delete(WEBHOOK_CONFIGURATIONS, NAME, None)
            await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is not None, seconds=150)
        before = stage.patches(WEBHOOK_CONFIGURATIONS)
        await stage.pass_time(600)
        assert stage.patches(WEBHOOK_CONFIGURATIONS) - before <= 11
        api.broken = False
        await stage.until(lambda: stage.condition("Ready") == "True")


@in_virtual_time
async def test_that_of_a_ring_that_is_deleted_goes(clock: VirtualClock) -> None:
    stage, api = unwatched(clock)
    api.broken = True
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is not None)
        stage.server.delete(CLUSTERRINGS, RING, None)
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is None)


class Powerless(Unwatched):
    """Nor written, as a sharder is allowed that is to have no webhook."""

    async def send(self, operation: Operation[Any]) -> Any:
        if self.broken and operation.resource == WEBHOOK_CONFIGURATIONS:
            raise Forbidden(f"{operation.verb} mutatingwebhookconfigurations: no", status=403)
        return await super().send(operation)

    def read_stream(self, selection: Selection[Any], batch: int) -> AsyncIterator[list[Any]]:
        if self.broken and selection.resource == WEBHOOK_CONFIGURATIONS:
            raise Forbidden("list mutatingwebhookconfigurations: no", status=403)
        return super().read_stream(selection, batch)


@pytest.mark.parametrize("spec", [{}, {"assignment": "Ranges", "hashBy": "Namespace"}])
def test_a_sharder_without_webhook_needs_no_rights_on_them(spec: dict[str, Any]) -> None:
    @in_virtual_time
    async def ready(clock: VirtualClock) -> None:
        stage, api = unwatched(clock, Powerless, **spec)
        api.broken = True
        async with leading(stage):
            await stage.until(lambda: stage.condition("Ready") is not None)
            await stage.pass_time(2 * LASTING_SECONDS)
            assert stage.condition("Ready") == "True", stage.message("Ready")
            assert not stage.events.of("ReconciliationFailed")

    ready()


def test_a_ring_is_forgotten_whose_configuration_may_be_neither_seen_nor_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_virtual_time
    async def forgotten(clock: VirtualClock) -> None:
        stage, api = unwatched(clock, Powerless)
        api.broken = True
        async with leading(stage, webhook=WEBHOOK):
            await stage.until(lambda: stage.condition("Ready") == "False")
            stage.server.delete(CLUSTERRINGS, RING, None)
            await stage.pass_time(5)
            caplog.clear()
            await stage.pass_time(300)
            assert "ring not reconciled, will retry" not in caplog.messages

    forgotten()


class Denied(MemoryApi):
    """Webhook configurations may not be written, nor owners watched."""

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if resource == WEBHOOK_CONFIGURATIONS:
            raise Forbidden("cannot patch mutatingwebhookconfigurations", status=403)
        return await super().patch(resource, name, namespace, body, **more)

    async def allowed(self, verb: str, resource: GroupResource, **more: Any) -> bool:
        return (verb, resource) != ("watch", OWNERS.group_resource)


@in_virtual_time
async def test_rights_that_are_missing_are_named_though_the_configuration_cannot_be_written(
    clock: VirtualClock,
) -> None:
    stage = make_stage(clock, api=Denied)
    stage.set_up(ring(ALONE), "one")
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("PermissionsGranted") == "False", seconds=10)
        assert "watch owners.example.org" in stage.message("PermissionsGranted")
        assert "cannot patch mutatingwebhookconfigurations" in stage.message("Ready")


class HalfServed(Unwatched):
    """Nor is a resource of the ring served just now."""

    async def discover(self, group: str, plural: str) -> Resource | None:
        if plural == CHILDREN.plural:
            raise ServerError("discovery: service unavailable", status=503)
        return await super().discover(group, plural)


@in_virtual_time
async def test_a_ring_has_its_own_also_while_one_of_its_resources_is_away(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=HalfServed)
    assert isinstance(stage.api, HalfServed)
    stage.api.broken = True
    stage.set_up(ring(ALONE, {"resource": CHILDREN.plural}), "one")
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is not None)


class ListedLate(HalfServed):
    """Which configurations there are takes its time to be listed."""

    async def read_events(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        if selection.resource == WEBHOOK_CONFIGURATIONS:
            await self.clock.sleep(20.0)
        async for event in super().read_events(selection, options):
            yield event


@in_virtual_time
async def test_so_it_has_where_nobody_could_tell_at_first_whether_there_is_one(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=ListedLate)
    stage.set_up(ring(ALONE, {"resource": CHILDREN.plural}), "one")
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, NAME) is not None, seconds=24)
