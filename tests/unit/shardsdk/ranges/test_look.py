"""A look asks the API server itself, the assignment before the leases."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shardsdk.errors import ConnectionFailed
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import render_micro_time
from shardsdk.protocol.objects import LEASES
from shardsdk.protocol.ranges import (
    HELD_RANGES_ANNOTATION,
    NOWHERE,
    RING_ASSIGNMENTS,
    SPACE,
    HashBy,
    HashRanges,
    Named,
    render_assignment,
    render_held,
)
from shardsdk.ranges.look import look
from shardsdk.ranges.parts import LeftRanges
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

LOW, HIGH = HashRanges.of((0, SPACE // 2)), HashRanges.of((SPACE // 2, SPACE))
QUARTER = HashRanges.of((0, SPACE // 4))


def world(named: Named | None = None) -> MemoryServer:
    """A ring whose assignment names `me` for the lower half, unless it says otherwise."""
    server = MemoryServer()
    named = named or Named(HashBy.NAMESPACE, {"me": LOW, "other": HIGH})
    spec = msgspec.to_builtins(render_assignment(named))
    server.create(RING_ASSIGNMENTS, {"metadata": {"name": "example"}, "spec": spec})
    return server


def add_lease(server: MemoryServer, name: str, held: HashRanges, *, ring: str = "example") -> None:
    metadata: dict[str, Any] = {"name": name, "namespace": "shards", "labels": {LEASE_RING_LABEL: ring}}
    metadata["annotations"] = {HELD_RANGES_ANNOTATION: str(held)}
    server.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": name, "leaseDurationSeconds": 15}})


async def looked(server: MemoryServer, clock: VirtualClock, by: HashBy = HashBy.NAMESPACE) -> HashRanges:
    return await look(MemoryApi(server, clock), "example", "me", by, "shards", LeftRanges(), clock)


@in_virtual_time
async def test_what_another_shard_of_the_ring_holds_is_not_free(clock: VirtualClock) -> None:
    server = world()
    add_lease(server, "me", LOW)
    add_lease(server, "elsewhere", LOW, ring="another")
    assert await looked(server, clock) == LOW
    add_lease(server, "other", QUARTER | HIGH)
    assert await looked(server, clock) == LOW - QUARTER


@in_virtual_time
async def test_what_a_shard_of_the_same_name_elsewhere_is_named_for_is_not_free(clock: VirtualClock) -> None:
    for namespace, free in (("shards", LOW), ("elsewhere", NOWHERE), (None, LOW)):
        server = world()
        [first, *rest] = server.find(RING_ASSIGNMENTS, "example")["spec"]["ranges"]  # type: ignore[index]
        said = {} if namespace is None else {"namespace": namespace}
        server.patch(RING_ASSIGNMENTS, "example", None, {"spec": {"ranges": [{**first, **said}, *rest]}})
        assert await looked(server, clock) == free


@in_virtual_time
async def test_an_assignment_in_doubt_names_nobody(clock: VirtualClock) -> None:
    assert await looked(MemoryServer(), clock) == NOWHERE
    assert await looked(world(), clock, HashBy.UID) == NOWHERE
    for nonsense in ([{"start": "nonsense", "shard": "me"}], [{"start": 0}], "none", None):
        server = world()
        server.patch(RING_ASSIGNMENTS, "example", None, {"spec": {"ranges": nonsense}})
        assert await looked(server, clock) == NOWHERE


@in_virtual_time
async def test_the_leases_are_those_of_after_the_assignment(clock: VirtualClock) -> None:
    server = world()

    def delay() -> float:
        if clock.monotonic() > 0 and server.find(LEASES, "other", "shards") is None:
            add_lease(server, "other", LOW)  # while the answer about the assignment is on its way
        return 1.0

    api = MemoryApi(server, clock, delay=delay)
    assert await look(api, "example", "me", HashBy.NAMESPACE, "shards", LeftRanges(), clock) == NOWHERE


@in_virtual_time
async def test_a_look_that_fails_finds_nothing_out(clock: VirtualClock) -> None:
    api = MemoryApi(world(), clock)
    api.fault = Fault.REFUSED
    with pytest.raises(ConnectionFailed):
        await look(api, "example", "me", HashBy.NAMESPACE, "shards", LeftRanges(), clock)


@in_virtual_time
async def test_what_a_process_has_left_counts_for_one_duration_of_its_lease_and_no_longer(clock: VirtualClock) -> None:
    """Another of its name, which knows nothing of ranges, renews the lease and leaves the annotation as it is."""
    server, left = world(), LeftRanges()
    add_lease(server, "other", LOW)

    def renew(said_at: str | None) -> None:
        spec = {"renewTime": render_micro_time(clock.now())}
        metadata = {"annotations": {HELD_RANGES_ANNOTATION: render_held(LOW, said_at)}} if said_at else {}
        server.patch(LEASES, "other", "shards", {"metadata": metadata, "spec": spec})

    async def free() -> bool:
        return bool(await look(MemoryApi(server, clock), "example", "me", HashBy.NAMESPACE, "shards", left, clock))

    renew("2029-01-01T00:00:00.000000Z")
    for _ in range(7):
        assert not await free()
        await clock.sleep(2)
        renew(None)
    await clock.sleep(0.9)
    assert not await free()
    await clock.sleep(0.2)
    assert await free()
    renew("2029-01-01T00:00:01.000000Z")
    assert not await free(), "another write than the one that was seen"
