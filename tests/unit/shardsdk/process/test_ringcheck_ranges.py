"""A shard of a ring by ranges ends with a ring that covers other namespaces, and goes on where names do not tell."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError, NotServed
from shardsdk.process.ringcheck import ABSENT_SECONDS, READ_SECONDS, RingCheck
from shardsdk.protocol.namespaces import LEFT_OUT, NAME_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS
from shardsdk.protocol.ranges import HashBy
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.rig import RING
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import SECRETS

IN_TEAM = {"matchLabels": {NAME_LABEL: "team"}}
#: What a sharder says of a ring that does not say what it covers.
LEFT_OUT_TERM = {"key": NAME_LABEL, "operator": "NotIn", "values": sorted(LEFT_OUT)}
DEFAULT: dict[str, Any] = {"status": {"namespaceSelector": {"matchExpressions": [LEFT_OUT_TERM]}}}


async def looks_by_ranges(
    clock: VirtualClock, says: dict[str, Any], *shards: str
) -> tuple[MemoryServer, list[asyncio.Task[None]]]:
    """Each shard's look at such a ring, which has begun."""
    server = MemoryServer()
    spec = {"assignment": "Ranges", "hashBy": "Namespace", "resources": [{"group": "", "resource": "secrets"}]}
    server.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": spec})
    server.rearrange(CLUSTERRINGS, RING, None, says)
    mains, by = frozenset({SECRETS.group_resource}), HashBy.NAMESPACE
    looks: list[asyncio.Task[None]] = []
    for shard in shards:
        check = RingCheck(MemoryApi(server, clock), RING, mains, {}, shard=shard, hash_by=by, clock=clock)
        looks.append(asyncio.create_task(check.run()))
        await check.looked.wait()
    return server, looks


async def by_ranges(clock: VirtualClock, says: dict[str, Any]) -> tuple[MemoryServer, asyncio.Task[None]]:
    """One shard's."""
    server, [running] = await looks_by_ranges(clock, says, "shard-1")
    return server, running


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"spec": {"namespaceSelector": {}}}, "covers other namespaces"),
        ({"status": {"namespaceSelector": {"matchExpressions": []}}}, "covers other namespaces"),
        ({"spec": {"hashBy": "UID"}}, "by hashes of uids"),
    ],
)
@in_virtual_time
async def test_a_shard_by_ranges_ends_within_a_minute_of_its_rings_change(
    clock: VirtualClock, changed: dict[str, Any], told: str
) -> None:
    server, running = await by_ranges(clock, DEFAULT)
    before = clock.monotonic()
    server.rearrange(CLUSTERRINGS, RING, None, changed)
    with pytest.raises(ConfigurationError, match=told):
        await running
    assert clock.monotonic() - before < READ_SECONDS + 1, "the look, and the answer to it"


@in_virtual_time
async def test_shards_by_ranges_that_have_started_together_do_not_end_together(clock: VirtualClock) -> None:
    server, looks = await looks_by_ranges(clock, DEFAULT, "shard-1", "shard-2", "shard-3")
    server.rearrange(CLUSTERRINGS, RING, None, {"spec": {"namespaceSelector": {}}})
    ended: list[float] = []
    for look in looks:
        look.add_done_callback(lambda _: ended.append(clock.monotonic()))
    await asyncio.wait(looks)
    assert all(isinstance(look.exception(), ConfigurationError) for look in looks)
    first, second, third = ended
    assert second - first > 1
    assert third - second > 1


@pytest.mark.parametrize("served", [True, False])
@in_virtual_time
async def test_a_shard_by_labels_ends_soon_after_its_ring_is_made_and_is_by_ranges(
    clock: VirtualClock, served: bool
) -> None:
    """Who begins before the ring takes it for one by labels, and has nothing by what such a ring says."""
    server, spec = MemoryServer(), {"assignment": "Ranges", "hashBy": "Namespace", "resources": []}
    api = MemoryApi(server, clock)
    api.error = None if served else NotServed("404 page not found")
    check = RingCheck(api, RING, frozenset({SECRETS.group_resource}), {}, shard="shard-1", clock=clock)
    running = asyncio.create_task(check.run())
    await clock.sleep(READ_SECONDS + 1)
    server.create(CLUSTERRINGS, {"metadata": {"name": RING}, "spec": spec})
    api.error = None
    before = clock.monotonic()
    with pytest.raises(ConfigurationError, match="by hashes of namespaces"):
        await running
    assert clock.monotonic() - before <= ABSENT_SECONDS + 1


@in_virtual_time
async def test_a_shard_by_ranges_works_on_if_its_ring_says_the_same_in_other_words(clock: VirtualClock) -> None:
    server, running = await by_ranges(clock, DEFAULT)
    left_out = [{"key": NAME_LABEL, "operator": "NotIn", "values": sorted(LEFT_OUT, reverse=True)}]
    server.patch(CLUSTERRINGS, RING, None, {"spec": {"namespaceSelector": {"matchExpressions": left_out}}})
    await clock.sleep(2 * READ_SECONDS)
    server.rearrange(CLUSTERRINGS, RING, None, {"status": {"namespaceSelector": {"matchExpressions": []}}})
    await clock.sleep(2 * READ_SECONDS)
    assert not running.done()
    running.cancel()


BY_TEAM = {"matchLabels": {"team": "a"}}


@pytest.mark.parametrize(
    "untold", [{"spec": {"namespaceSelector": BY_TEAM}}, {"status": {"namespaceSelector": BY_TEAM}}]
)
@in_virtual_time
async def test_a_shard_by_ranges_that_works_goes_on_while_names_do_not_tell_what_its_ring_covers(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, untold: dict[str, Any]
) -> None:
    """Whoever is started anew refuses, so that one edit would end every shard of the ring for good."""
    server, running = await by_ranges(clock, DEFAULT)
    server.rearrange(CLUSTERRINGS, RING, None, untold)
    await clock.sleep(3 * READ_SECONDS)
    assert not running.done()
    [told] = [each for each in caplog.records if "this one covers those of before" in each.message]
    assert "use kubernetes.io/metadata.name with In or NotIn" in told.__dict__["error"]
    server.rearrange(CLUSTERRINGS, RING, None, {"spec": {"namespaceSelector": None}, **DEFAULT})
    await clock.sleep(2 * READ_SECONDS)
    assert not running.done()
    server.rearrange(CLUSTERRINGS, RING, None, {"spec": {"namespaceSelector": IN_TEAM}})
    with pytest.raises(ConfigurationError, match="covers other namespaces"):
        await running


@in_virtual_time
async def test_a_shard_by_ranges_that_covers_nothing_yet_refuses_what_names_do_not_tell(clock: VirtualClock) -> None:
    server, running = await by_ranges(clock, {})
    server.rearrange(CLUSTERRINGS, RING, None, {"spec": {"namespaceSelector": BY_TEAM}})
    with pytest.raises(ConfigurationError, match="know namespaces by their names alone"):
        await running


@in_virtual_time
async def test_a_shard_by_ranges_works_on_while_nobody_has_said_yet_what_a_ring_covers_that_was_made_again(
    clock: VirtualClock,
) -> None:
    term = {"key": NAME_LABEL, "operator": "NotIn", "values": ["kube-system", "controllers"]}
    says = {"status": {"namespaceSelector": {"matchExpressions": [term]}}}
    server, running = await by_ranges(clock, says)
    for status in ({"status": {"namespaceSelector": None}}, says):
        server.rearrange(CLUSTERRINGS, RING, None, status)
        await clock.sleep(2 * READ_SECONDS)
        assert not running.done()
    server.rearrange(CLUSTERRINGS, RING, None, DEFAULT)
    with pytest.raises(ConfigurationError, match="covers other namespaces"):
        await running
