"""A look asks the API server itself, the assignment before the leases."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shardsdk.errors import ConnectionFailed
from shardsdk.protocol.labels import LEASE_RING_LABEL
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
)
from shardsdk.ranges.look import look
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
    return await look(MemoryApi(server, clock), "example", "me", by, "shards")


@in_virtual_time
async def test_what_another_shard_of_the_ring_holds_is_not_free(clock: VirtualClock) -> None:
    server = world()
    add_lease(server, "me", LOW)
    add_lease(server, "elsewhere", LOW, ring="another")
    assert await looked(server, clock) == LOW
    add_lease(server, "other", QUARTER | HIGH)
    assert await looked(server, clock) == LOW - QUARTER


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

    assert await look(MemoryApi(server, clock, delay=delay), "example", "me", HashBy.NAMESPACE, "shards") == NOWHERE


@in_virtual_time
async def test_a_look_that_fails_finds_nothing_out(clock: VirtualClock) -> None:
    api = MemoryApi(world(), clock)
    api.fault = Fault.REFUSED
    with pytest.raises(ConnectionFailed):
        await look(api, "example", "me", HashBy.NAMESPACE, "shards")
