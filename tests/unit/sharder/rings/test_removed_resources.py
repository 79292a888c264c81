"""What a ring has listed is remembered until nothing of it carries a label, whatever the watch shows meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest

from sharder.core.ringspec import LetGo, ResolvedRing, Role, default_namespaces, parse_ring, resolve
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS
from sharder.rings.deps import WebhookSettings
from sharder.rings.removed_resources import RETRY_MAX_SECONDS, RETRY_SECONDS, RemovedResources
from shardsdk.errors import ConnectionFailed
from shardsdk.protocol.objects import CLUSTERRINGS, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, CHILDREN, OWNERS, RING, leading, make_stage, ring, thing

OTHERS: Final = Resource("example.org", "v1", "others", "Other")
NAMES: Final = {"owners": OWNERS.group_resource, "configmaps": CHILDREN.group_resource, "others": OTHERS.group_resource}


LOST: Final = Resource("hole.example", "v1", "things", "Thing")
WEBHOOK: Final = WebhookSettings({"url": "https://sharder.example"}, {}, lambda: None)


def resolved(*resources: str, uid: str = "first", **owners: list[str]) -> ResolvedRing:
    """The ring as it lists `resources`, and each of `owners` with what that controls."""
    listed: list[dict[str, Any]] = [{"group": NAMES[each].group, "resource": each} for each in resources]
    for owner, controlled in owners.items():
        children = [{"group": NAMES[each].group, "resource": each} for each in controlled]
        listed.append({"group": NAMES[owner].group, "resource": owner, "controlledResources": children})
    spec = parse_ring({"metadata": {"name": RING, "uid": uid, "generation": 1}, "spec": {"resources": listed}})
    served = {each.group_resource: each for each in (OWNERS, CHILDREN, OTHERS)}
    return resolve(spec, served, default_namespaces("sharding-system"))[0]


class Status:
    """A status that takes what is written, or fails."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.fails = False

    async def write(self, status: Mapping[str, Any]) -> None:
        if self.fails:
            raise ConnectionFailed("no answer")
        self.value |= status

    @property
    def names(self) -> set[str]:
        return {each["resource"] for each in self.value["placedResources"]}


class Hanging(MemoryApi):
    """While a resource `hangs`, nobody says what it is called; a connection is given up after half a minute."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hangs: frozenset[str] = frozenset()
        self.asked: list[str] = []

    async def discover(self, group: str, plural: str) -> Resource | None:
        self.asked.append(plural)
        if plural in self.hangs:
            await asyncio.sleep(30)
            raise ConnectionFailed("no answer within 30 s")
        return await super().discover(group, plural)


def make(clock: VirtualClock, api: MemoryApi | None = None) -> tuple[RemovedResources, Status]:
    status = Status()
    removed = RemovedResources(
        RING, api or make_stage(clock).api, status.write,
        clock=clock, slots=asyncio.Semaphore(1), when_found=lambda: None,
    )  # fmt: skip
    return removed, status


@asynccontextmanager
async def looking_up(clock: VirtualClock, *hangs: str) -> AsyncIterator[tuple[RemovedResources, Hanging]]:
    """What a new leader has, of a ring from which somebody took owners and configmaps before."""
    api = make_stage(clock, api=Hanging).api
    assert isinstance(api, Hanging)
    api.hangs = frozenset(hangs)
    removed, _ = make(clock, api)
    task = asyncio.create_task(removed.run())
    try:
        yield removed, api
    finally:
        task.cancel()
        await asyncio.wait((task,))


PLACED: Final = {"placedResources": [{"group": each.group, "resource": each.plural} for each in (OWNERS, CHILDREN)]}


async def names(removed: RemovedResources, shown: Mapping[str, Any], ring: ResolvedRing, *clean: LetGo) -> set[str]:
    return {each.subject.resource.plural for each in await removed.record(shown, ring, frozenset(clean))}


@in_virtual_time
async def test_what_was_written_before_the_edit_is_remembered_although_the_edited_ring_does_not_show_it(
    clock: VirtualClock,
) -> None:
    removed, status = make(clock)
    await removed.record({}, resolved("owners", "configmaps"), frozenset())
    assert await names(removed, {}, resolved("owners")) == {"configmaps"}
    assert status.names == {"owners", "configmaps"}


@in_virtual_time
async def test_what_may_have_been_written_is_remembered(clock: VirtualClock) -> None:
    removed, status = make(clock)
    status.fails = True
    with pytest.raises(ConnectionFailed):
        await removed.record({}, resolved("owners", "configmaps"), frozenset())
    status.fails = False
    assert await names(removed, {}, resolved("owners")) == {"configmaps"}


@in_virtual_time
async def test_what_is_clean_is_forgotten_although_the_watch_shows_it_still(clock: VirtualClock) -> None:
    removed, status = make(clock)
    await removed.record({}, resolved("owners", "configmaps"), frozenset())
    before = dict(status.value)
    assert await names(removed, before, resolved("owners"), LetGo(CHILDREN.group_resource)) == set()
    assert status.names == {"owners"}
    assert await names(removed, status.value, resolved("owners")) == set()


@in_virtual_time
async def test_what_has_joined_one_owner_has_not_been_let_go_for_another_nor_when_it_is_taken_off(
    clock: VirtualClock,
) -> None:
    removed, status = make(clock)
    await removed.record({}, resolved("owners", "others", "configmaps"), frozenset())
    shown, joined = dict(status.value), LetGo(CHILDREN.group_resource, OWNERS.group_resource)
    status.fails = True
    with pytest.raises(ConnectionFailed):
        await removed.record(shown, resolved("others", owners=["configmaps"]), frozenset({joined}))
    assert removed.were_main == frozenset()
    status.fails = False
    # What controls them is another one by the time that it can be written down.
    await removed.record(shown, resolved("owners", others=["configmaps"]), frozenset({joined}))
    assert removed.were_main == {CHILDREN.group_resource}
    [left] = await removed.record(shown, resolved("owners", "others"), frozenset({joined}))
    assert (left.subject.resource, left.subject.role) == (CHILDREN, Role.MAIN)


@in_virtual_time
async def test_another_ring_of_that_name_has_not_listed_what_the_one_before_did(clock: VirtualClock) -> None:
    removed, status = make(clock)
    await removed.record({}, resolved("owners", "configmaps"), frozenset())
    assert await names(removed, {}, resolved("owners", uid="second")) == set()
    assert status.names == {"owners"}


@in_virtual_time
async def test_nobody_waits_for_what_does_not_answer_and_what_does_is_known_beside_it(clock: VirtualClock) -> None:
    async with looking_up(clock, "owners") as (removed, _):
        began = clock.monotonic()
        assert await names(removed, PLACED, resolved()) == set()
        assert clock.monotonic() == began
        assert removed.unknown == {OWNERS.group_resource, CHILDREN.group_resource}
        await clock.sleep(6)
        assert await names(removed, PLACED, resolved()) == {"configmaps"}
        assert removed.unknown == {OWNERS.group_resource}


@in_virtual_time
async def test_what_does_not_answer_is_asked_again_less_and_less_often_until_it_does(clock: VirtualClock) -> None:
    async with looking_up(clock, "owners") as (removed, api):
        await names(removed, PLACED, resolved())
        await clock.sleep(RETRY_SECONDS + 2)
        assert api.asked.count("owners") == 1, "5 s for an answer, then a pause"
        await clock.sleep(600)
        assert 8 <= api.asked.count("owners") <= 12
        for _ in range(60):  # reconciles, which may come often
            await names(removed, PLACED, resolved())
            await clock.sleep(1)
        assert api.asked.count("owners") <= 13
        api.hangs = frozenset()
        await clock.sleep(RETRY_MAX_SECONDS + 6)
        assert await names(removed, PLACED, resolved()) == {"owners", "configmaps"}


@in_virtual_time
async def test_what_was_listed_is_known_when_it_is_taken_off(clock: VirtualClock) -> None:
    """Its objects, and the age of their drains, are not lost sight of until somebody answers."""
    async with looking_up(clock, "owners", "configmaps") as (removed, _):
        await names(removed, {}, resolved("owners", "configmaps"))
        assert await names(removed, PLACED, resolved()) == {"owners", "configmaps"}
        assert not removed.unknown
        await clock.sleep(60)
        assert await names(removed, PLACED, resolved()) == {"owners", "configmaps"}


@in_virtual_time
async def test_a_type_that_comes_back_is_noticed(clock: VirtualClock) -> None:
    async with looking_up(clock) as (removed, api):
        api.served.remove(OWNERS)
        await names(removed, PLACED, resolved())
        await clock.sleep(1)
        assert await names(removed, PLACED, resolved()) == {"configmaps"}
        assert not removed.unknown
        api.served.append(OWNERS)
        await clock.sleep(61)
        assert await names(removed, PLACED, resolved()) == {"owners", "configmaps"}


@in_virtual_time
async def test_what_was_taken_off_rings_and_does_not_answer_holds_up_none_of_them(clock: VirtualClock) -> None:
    """All of them are placed, reported, and brought to the webhook as if it were not there; it is let go of later."""
    stage = make_stage(clock, api=Hanging)
    assert isinstance(stage.api, Hanging)
    stage.api.served.append(LOST)
    stage.api.hangs = frozenset({LOST.plural, "others"})
    placed = [{"group": LOST.group, "resource": each} for each in (LOST.plural, "others")]
    rings = [*(f"r{number}" for number in range(6)), RING]
    for name in rings:
        stage.create(CLUSTERRINGS, ring(ALONE, name=name), None)
        stage.server.patch(CLUSTERRINGS, name, None, {"status": {"placedResources": placed}}, subresource="status")
    stage.start("one")
    stage.create(OWNERS, thing("it"))
    stage.create(LOST, thing("left", shard="gone"))

    def ready(name: str) -> bool:
        return stage.condition("Ready", name) == "True"

    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=2)
        for name in rings:
            await stage.until(partial(ready, name), seconds=2)
            assert stage.server.find(WEBHOOK_CONFIGURATIONS, f"clusterring-{name}") is not None
        await stage.until(lambda: stage.condition("Settled") == "False", seconds=30)
        conditions = stage.server.get(CLUSTERRINGS, RING, None)["status"]["conditions"]
        assert "lists no longer, and has labels on: others.hole.example, things.hole.example" in str(conditions)
        await stage.pass_time(100)
        assert stage.condition("Settled") == "False", "nobody knows whether it is"
        assert stage.label(LOST, "left") == "gone"
        stage.api.hangs = frozenset()
        await stage.until(lambda: stage.label(LOST, "left") is None, seconds=90)
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=90)
        status = stage.server.get(CLUSTERRINGS, RING, None)["status"]
        assert LOST.plural not in {each["resource"] for each in status["placedResources"]}
