"""A shard reconciles what is its own, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardsdk.cache.objects import metadata_of
from shardsdk.errors import ConnectionFailed
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import PartialObject
from shardsdk.queueing import predicates
from shardsdk.reconcile.context import Context
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Rig

Ctx = Context[PartialObject]


@in_virtual_time
async def test_only_own_objects_are_reconciled(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    rig.secret("other", shard="shard-2")
    rig.secret("nobody", shard=None)
    async with rig.shard():
        await clock.sleep(5)
        rig.secret("late")
        await clock.sleep(5)
    assert rig.reconciled == ["mine", "late"]


@in_virtual_time
async def test_the_guard_holds_even_where_the_cache_is_not_filtered(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    rig.secret("other", shard="shard-2")
    rig.secret("nobody", shard=None)
    async with rig.shard(filtered=False) as reconciler:
        await clock.sleep(5)
        for request in rig.main.requests():
            reconciler.queue.add(request)
        await clock.sleep(5)
    assert set(rig.reconciled) == {"mine"}
    assert rig.counter("ignored_total") == 2


@in_virtual_time
async def test_an_object_that_is_drained_already_is_acknowledged_and_never_reconciled(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("leaving")
    rig.drain("leaving")
    async with rig.shard():
        await clock.sleep(5)
    assert rig.reconciled == []
    assert rig.labels("leaving") == {}


@in_virtual_time
async def test_nothing_is_reconciled_before_every_cache_is_complete(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    rig.api.fault = Fault.REFUSED
    async with rig.shard():
        await clock.sleep(5)
        assert rig.reconciled == []
        rig.api.fault = Fault.NONE
        await clock.sleep(60)
    assert rig.reconciled == ["mine"]


@in_virtual_time
async def test_nothing_is_reconciled_without_the_lease(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    rig.hold.seconds = 0
    async with rig.shard():
        await clock.sleep(5)
    assert rig.reconciled == []


@in_virtual_time
async def test_the_guard_is_asked_in_the_turn_in_which_the_reconcile_begins(clock: VirtualClock) -> None:
    """An object waits in the queue behind a slow one; when its turn comes, the label seen last counts."""
    rig = Rig(clock)

    async def slow(context: Ctx) -> None:
        await clock.sleep(10)

    rig.secret("first")
    async with rig.shard(slow, concurrency=1):
        await clock.sleep(5)
        rig.secret("second")
        await clock.sleep(1)
        rig.drain("second")
        await clock.sleep(20)
    assert rig.reconciled == ["first"]
    assert rig.labels("second") == {}


@in_virtual_time
async def test_an_object_that_goes_away_unasked_takes_its_reconcile_with_it(clock: VirtualClock) -> None:
    rig = Rig(clock)
    ended: list[str] = []

    async def slow(context: Ctx) -> None:
        try:
            await clock.sleep(1000)
        except asyncio.CancelledError:
            ended.append(f"{context.request.name} at {clock.monotonic():.0f}")
            raise

    rig.secret("mine")
    async with rig.shard(slow):
        await clock.sleep(5)
        rig.relabel(SECRETS, "mine", shard="shard-2")
        await clock.sleep(5)
        assert ended == ["mine at 5"]


@in_virtual_time
async def test_nothing_is_known_any_more_of_objects_that_went_while_they_were_reconciled(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def slow(context: Ctx) -> None:
        await clock.sleep(1000)

    async with rig.shard(slow, owns=False) as reconciler:
        for number in range(5):
            rig.secret(f"s{number}")
            await clock.sleep(1)
            rig.server.delete(SECRETS, f"s{number}", "default")
            await clock.sleep(1)
        rig.secret("given")
        await clock.sleep(1)
        rig.relabel(SECRETS, "given", shard="shard-2")
        await clock.sleep(100)
        assert reconciler.not_at_rest() == []
    assert len(rig.reconciled) == 6


@in_virtual_time
async def test_the_error_of_an_object_that_is_there_is_known_until_it_goes(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def fail(context: Ctx) -> None:
        raise ConnectionFailed("the printer is on fire")

    async with rig.shard(fail, owns=False) as reconciler:
        rig.secret("mine")
        await clock.sleep(5)
        (request,) = reconciler.not_at_rest()
        assert "the printer is on fire" in reconciler.explain(request).text
        rig.server.delete(SECRETS, "mine", "default")
        await clock.sleep(100)
        assert reconciler.not_at_rest() == []


@in_virtual_time
async def test_a_reconcile_that_ends_its_object_by_the_last_finalizer_is_not_cancelled(clock: VirtualClock) -> None:
    rig = Rig(clock)
    ended: list[str] = []

    async def clean_up(context: Ctx) -> None:
        if context.metadata.deletion_timestamp:
            await context.api.patch(SECRETS, "mine", "default", {"metadata": {"finalizers": None}})
            await clock.sleep(10)
            ended.append("cleaned up")

    rig.secret("mine", finalizers=["example.com/f"])
    async with rig.shard(clean_up):
        await clock.sleep(1)
        rig.server.delete(SECRETS, "mine", "default")
        await clock.sleep(60)
    assert ended == ["cleaned up"]


@in_virtual_time
async def test_a_change_of_a_child_wakes_its_owner(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "child")
    async with rig.shard():
        await clock.sleep(5)
        rig.reconciled.clear()
        rig.server.patch(CONFIGMAPS, "child", "default", {"data": {"k": "v"}})
        await clock.sleep(5)
        assert rig.reconciled == ["owner"]
        rig.server.delete(CONFIGMAPS, "child", "default")
        await clock.sleep(5)
    assert rig.reconciled == ["owner", "owner"]


@in_virtual_time
async def test_a_change_overtakes_what_a_list_brought_be_it_the_first_or_a_later_one(clock: VirtualClock) -> None:
    rig = Rig(clock)
    names = [f"secret-{number}" for number in range(5)]
    overtaking = ["secret-0", "secret-4", "secret-1", "secret-2", "secret-3"]

    async def slow(context: Ctx) -> None:
        await clock.sleep(10)

    def change(name: str, value: str) -> None:
        rig.server.patch(SECRETS, name, "default", {"data": {"k": value}})

    for name in names:
        rig.secret(name)
        rig.child(name, f"of-{name}")
    async with rig.shard(slow, concurrency=1):
        await clock.sleep(5)
        assert rig.reconciled == ["secret-0"]
        change("secret-4", "fresh")
        await clock.sleep(100)
        assert rig.reconciled == overtaking

        rig.reconciled.clear()
        rig.api.fault = Fault.REFUSED
        await clock.sleep(1)
        for name in names:
            change(name, "missed")
        rig.server.compacted = rig.server.version  # the watch cannot go on: all is listed anew
        rig.api.fault = Fault.NONE
        while not rig.reconciled:
            await clock.sleep(1)
        change("secret-4", "fresh again")
        await clock.sleep(100)
        assert rig.reconciled == overtaking


@in_virtual_time
async def test_what_the_reconcile_gets_is_its_own_copy(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def spoil(context: Ctx) -> None:
        assert context.object.metadata.labels is not None
        context.object.metadata.labels.clear()
        for child in context.children(CONFIGMAPS):
            child.metadata.labels.clear()

    rig.secret("owner")
    rig.child("owner", "child")
    async with rig.shard(spoil):
        await clock.sleep(5)
        for request in rig.main.requests():
            kept = rig.main.get(request)
            assert kept is not None
            assert kept.metadata.label(RING.shard) == "shard-1"
        assert [child.metadata.label(RING.shard) for child in map(rig.children.get, rig.children.requests()) if child]


@in_virtual_time
async def test_predicates_choose_among_changes_but_never_hide_a_drain_or_its_end(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard(predicate=lambda delta: delta.initial):
        await clock.sleep(5)
        rig.server.patch(SECRETS, "mine", "default", {"data": {"k": "1"}})
        await clock.sleep(5)
        assert rig.reconciled == ["mine"]
        rig.api.fault = Fault.REFUSED  # the acknowledgement does not get through
        rig.drain("mine")
        await clock.sleep(5)
        rig.relabel(SECRETS, "mine", drain=None)
        rig.api.fault = Fault.NONE
        await clock.sleep(60)
        assert rig.reconciled == ["mine", "mine"]
        rig.drain("mine")
        await clock.sleep(5)
    assert rig.labels("mine") == {}


def data_changed(delta: Delta[Any]) -> bool:
    """As users write filters on changes: what arrives passes."""
    return delta.old is None or metadata_of(delta.old).generation != metadata_of(delta.object).generation


def in_the_north(delta: Delta[Any]) -> bool:
    """Whose an object is."""
    return (metadata_of(delta.object).annotations or {}).get("region") == "north"


@pytest.mark.parametrize(
    ("predicate", "cleaned_up"),
    [
        (data_changed, ["at-the-start", "later"]),
        (lambda delta: delta.old is None, ["at-the-start", "later"]),
        (predicates.of_kind(EventKind.MODIFIED), ["later"]),
        (in_the_north, []),
        (predicates.all_of(in_the_north, data_changed), []),
        (predicates.never, []),
    ],
)
@in_virtual_time
async def test_that_a_deletion_has_begun_passes_where_an_arrival_would(
    clock: VirtualClock, predicate: predicates.Predicate, cleaned_up: list[str]
) -> None:
    """It is easily forgotten in a filter on changes, and somebody is to clean up; unless the object is not ours."""
    rig = Rig(clock)
    for name in ("at-the-start", "later"):
        rig.secret(name, finalizers=["example.com/held", "example.com/other"], annotations={"region": "south"})
    rig.server.delete(SECRETS, "at-the-start", "default")
    rig.secret("nothing-to-do")
    async with rig.shard(predicate=predicate):
        await clock.sleep(5)
        rig.reconciled[:] = [name for name in rig.reconciled if name == "at-the-start"]
        rig.server.delete(SECRETS, "later", "default")
        rig.server.delete(SECRETS, "nothing-to-do", "default")
        await clock.sleep(5)
    assert rig.reconciled == cleaned_up


@in_virtual_time
async def test_that_a_deletion_goes_on_is_a_change_like_any_other(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine", finalizers=["example.com/held", "example.com/other"])
    async with rig.shard(predicate=lambda delta: delta.old is None):
        await clock.sleep(5)
        rig.server.delete(SECRETS, "mine", "default")
        await clock.sleep(5)
        rig.server.patch(SECRETS, "mine", "default", {"metadata": {"finalizers": ["example.com/held"]}})
        await clock.sleep(60)
    assert rig.reconciled == ["mine", "mine"]


@in_virtual_time
async def test_a_predicate_that_raises_hides_nothing(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")

    def broken(delta: object) -> bool:
        raise RuntimeError("boom")

    async with rig.shard(predicate=broken):
        await clock.sleep(5)
    assert rig.reconciled == ["mine"]


@in_virtual_time
async def test_a_stale_write_on_the_main_object_is_refused_and_retried_with_what_is_there(clock: VirtualClock) -> None:
    rig = Rig(clock)
    versions: list[str] = []

    async def write(context: Ctx) -> None:
        versions.append(context.metadata.resource_version)
        if len(versions) == 1:
            rig.server.patch(SECRETS, "mine", "default", {"data": {"theirs": "1"}})
        if len(versions) <= 2:
            await context.api.patch(SECRETS, "mine", "default", {"data": {"ours": str(len(versions))}})

    rig.secret("mine")
    async with rig.shard(write):
        await clock.sleep(60)
    assert rig.server.get(SECRETS, "mine", "default")["data"] == {"theirs": "1", "ours": "2"}


@in_virtual_time
async def test_a_reconcile_cut_off_from_the_api_server_comes_back(clock: VirtualClock) -> None:
    rig = Rig(clock)
    errors: list[Exception] = []

    async def write(context: Ctx) -> None:
        if not errors:
            rig.api.fault = Fault.REFUSED
        try:
            await context.api.patch(SECRETS, "mine", "default", {"data": {"k": "v"}})
        except ConnectionFailed as error:
            errors.append(error)
            rig.api.fault = Fault.NONE
            raise

    rig.secret("mine")
    async with rig.shard(write):
        await clock.sleep(60)
    assert len(errors) == 1
    assert rig.server.get(SECRETS, "mine", "default")["data"] == {"k": "v"}
