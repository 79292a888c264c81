"""A name without a Lease is held wherever a shard of the ring may start, before anything moves off it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import Any, Final

import msgspec
import pytest

from shardsdk.errors import ConnectionFailed, Forbidden, NotFound, ServerError, ShardingError
from shardsdk.protocol.labels import PLACEHOLDER_ANNOTATION, SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.kube_fakes import ending
from tests.unit.sharder.placement.stage import (
    ALONE,
    OWNERS,
    SHARDS,
    Stage,
    leading,
    lease,
    make_stage,
    names_on,
    ring,
    thing,
)

UNANSWERED: Final = ServerError("etcdserver: request timed out", status=500)


class Refusing(MemoryApi):
    """For as long as there are errors, a Lease called `gone` cannot be created in a namespace."""

    namespace = SHARDS
    errors: Iterator[ShardingError] = iter(())
    refused = 0

    async def create(
        self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None, **more: Any
    ) -> Any:
        about = (resource, namespace, body["metadata"]["name"])
        if about == (LEASES, self.namespace, "gone") and (error := next(self.errors, None)) is not None:
            self.refused += 1
            raise error
        return await super().create(resource, body, namespace, **more)


def ring_in_two_namespaces(clock: VirtualClock, object_name: str) -> Stage:
    """Shards are in both, and an object carries the name of one that has no Lease: it may start in either."""
    stage = make_stage(clock, api=Refusing)
    stage.create(NAMESPACES, {"metadata": {"name": "elsewhere"}}, None)
    stage.set_up(ring(ALONE), "one")
    stage.start("two", "elsewhere")
    stage.create(OWNERS, thing(object_name, shard="gone"))
    return stage


async def when_it_moved(stage: Stage, name: str) -> tuple[str | None, str | None]:
    """Who held each Lease of that name when the object was moved away from it."""
    await stage.until(lambda: stage.label(OWNERS, name) != "gone", seconds=100)
    return stage.holder("gone", "elsewhere"), stage.holder("gone")


@pytest.mark.parametrize("refusals", [1, 4])
@pytest.mark.parametrize(
    "refusal",
    [
        UNANSWERED,
        Forbidden("exceeded quota: count/leases.coordination.k8s.io", status=403, reason="Forbidden"),
        ConnectionFailed("reset"),
    ],
    ids=lambda error: type(error).__name__,
)
@in_virtual_time
async def test_nothing_moves_off_a_name_that_a_shard_could_still_start_under(
    clock: VirtualClock, refusal: ShardingError, refusals: int
) -> None:
    stage = ring_in_two_namespaces(clock, "it")
    assert isinstance(stage.api, Refusing)
    stage.api.errors = repeat(refusal, refusals)
    async with leading(stage):
        assert await when_it_moved(stage, "it") == (SHARDER_HOLDER, SHARDER_HOLDER)


@in_virtual_time
async def test_while_it_cannot_be_held_where_shards_are_nothing_moves_and_a_shard_of_that_name_keeps_its_objects(
    clock: VirtualClock,
) -> None:
    name = names_on("gone", "gone", "one", "two")[0]
    stage = ring_in_two_namespaces(clock, name)
    assert isinstance(stage.api, Refusing)
    stage.api.errors = repeat(UNANSWERED)
    async with leading(stage):
        await stage.until(lambda: stage.holder("gone", "elsewhere") == SHARDER_HOLDER)
        await stage.pass_time(120)
        assert stage.label(OWNERS, name) == "gone"
        stage.start("gone")
        await stage.pass_time(60)
        assert (stage.label(OWNERS, name), stage.draining(OWNERS, name)) == ("gone", False)


@pytest.mark.parametrize("given_back", [False, True], ids=["held", "given back"])
@in_virtual_time
async def test_a_leader_that_finds_a_name_held_in_one_of_two_namespaces_holds_it_in_the_other_as_well(
    clock: VirtualClock, given_back: bool
) -> None:
    stage = ring_in_two_namespaces(clock, "it")
    found = lease(clock, "gone", fenced=False, holder="" if given_back else SHARDER_HOLDER, duration=30)
    found["metadata"]["annotations"] = {PLACEHOLDER_ANNOTATION: "0"}
    stage.create(LEASES, found, "elsewhere")
    async with leading(stage):
        assert await when_it_moved(stage, "it") == (SHARDER_HOLDER, SHARDER_HOLDER)
        made = stage.server.get(LEASES, "gone", "elsewhere")
        assert msgspec.convert(made, Lease).placeholder


@in_virtual_time
async def test_a_placeholder_that_has_changed_hands_as_often_as_it_can_say_stays_one(clock: VirtualClock) -> None:
    stage = ring_in_two_namespaces(clock, "it")
    found = lease(clock, "gone", fenced=False, holder="", duration=1)
    found["metadata"]["annotations"] = {PLACEHOLDER_ANNOTATION: str(2**31 - 1)}
    found["spec"]["leaseTransitions"] = 2**31 - 1
    stage.create(LEASES, found, "elsewhere")
    async with leading(stage):
        assert await when_it_moved(stage, "it") == (SHARDER_HOLDER, SHARDER_HOLDER)
        made = msgspec.convert(stage.server.get(LEASES, "gone", "elsewhere"), Lease)
        assert (made.spec.lease_transitions, made.placeholder) == (0, True)


@in_virtual_time
async def test_where_a_shard_had_its_lease_alone_it_is_held(clock: VirtualClock) -> None:
    stage = ring_in_two_namespaces(clock, "it")
    stage.create(LEASES, lease(clock, "gone", holder="", duration=1), SHARDS)
    async with leading(stage):
        assert await when_it_moved(stage, "it") == (None, SHARDER_HOLDER)


@in_virtual_time
async def test_a_shard_that_takes_a_placeholder_makes_it_its_own(clock: VirtualClock) -> None:
    """As client-go does, which counts up and leaves annotations alone."""
    stage = ring_in_two_namespaces(clock, "it")
    placed = lease(clock, "gone", fenced=False, holder="gone", duration=15)
    placed["metadata"]["annotations"] = {PLACEHOLDER_ANNOTATION: "0"}
    placed["spec"]["leaseTransitions"] = 1
    stage.create(LEASES, placed, SHARDS)
    async with leading(stage):
        assert await when_it_moved(stage, "it") == (None, SHARDER_HOLDER)
        assert "annotations" not in stage.server.get(LEASES, "gone", SHARDS)["metadata"]


@in_virtual_time
async def test_what_cannot_be_completed_is_given_back_once_nothing_is_left_to_move(clock: VirtualClock) -> None:
    stage = ring_in_two_namespaces(clock, "it")
    assert isinstance(stage.api, Refusing)
    stage.api.errors = repeat(UNANSWERED)
    async with leading(stage):
        await stage.until(lambda: stage.holder("gone", "elsewhere") == SHARDER_HOLDER)
        stage.server.delete(OWNERS, "it", "default")
        await stage.until(lambda: stage.holder("gone", "elsewhere") in ("", None), seconds=60)
        refused = stage.api.refused
        await stage.pass_time(300)
        assert stage.api.refused == refused, "nobody asks for it any more"


@pytest.mark.parametrize("namespace", ["a-was", "zz-was"])
@pytest.mark.parametrize("told", [False, True], ids=["terminating first", "not there"])
@in_virtual_time
async def test_a_namespace_that_is_gone_keeps_no_objects_from_moving(
    clock: VirtualClock, namespace: str, told: bool
) -> None:
    """The shards of a ring have moved to another; the objects still carry the names of those that were there."""
    stage = make_stage(clock, api=Refusing)
    assert isinstance(stage.api, Refusing)
    gone = NotFound(f'namespaces "{namespace}" not found', status=404)
    first = [] if told else [ending(namespace)]
    stage.api.namespace, stage.api.errors = namespace, chain(first, repeat(gone))
    stage.create(NAMESPACES, {"metadata": {"name": namespace}}, None)
    stage.create(CLUSTERRINGS, ring(ALONE), None)
    stage.create(LEASES, lease(clock, "gone"), namespace)
    stage.start("one")
    stage.create(OWNERS, thing("it", shard="gone"))
    async with leading(stage):
        await stage.pass_time(1)
        stage.server.delete(LEASES, "gone", namespace)
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=60)
        # Later still, when whatever was remembered of the namespace is old.
        await stage.pass_time(300)
        stage.create(OWNERS, thing("late", shard="gone"))
        await stage.until(lambda: stage.label(OWNERS, "late") == "one", seconds=60)


@in_virtual_time
async def test_shards_that_come_and_go_do_not_have_a_name_without_a_lease_waited_for_anew(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one", "two")
    stage.create(OWNERS, thing("it", shard="gone"))
    began = clock.monotonic()
    async with leading(stage):
        while stage.label(OWNERS, "it") == "gone" and clock.monotonic() - began < 120:
            stage.start("three")
            await stage.pass_time(5)
            stage.release("three")
            await stage.pass_time(5)
    assert stage.label(OWNERS, "it") != "gone"
    assert clock.monotonic() - began < 30
