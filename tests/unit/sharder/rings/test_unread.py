"""What of a ring cannot be read for a while is told, and what cannot be read for a moment is not."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sharder.core.lasting import LASTING_SECONDS
from sharder.core.rights import MissingRule
from sharder.core.summary import Failures, Pending
from sharder.rings.unread import Unread
from shardsdk.errors import Forbidden, ServerError, ShardingError
from shardsdk.protocol.objects import CLUSTERRINGS, NAMESPACES, GroupResource, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, OWNERS, Stage, leading, make_stage, ring, thing

NAME = OWNERS.group_resource
BY_WATCH, BY_RESYNC = "watch", "resync"


class Breaking(MemoryApi):
    """Some resources cannot be read, by some of those that read."""

    broken: Resource | None = None
    readers = frozenset({BY_WATCH, BY_RESYNC})
    missing: frozenset[str] = frozenset()
    _attempts = itertools.count()

    def _refuse(self, resource: Resource, reader: str) -> None:
        if resource == self.broken and self.missing:
            raise Forbidden(f"list {resource.plural}", status=403)
        if resource == self.broken and reader in self.readers:
            raise ServerError(f"conversion webhook failed, attempt {next(self._attempts)}", status=500)

    async def read_pages(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        self._refuse(selection.resource, BY_RESYNC)
        async for page in super().read_pages(selection, options):
            yield page

    async def read_events(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        self._refuse(selection.resource, BY_WATCH)
        async for event in super().read_events(selection, options):
            yield event

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        return not (self.broken is not None and resource == self.broken.group_resource and verb in self.missing)


def breaking(clock: VirtualClock) -> tuple[Stage, Breaking]:
    """A ring of owners alone, and a shard."""
    stage = make_stage(clock, api=Breaking)
    assert isinstance(stage.api, Breaking)
    stage.set_up(ring(ALONE), "one")
    return stage, stage.api


def is_told(stage: Stage, name: str) -> Callable[[], bool]:
    return lambda: stage.condition("Ready") == "False" and f"{name} cannot be read" in stage.message("Ready")


@in_virtual_time
async def test_a_resource_that_cannot_be_read_is_named_with_the_answer_until_it_can(clock: VirtualClock) -> None:
    stage, api = breaking(clock)
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.broken = OWNERS
        assert replica._leader is not None
        replica._leader._restart_watches()
        stage.create(OWNERS, thing("it"))
        await stage.until(is_told(stage, "owners.example.org"), seconds=300)
        assert "conversion webhook failed" in stage.message("Ready")
        assert stage.condition("Settled") == "Unknown"
        assert any("owners.example.org cannot be read" in each for each in stage.events.of("ReconciliationFailed"))
        before = stage.patches(CLUSTERRINGS)
        await stage.pass_time(600)
        assert stage.patches(CLUSTERRINGS) == before  # though each answer has other words
        api.broken = None
        await stage.until(lambda: stage.condition("Ready") == "True", seconds=120)
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=60)
        assert stage.label(OWNERS, "it") == "one"


@in_virtual_time
async def test_lists_that_fail_are_told_of_although_the_watches_go_on(clock: VirtualClock) -> None:
    stage, api = breaking(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.broken, api.readers = OWNERS, frozenset({BY_RESYNC})
        stage.start("two")  # the objects are gone through
        await stage.until(is_told(stage, "owners.example.org"), seconds=300)
        assert stage.condition("Settled") == "Unknown"
        api.broken = None
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=120)
        await stage.until(lambda: stage.condition("Ready") == "True", seconds=10)


@in_virtual_time
async def test_what_fails_for_a_moment_changes_nothing_of_the_status(clock: VirtualClock) -> None:
    stage, api = breaking(clock)
    async with leading(stage) as replica:
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(10)
        before = stage.patches(CLUSTERRINGS)
        for _ in range(5):
            api.broken = OWNERS
            assert replica._leader is not None
            replica._leader._restart_watches()
            await stage.pass_time(20)
            api.broken = None
            await stage.pass_time(100)
        assert stage.patches(CLUSTERRINGS) == before


@in_virtual_time
async def test_namespaces_that_cannot_be_read_are_told_of(clock: VirtualClock) -> None:
    stage, api = breaking(clock)
    api.broken = NAMESPACES
    stage.create(OWNERS, thing("it"))
    async with leading(stage):
        await stage.until(is_told(stage, "namespaces"), seconds=300)
        assert stage.label(OWNERS, "it") is None
        api.broken = None
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=60)
        await stage.until(lambda: stage.condition("Ready") == "True", seconds=10)


@pytest.mark.parametrize("verb", ["list", "watch"])
@in_virtual_time
async def test_a_right_on_namespaces_that_is_missing_is_named(clock: VirtualClock, verb: str) -> None:
    stage, api = breaking(clock)
    api.broken, api.missing = NAMESPACES, frozenset({verb})
    async with leading(stage):
        await stage.until(lambda: stage.condition("PermissionsGranted") == "False", seconds=10)
        assert stage.condition("Ready") == "False"
        assert f"may not {verb} namespaces; its own ClusterRole lacks that" in stage.message("PermissionsGranted")
        await stage.pass_time(2 * LASTING_SECONDS)
        assert "cannot be read" not in stage.message("Ready")  # it is said once
        api.broken = None
        await stage.until(lambda: stage.condition("Ready") == "True", seconds=40)
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=60)


def failing(error: ShardingError, reader: str = Pending.STRANDED) -> Failures:
    return ((NAME, reader, error),)


@in_virtual_time
async def test_only_what_fails_without_a_break_lasts(clock: VirtualClock) -> None:
    unread, error = Unread(clock), ServerError("no", status=500)
    assert unread.look(failing(error), ()) == ()
    assert unread.any
    await clock.sleep(LASTING_SECONDS - 1)
    assert unread.look(failing(error, Pending.DRAINING), ()) == ()  # another watch, which has not failed before
    assert unread.look(failing(error), ()) == ()
    await clock.sleep(LASTING_SECONDS)
    assert unread.look(failing(error), ()) == failing(error)
    assert unread.look((), ()) == ()
    assert not unread.any


@in_virtual_time
async def test_a_right_that_is_missing_is_not_told_twice_and_counts_from_when_it_is_granted(
    clock: VirtualClock,
) -> None:
    unread, error, missing = Unread(clock), Forbidden("no", status=403), (MissingRule("watch", NAME),)
    for _ in range(3):
        assert unread.look(failing(error), missing) == ()
        await clock.sleep(LASTING_SECONDS)
    assert unread.look(failing(error), ()) == ()
    await clock.sleep(LASTING_SECONDS)
    assert unread.look(failing(error), ()) == failing(error)
