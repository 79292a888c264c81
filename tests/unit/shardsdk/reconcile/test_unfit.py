"""What a cache cannot show holds up nobody but itself and its owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import Invalid
from shardsdk.kube.api import Selection, WatchEvent, WatchOptions
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.explain import Wait
from shardsdk.reconcile.spec import controller_for
from shardsdk.reconcile.unfit import CHILD_UNREADABLE, UNREADABLE
from shardsdk.testing import Rig as Driven
from shardsdk.testing import drive
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Lag, Rig

Ctx = Context[Any]


class Filled(msgspec.Struct, frozen=True):
    """A type that an object without `data` does not fit."""

    metadata: ObjectMeta
    data: dict[str, str]


TYPED_CHILDREN = {CONFIGMAPS: Filled}
GOOD: dict[str, Any] = {"data": {"k": "v"}}
BAD: dict[str, Any] = {"binaryData": {"k": "dg=="}}
MEND = {"data": {"k": "v"}, "binaryData": None}
SPOIL = {"data": None, "binaryData": {"k": "dg=="}}


async def make_child_if_missing(context: Ctx) -> None:
    if not context.children(CONFIGMAPS):
        metadata = {
            "generateName": "made-",
            "namespace": "default",
            "ownerReferences": [context.controller_reference()],
        }
        await context.api.create(CONFIGMAPS, {"metadata": metadata, **GOOD}, "default")


def unfit_objects(rig: Rig, resource: str = "configmaps") -> float | None:
    return rig.metrics.registry.get_sample_value("shardsdk_unfit_objects", {"resource": resource})


@in_virtual_time
async def test_of_twenty_owners_just_the_one_with_the_bad_child_waits(clock: VirtualClock) -> None:
    rig = Rig(clock)
    for number in range(20):
        rig.secret(f"owner{number}")
        rig.child(f"owner{number}", f"child{number}", **(BAD if number == 7 else GOOD))
    async with rig.shard(make_child_if_missing, models=TYPED_CHILDREN):
        await clock.sleep(5)
        assert sorted(rig.reconciled) == sorted(f"owner{number}" for number in range(20) if number != 7)
        assert len(rig.server.select(CONFIGMAPS)) == 20
        assert (rig.counter("owners_held_back"), rig.counter("owners_waiting"), unfit_objects(rig)) == (1, 0, 1)
        rig.server.patch(CONFIGMAPS, "child7", "default", MEND)
        await clock.sleep(5)
        assert (rig.counter("owners_held_back"), unfit_objects(rig)) == (0, 0)
    assert "owner7" in rig.reconciled
    assert len(rig.server.select(CONFIGMAPS)) == 20


@in_virtual_time
async def test_owners_that_arrive_later_are_not_held_up_by_it_either(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("bad", shard="shard-2")
    rig.child("bad", "odd", shard="shard-2", **BAD)
    rig.secret("good", shard="shard-2")
    rig.child("good", "child", shard="shard-2", **GOOD)
    async with rig.shard(make_child_if_missing, models=TYPED_CHILDREN):
        await clock.sleep(5)
        for child in ("odd", "child"):
            rig.relabel(CONFIGMAPS, child, shard="shard-1")
        for owner in ("bad", "good"):
            rig.relabel(SECRETS, owner, shard="shard-1")
        await clock.sleep(5)
        assert rig.reconciled == ["good"]
        rig.server.delete(CONFIGMAPS, "odd", "default")
        await clock.sleep(5)
    assert rig.reconciled[:2] == ["good", "bad"]
    assert len(rig.server.select(CONFIGMAPS)) == 2  # the deleted one was made again


@in_virtual_time
async def test_a_child_that_is_spoilt_while_its_owner_is_worked_on_is_not_made_twice(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "child", **GOOD)
    async with rig.shard(make_child_if_missing, models=TYPED_CHILDREN):
        await clock.sleep(5)
        rig.server.patch(CONFIGMAPS, "child", "default", SPOIL)
        rig.server.patch(SECRETS, "owner", "default", {"data": {"k": "v"}})
        await clock.sleep(60)
        assert [each["metadata"]["name"] for each in rig.server.select(CONFIGMAPS)] == ["child"]
        assert rig.counter("owners_held_back") == 1
    assert rig.reconciled == ["owner"]


@in_virtual_time
async def test_a_write_that_makes_a_child_unfit_counts_as_seen(clock: VirtualClock) -> None:
    """Else its owner would wait 15 s for it, and then for another list."""
    rig = Rig(clock)

    async def spoil(context: Ctx) -> None:
        await context.api.patch(CONFIGMAPS, "child", "default", SPOIL)

    rig.secret("owner")
    rig.child("owner", "child", **GOOD)
    async with rig.shard(spoil, models=TYPED_CHILDREN):
        await clock.sleep(100)
        assert rig.counter("expectations_expired_total") == 0
        assert rig.counter("child_lists_total") == 1


@in_virtual_time
async def test_an_owner_that_is_being_deleted_may_clean_up(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner", finalizers=["example.com/held"])
    rig.child("owner", "child", **BAD)
    async with rig.shard(models=TYPED_CHILDREN):
        await clock.sleep(5)
        assert rig.reconciled == []
        rig.server.delete(SECRETS, "owner", "default")
        await clock.sleep(5)
    assert rig.reconciled == ["owner"]


@in_virtual_time
async def test_a_main_object_that_does_not_fit_is_given_away_like_any_other(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("mine")
    async with rig.shard(models={SECRETS: Filled}):
        await clock.sleep(5)
        rig.drain("mine")
        await clock.sleep(1)
        assert rig.reconciled == []
        assert rig.labels("mine") == {}
        assert rig.counter("acknowledgements_total") == 1
        rig.relabel(SECRETS, "mine", shard="shard-1")
        rig.server.patch(SECRETS, "mine", "default", GOOD)
        await clock.sleep(5)
    assert rig.reconciled == ["mine"]


class InPages(MemoryApi):
    """An API server that sends no list as the first events of a watch."""

    async def read_events(self, selection: Selection[Any], options: WatchOptions) -> AsyncIterator[WatchEvent[Any]]:
        if options.resource_version is None:
            raise Invalid("sendInitialEvents is forbidden", status=422)
        async for event in super().read_events(selection, options):
            yield event


@in_virtual_time
async def test_what_does_not_fit_is_known_from_a_list_in_pages_as_well(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.api = InPages(rig.server, clock, fence=rig.hold)
    rig.secret("mine")
    rig.drain("mine")
    rig.child("mine", "child", **BAD)
    async with rig.shard(models={SECRETS: Filled, CONFIGMAPS: Filled}):
        await clock.sleep(5)
        assert (unfit_objects(rig, "secrets"), unfit_objects(rig)) == (0, 1)
        assert rig.labels("mine") == {}, "it was given away"


@in_virtual_time
async def test_a_main_object_spoilt_while_it_is_reconciled_is_given_away_when_that_has_ended(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    ended: list[str] = []

    async def slow(context: Ctx) -> None:
        await clock.sleep(50)
        ended.append(rig.labels("mine").get(RING.shard, "nobody's"))

    rig.server.create(
        SECRETS, {"metadata": {"name": "mine", "namespace": "default", "labels": {RING.shard: "shard-1"}}, **GOOD}
    )
    async with rig.shard(slow, models={SECRETS: Filled}):
        await clock.sleep(5)
        rig.server.patch(SECRETS, "mine", "default", SPOIL)
        await clock.sleep(1)
        rig.drain("mine")
        await clock.sleep(30)
        assert rig.counter("drains_waiting") == 1
        await clock.sleep(30)
        assert rig.labels("mine") == {}
    assert ended == ["shard-1"]


@in_virtual_time
async def test_one_whose_name_has_gone_to_another_that_does_not_fit_is_worked_on_no_more(clock: VirtualClock) -> None:
    rig = Rig(clock)
    metadata = {"name": "mine", "namespace": "default", "labels": {RING.shard: "shard-1"}}
    rig.server.create(SECRETS, {"metadata": metadata, **GOOD})
    ended: list[str] = []

    async def slow(context: Ctx) -> None:
        await clock.sleep(50)
        ended.append(context.metadata.uid)

    async with rig.shard(slow, models={SECRETS: Filled}):
        await clock.sleep(5)
        Lag(rig, SECRETS, 1000)
        rig.server.delete(SECRETS, "mine", "default")
        rig.server.create(SECRETS, {"metadata": metadata, **BAD})
        rig.main._reflectors[None].restart()  # a list shows the new one, and no deletion
        await clock.sleep(60)
    assert (rig.reconciled, ended) == (["mine"], [])


@in_virtual_time
async def test_a_child_that_the_cache_is_slow_to_show_holds_up_its_own_owner_alone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    for name in ("early", "late"):
        rig.secret(name, shard="shard-2")
        rig.child(name, f"of-{name}", shard="shard-2")
    async with rig.shard(make_child_if_missing):
        await clock.sleep(5)
        seen = withhold(rig, "of-late")
        for name in ("early", "late"):
            rig.relabel(CONFIGMAPS, f"of-{name}", shard="shard-1")
            rig.relabel(SECRETS, name, shard="shard-1")
        await clock.sleep(100)
        assert rig.reconciled == ["early"]
        seen.set()
        rig.nudge(CONFIGMAPS)
        await clock.sleep(5)
    assert rig.reconciled == ["early", "late"]
    assert len(rig.server.select(CONFIGMAPS, "default")) == 2


def withhold(rig: Rig, name: str) -> asyncio.Event:
    """Until the event is set, no watch tells of the config map `name`, nor of what follows it."""
    seen, real = asyncio.Event(), rig.server.changes

    def changes(resource: Any, since: int) -> list[Any]:
        found = real(resource, since)
        if resource != CONFIGMAPS or seen.is_set():
            return found
        hidden = [each for each in found if (each.new or {}).get("metadata", {}).get("name") == name]
        return found[: found.index(hidden[0])] if hidden else found

    rig.server.changes = changes  # type: ignore[method-assign]
    return seen


@in_virtual_time
async def test_a_list_that_shows_the_same_again_is_no_news(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("odd")
    told: list[tuple[str, bool]] = []
    async with rig.shard(models={SECRETS: Filled}):
        rig.main.listen_unfit(lambda unfit, _: told.append((unfit.metadata.resource_version, unfit.gone)))
        await clock.sleep(5)
        for _ in range(2):
            rig.main._reflectors[None].restart()
            await clock.sleep(5)
        assert told == [("2", False)]
        assert unfit_objects(rig, "secrets") == 1
        rig.server.delete(SECRETS, "odd", "default")
        await clock.sleep(5)
        assert told == [("2", False), ("3", True)]
        assert unfit_objects(rig, "secrets") == 0


@in_virtual_time
async def test_what_vanished_while_nobody_was_looking_is_counted_no_more(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "odd", **BAD)
    lag = Lag(rig, CONFIGMAPS, 0)
    async with rig.shard(models=TYPED_CHILDREN):
        await clock.sleep(5)
        assert (unfit_objects(rig), rig.reconciled) == (1, [])
        lag.seconds = 1000
        rig.server.delete(CONFIGMAPS, "odd", "default")
        rig.children._reflectors[None].restart()
        await clock.sleep(5)
        assert (unfit_objects(rig), rig.reconciled) == (0, ["owner"])


# -- functions of the user's on the way into a cache ------------------------------


def raise_for_bad(thing: PartialObject) -> list[str]:
    if (thing.metadata.annotations or {}).get("bad"):
        raise KeyError("the index does not bear this one")
    return [thing.metadata.name]


def transform_for_bad(thing: PartialObject) -> PartialObject:
    raise_for_bad(thing)
    return thing


CACHED: dict[str, dict[str, Any]] = {
    "index": {"indexes": {"mine": raise_for_bad}},
    "transform": {"transform": transform_for_bad},
}


@pytest.mark.parametrize("function", CACHED)
@in_virtual_time
async def test_a_function_that_raises_for_one_main_object_holds_up_that_one_alone(
    clock: VirtualClock, function: str
) -> None:
    rig = Rig(clock)
    rig.secret("good")
    rig.secret("bad", annotations={"bad": "yes"})
    async with rig.shard(cached={SECRETS: CACHED[function]}):
        await clock.sleep(5)
        assert rig.reconciled == ["good"]
        rig.server.patch(SECRETS, "good", "default", {"metadata": {"annotations": {"bad": "yes"}}})
        await clock.sleep(5)
        assert unfit_objects(rig, "secrets") == 2
        for name in ("good", "bad"):
            rig.drain(name)
        await clock.sleep(5)
        assert rig.labels("good") == rig.labels("bad") == {}
        assert unfit_objects(rig, "secrets") == 0
        assert not any(task.done() for task in rig.tasks)
    assert rig.reconciled == ["good"]


@pytest.mark.parametrize("function", CACHED)
@in_virtual_time
async def test_a_function_that_raises_for_one_child_holds_back_its_owner_alone(
    clock: VirtualClock, function: str
) -> None:
    rig = Rig(clock)
    for number in range(3):
        rig.secret(f"owner{number}")
        rig.child(f"owner{number}", f"child{number}")
    rig.server.patch(CONFIGMAPS, "child1", "default", {"metadata": {"annotations": {"bad": "yes"}}})
    async with rig.shard(make_child_if_missing, cached={CONFIGMAPS: CACHED[function]}):
        await clock.sleep(5)
        assert sorted(rig.reconciled) == ["owner0", "owner2"]
        rig.server.delete(CONFIGMAPS, "child1", "default")
        await clock.sleep(5)
    assert sorted(rig.reconciled)[:3] == ["owner0", "owner1", "owner1"]
    assert len(rig.server.select(CONFIGMAPS)) == 3


# -- what people are told -----------------------------------------------------------


async def nothing(context: Ctx) -> None:
    return None


DRIVEN = controller_for(SECRETS, Filled).owns(CONFIGMAPS, Filled).reconcile(nothing)


@pytest.mark.parametrize("scope", [lambda spec: spec, lambda spec: spec.on_leader()], ids=["shard", "leader"])
def test_people_are_told_by_events_on_the_object_that_is_not_reconciled(scope: Callable[[Any], Any]) -> None:
    async def story(rig: Driven) -> None:
        rig.create_child(SECRETS, "owner", CONFIGMAPS, {"metadata": {"name": "odd"}, **BAD})
        rig.patch(SECRETS, "owner", {"metadata": {"annotations": {"changed": "yes"}}})
        await rig.settle()

    objects = [(SECRETS, {"metadata": {"name": name}, **content}) for name, content in (("owner", GOOD), ("odd", BAD))]
    rig = drive(scope(DRIVEN), objects, story)
    assert [name for name, _ in rig.outcomes] == ["owner"]
    told = {(name, reason): message for name, reason, message in rig.events}
    assert "missing required field `data`" in told["odd", UNREADABLE]
    assert "ConfigMap 'odd'" in told["owner", CHILD_UNREADABLE]


@in_virtual_time
async def test_an_object_that_does_not_fit_says_so_itself(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    async with rig.shard(make_child_if_missing, models={SECRETS: Filled}) as reconciler:
        await clock.sleep(5)
        asked = Request("default", "a")
        said = reconciler.explain(asked)
        assert said.wait is Wait.UNFIT
        assert said.text == "default/a: is not reconciled until it can be read: Object missing required field `data`"
        assert reconciler.not_at_rest() == [asked]
        rig.server.patch(SECRETS, "a", "default", MEND)
        await clock.sleep(5)
        assert reconciler.explain(asked).wait is Wait.NOTHING
        assert reconciler.not_at_rest() == []
