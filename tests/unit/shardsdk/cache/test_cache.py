from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request, is_at_least, metadata_of, owner_of, private_copy
from shardsdk.kube.reflector import Delta
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, ME, SECRETS, Rig


@asynccontextmanager
async def running(cache: Cache[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(cache.run())
    await cache.wait_synced()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class Secret(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


@in_virtual_time
async def test_a_copy_can_be_changed_and_the_cache_does_not(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.server.create(SECRETS, {"metadata": {"name": "x", "namespace": "default"}, "data": {"k": "v"}})
    where = Request("default", "x")
    structs = Cache(rig.api, SECRETS, clock=clock, rng=Random(1), model=Secret)
    dicts = Cache(rig.api, SECRETS, clock=clock, rng=Random(1), model=dict[str, Any])
    async with running(structs), running(dicts):
        mine, raw = structs.get(where), dicts.get(where)
        assert mine is not None
        assert raw is not None
        mine.data["k"] = raw["data"]["k"] = "spoilt"
        kept, kept_raw = structs.get(where), dicts.get(where)
        assert kept is not None
        assert kept_raw is not None
        assert kept.data == kept_raw["data"] == {"k": "v"}


@in_virtual_time
async def test_children_are_found_by_the_uid_of_their_controller_in_order_of_their_names(clock: VirtualClock) -> None:
    rig = Rig(clock)
    uid = rig.secret("owner")["metadata"]["uid"]
    rig.secret("other")
    for name in ("b", "a"):
        rig.child("owner", name)
    rig.child("other", "c")
    cache: Cache[PartialObject] = Cache(rig.api, CONFIGMAPS, clock=clock, rng=Random(1), selector=ME.selector())
    async with running(cache):
        assert [child.metadata.name for child in cache.controlled_by(uid)] == ["a", "b"]
        rig.server.delete(CONFIGMAPS, "a", "default")
        rig.server.patch(CONFIGMAPS, "b", "default", {"metadata": {"ownerReferences": None}})
        await clock.sleep(1)
        assert cache.controlled_by(uid) == []
        assert len(cache) == 2


@in_virtual_time
async def test_listeners_are_told_after_the_cache_shows_the_change(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("x")
    cache: Cache[PartialObject] = Cache(rig.api, SECRETS, clock=clock, rng=Random(1))
    shown: list[bool] = []

    def listen(delta: Delta[PartialObject]) -> None:
        shown.append(cache.peek(Request("default", "x")) is delta.object)

    cache.listen(listen)
    async with running(cache):
        rig.server.patch(SECRETS, "x", "default", {"data": {"k": "v"}})
        await clock.sleep(1)
    assert shown == [True, True]


@in_virtual_time
async def test_it_knows_which_versions_it_has_seen_also_of_what_is_gone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("x")  # version 2
    where = Request("default", "x")
    cache: Cache[PartialObject] = Cache(rig.api, SECRETS, clock=clock, rng=Random(1))
    async with running(cache):
        assert cache.has_seen(where, "2")
        assert not cache.has_seen(where, "3")
        rig.server.delete(SECRETS, "x", "default")
        await clock.sleep(1)
        assert cache.has_seen(where, "3")
        assert not cache.has_seen(where, "4")
        rig.secret("x")
        await clock.sleep(1)
        assert cache.has_seen(where, "4")
        assert not cache.has_seen(Request("default", "y"), "2")


@in_virtual_time
async def test_managed_fields_are_dropped(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("x", managedFields=[{"manager": "kubectl"}])
    cache = Cache(rig.api, SECRETS, clock=clock, rng=Random(1), model=dict[str, Any])
    async with running(cache):
        kept = cache.get(Request("default", "x"))
        assert kept is not None
        assert "managedFields" not in kept["metadata"]


def test_metadata_is_read_from_structs_dicts_and_typed_models() -> None:
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "u", "controller": True}
    raw = {"metadata": {"name": "x", "namespace": "n", "resourceVersion": "7", "ownerReferences": [reference]}}
    struct = msgspec.convert(raw, PartialObject)

    class Typed:
        class metadata:  # noqa: N801
            name, namespace, uid, resource_version, labels = "x", "n", "", "7", None

            class reference:  # noqa: N801
                api_version, kind, name, uid, controller = "v1", "Secret", "owner", "u", True

            owner_references = (reference,)

    for thing in (raw, struct, Typed()):
        assert metadata_of(thing).resource_version == "7"
        assert owner_of(thing, SECRETS) == Request("n", "owner")
        assert owner_of(thing, CONFIGMAPS) is None


def test_a_name_that_no_object_can_have_is_no_owners() -> None:
    """Anybody may write a megabyte there, and nobody is to ask for an object of that name."""
    reference = {"apiVersion": "v1", "kind": "Secret", "uid": "u", "controller": True}
    names = "x" * 4000, "x" * 4097
    found = [
        owner_of({"metadata": {"namespace": "n", "ownerReferences": [{**reference, "name": each}]}}, SECRETS)
        for each in names
    ]
    assert found == [Request("n", names[0]), None]


def test_versions_are_compared_as_numbers_where_they_are_numbers() -> None:
    assert is_at_least("10", "9")
    assert not is_at_least("9", "10")
    assert is_at_least("x", "x")
    assert not is_at_least("x", "9")


def test_private_copies_share_nothing_that_can_change() -> None:
    original = {"a": [{"b": Secret(ObjectMeta(labels={"k": "v"}))}], "c": {1, 2}}
    copied = private_copy(original)
    assert copied == original
    copied["a"][0]["b"].metadata.labels["k"] = "spoilt"  # type: ignore[index]
    assert original["a"][0]["b"].metadata.labels == {"k": "v"}  # type: ignore[index]


@in_virtual_time
async def test_a_listener_that_raises_keeps_no_news_from_the_others(clock: VirtualClock) -> None:
    rig = Rig(clock)
    cache: Cache[PartialObject] = Cache(rig.api, SECRETS, clock=clock, rng=Random(1))
    told: list[str] = []

    def fail(delta: Delta[PartialObject]) -> None:
        raise ValueError("a user's mistake")

    cache.listen(fail)
    cache.listen(lambda delta: told.append(delta.object.metadata.name))
    async with running(cache):
        rig.secret("x")
        await clock.sleep(1)
    assert told == ["x"]
