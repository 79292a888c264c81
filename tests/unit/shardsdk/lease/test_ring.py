"""What is read of a ring before a lease of its is sought; by whom a ring by ranges is refused: test_examples."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from shardsdk.errors import ApiError, ConfigurationError, ConnectionFailed, Forbidden, NotFound, ServerError
from shardsdk.kube.api import RawRequest
from shardsdk.lease.ring import LOOK_SECONDS, STARTING_SECONDS, UNTOLD_SECONDS, read_ring
from shardsdk.protocol.namespaces import NAME_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import HashBy
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

RING = "example"


def api_with(spec: dict[str, Any] | None, clock: VirtualClock, *failures: Exception) -> MemoryApi:
    server, left = MemoryServer(), list(failures)
    if spec is not None:
        server.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": spec})

    class Failing(MemoryApi):
        async def get(self, *args: Any, **options: Any) -> Any:
            if left:
                raise left.pop()
            return await super().get(*args, **options)

    return Failing(server, clock)


@pytest.mark.parametrize("spec", [{}, {"assignment": "Labels"}, None], ids=["unsaid", "labels", "no such ring"])
@in_virtual_time
async def test_a_ring_by_labels_and_one_that_is_not_there_yet_are_by_labels(
    clock: VirtualClock, spec: dict[str, Any] | None
) -> None:
    assert await read_ring(api_with(spec, clock), RING, clock, Random(1)) is None


@in_virtual_time
async def test_one_that_may_not_be_read_is_by_labels_and_one_that_cannot_be_read_is_read_again(
    clock: VirtualClock,
) -> None:
    spec = {"assignment": "Ranges", "hashBy": "UID", "namespaceSelector": {}}
    forbidden = Forbidden("clusterrings is forbidden", status=403)
    assert await read_ring(api_with(spec, clock, forbidden, forbidden), RING, clock, Random(1)) is None
    away = ConnectionFailed("nobody listens")
    found = await read_ring(api_with(spec, clock, away, away), RING, clock, Random(1))
    assert found is not None
    assert found.hash_by is HashBy.UID


@pytest.mark.parametrize(
    ("own", "default", "covered"),
    [
        (None, "prod", "default kube-system"),
        ("default", "prod", "prod kube-system"),
    ],
)
@in_virtual_time
async def test_a_ring_that_does_not_say_what_it_covers_covers_what_its_status_says(
    clock: VirtualClock, own: str | None, default: str, covered: str
) -> None:
    """There the sharder tells its own default, which rings by labels go by as well."""

    def all_but(name: str | None) -> dict[str, Any]:
        terms = [{"key": NAME_LABEL, "operator": "NotIn", "values": [name]}]
        return {} if name is None else {"namespaceSelector": {"matchExpressions": terms}}

    api = api_with({"assignment": "Ranges", "hashBy": "UID", **all_but(own)}, clock)
    api.server.patch(CLUSTERRINGS, RING, None, {"status": all_but(default)}, subresource="status")
    found = await read_ring(api, RING, clock, Random(1))
    assert found is not None
    names = [each for each in ("default", "prod", "kube-system") if found.namespaces.covers(each)]
    assert names == covered.split()


READY = {"type": "Ready", "status": "True"}


@in_virtual_time
async def test_a_ring_of_which_its_sharder_has_said_nothing_yet_is_waited_for(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What the sharder leaves out is its own affair: the chart's leaves out its own namespace."""
    api, asked = api_with({"assignment": "Ranges", "hashBy": "UID"}, clock), list[float]()
    api.on_request = lambda right: asked.append(clock.monotonic())
    reading = asyncio.create_task(read_ring(api, RING, clock, Random(1)))
    await clock.sleep(UNTOLD_SECONDS / 2)
    assert not caplog.records
    await clock.sleep(UNTOLD_SECONDS)
    assert ["which namespaces it covers" in each.message for each in caplog.records] == [True]
    # Of a spec that it cannot look up it says other things first.
    unready = {"conditions": [{**READY, "status": "False"}], "observedGeneration": 1}
    api.server.patch(CLUSTERRINGS, RING, None, {"status": unready}, subresource="status")
    await clock.sleep(UNTOLD_SECONDS)
    assert not reading.done()
    term = {"key": NAME_LABEL, "operator": "NotIn", "values": ["here"]}
    says = {"namespaceSelector": {"matchExpressions": [term]}}
    api.server.patch(CLUSTERRINGS, RING, None, {"status": says}, subresource="status")
    found = await reading
    assert max(after - at for at, after in pairwise(asked)) <= LOOK_SECONDS + 0.1, "nobody has what lies there"
    assert found is not None
    assert found.namespaces.covers("kube-system")
    assert not found.namespaces.covers("here")


@in_virtual_time
async def test_a_sharder_that_does_not_tell_its_default_has_that_of_before_it_was_told(clock: VirtualClock) -> None:
    api = api_with({"assignment": "Ranges", "hashBy": "UID"}, clock)
    ready = {
        "conditions": [READY],
        "observedGeneration": api.server.get(CLUSTERRINGS, RING, None)["metadata"]["generation"],
    }
    api.server.patch(CLUSTERRINGS, RING, None, {"status": ready}, subresource="status")
    found = await read_ring(api, RING, clock, Random(1))
    assert found is not None
    assert not found.namespaces.covers("kube-system")


class Starting(MemoryApi):
    """An API server that refuses everything until `ready_at`, and who says whether it is ready with `unready`."""

    ready_at = 0.0
    refusal: ApiError | ConnectionFailed
    unready: ApiError
    clock: VirtualClock

    async def get(self, *args: Any, **options: Any) -> Any:
        if self.clock.monotonic() < self.ready_at:
            raise self.refusal
        return await super().get(*args, **options)

    async def exchange(self, request: RawRequest) -> bytes:
        assert request.path == "/readyz"
        if self.clock.monotonic() < self.ready_at:
            raise self.unready
        return b"ok"


def starting(clock: VirtualClock, ready_after: float, refusal: ApiError, unready: ApiError) -> Starting:
    server = MemoryServer()
    spec = {"assignment": "Ranges", "hashBy": "UID", "namespaceSelector": {}}
    server.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": spec})
    api = Starting(server, clock)
    api.clock, api.ready_at = clock, clock.monotonic() + ready_after
    api.refusal, api.unready = refusal, unready
    return api


FORBIDDEN = Forbidden("clusterrings is forbidden", status=403)


@pytest.mark.parametrize("refusal", [FORBIDDEN, NotFound("no such type", status=404)], ids=["rules", "types"])
@pytest.mark.parametrize("unready", [FORBIDDEN, ServerError("informer-sync failed", status=500)], ids=["403", "500"])
@in_virtual_time
async def test_what_an_api_server_refuses_that_has_just_started_is_asked_again(
    clock: VirtualClock, refusal: ApiError, unready: ApiError
) -> None:
    found = await read_ring(starting(clock, STARTING_SECONDS / 2, refusal, unready), RING, clock, Random(1))
    assert found is not None
    assert found.hash_by is HashBy.UID


@in_virtual_time
async def test_a_refusal_is_believed_in_the_end_though_nobody_may_ask_whether_the_server_is_ready(
    clock: VirtualClock,
) -> None:
    began = clock.monotonic()
    assert await read_ring(starting(clock, float("inf"), FORBIDDEN, FORBIDDEN), RING, clock, Random(1)) is None
    assert clock.monotonic() - began >= STARTING_SECONDS


@in_virtual_time
async def test_what_it_refuses_that_has_started_after_an_outage_is_asked_again_as_well(clock: VirtualClock) -> None:
    api = starting(clock, float("inf"), FORBIDDEN, FORBIDDEN)
    reading = asyncio.create_task(read_ring(api, RING, clock, Random(1)))
    await clock.sleep(STARTING_SECONDS / 2)
    api.refusal = ConnectionFailed("nobody listens")
    await clock.sleep(1.5 * STARTING_SECONDS)
    # As long as the longest pause between two attempts.
    api.refusal, api.ready_at = FORBIDDEN, clock.monotonic() + STARTING_SECONDS
    found = await reading
    assert found is not None


@in_virtual_time
async def test_a_ring_that_was_read_by_ranges_is_not_by_labels_for_being_refused(clock: VirtualClock) -> None:
    api = starting(clock, 0.0, FORBIDDEN, FORBIDDEN)
    unsaid: dict[str, Any] = {"namespaceSelector": None}
    api.server.patch(CLUSTERRINGS, RING, None, {"spec": unsaid})
    reading = asyncio.create_task(read_ring(api, RING, clock, Random(1)))
    await clock.sleep(1)
    api.ready_at = clock.monotonic() + 3 * STARTING_SECONDS
    await clock.sleep(4 * STARTING_SECONDS)
    assert not reading.done()
    api.server.delete(CLUSTERRINGS, RING, None)
    await clock.sleep(2 * STARTING_SECONDS)
    assert await reading is None


@in_virtual_time
async def test_a_way_of_assigning_that_nobody_knows_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(ConfigurationError, match="does not know"):
        await read_ring(api_with({"assignment": "Stars"}, clock), RING, clock, Random(1))
