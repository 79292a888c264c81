"""What has no shard is watched in the ring's namespaces alone, as long as these are few."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sharder.backlog.informers import MAX_NAMESPACES
from shardsdk.kube.sessions import CONNECTIONS, Lane
from shardsdk.protocol.objects import CLUSTERRINGS, NAMESPACES, Resource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, CHILDREN, LABELS, OWNERS, Stage, leading, make_stage, ring, thing

OURS = {"matchLabels": {"team": "ours"}}
#: The informer of what has no shard; that of children is not asked for in these tests.
UNASSIGNED = f"!{LABELS.shard}"


class WatchedApi(MemoryApi):
    """A connection that knows which namespaces (`None`: all) are watched for owners without a shard."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.watched: Counter[str | None] = Counter()
        #: How often such a watch began with a list.
        self.listed: Counter[str | None] = Counter()
        #: The namespaces of what it was sent.
        self.sent_from: set[str] = set()

    async def read_events(self, selection: Any, options: Any) -> AsyncIterator[Any]:
        asked = selection.resource == OWNERS and selection.selector.labels == UNASSIGNED
        if asked:
            self.watched[selection.namespace] += 1
            self.listed[selection.namespace] += options.resource_version is None
        try:
            async for event in super().read_events(selection, options):
                if asked and event.object is not None:
                    self.sent_from.add(event.object.metadata.namespace)
                yield event
        finally:
            if asked:
                self.watched[selection.namespace] -= 1

    @property
    def now(self) -> set[str | None]:
        """What is watched now."""
        return set(+self.watched)


def stage_with(clock: VirtualClock, *namespaces: str, **spec: Any) -> tuple[Stage, WatchedApi]:
    """A ring with one shard, and `namespaces` that it covers beside `others`, which it does not."""
    stage = make_stage(clock, api=WatchedApi)
    assert isinstance(stage.api, WatchedApi)
    for name in namespaces:
        add_namespace(stage, name)
    add_namespace(stage, "others", team="theirs")
    stage.set_up(ring(ALONE, **spec), "one")
    return stage, stage.api


def add_namespace(stage: Stage, name: str, team: str = "ours") -> None:
    labels = {"kubernetes.io/metadata.name": name, "team": team}
    stage.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}}, None)


def set_team(stage: Stage, name: str, team: str) -> None:
    stage.server.patch(NAMESPACES, name, None, {"metadata": {"labels": {"team": team}}})


async def placed(stage: Stage, name: str, namespace: str) -> None:
    """Make an object past the webhook, and wait for its shard."""
    stage.create(OWNERS, thing(name), namespace)
    await stage.until(lambda: stage.label(OWNERS, name, namespace) == "one", seconds=5)


async def leaves(stage: Stage, namespace: str, name: str) -> None:
    """Have the namespace selected no longer, and its only object let go by its shard."""
    set_team(stage, namespace, "theirs")
    await stage.until(lambda: stage.draining(OWNERS, name, namespace))
    stage.acknowledge(name, namespace)


@in_virtual_time
async def test_nothing_is_sent_of_namespaces_that_are_not_the_rings(clock: VirtualClock) -> None:
    stage, api = stage_with(clock, "a", "b", namespaceSelector=OURS)
    stage.create(OWNERS, thing("there-before"), "others")
    async with leading(stage):
        await placed(stage, "first", "a")
        await placed(stage, "second", "b")
        stage.create(OWNERS, thing("there-after"), "others")
        await stage.pass_time(5)
        assert api.now == {"a", "b"}
    assert api.sent_from == {"a", "b"}


@in_virtual_time
async def test_a_namespace_that_comes_is_watched_and_the_others_are_not_listed_anew(clock: VirtualClock) -> None:
    stage, api = stage_with(clock, "a", namespaceSelector=OURS)
    stage.create(OWNERS, thing("there-before"), "others")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        set_team(stage, "others", "ours")
        await stage.until(lambda: stage.label(OWNERS, "there-before", "others") == "one")
        await placed(stage, "after", "others")
        add_namespace(stage, "new")
        await placed(stage, "in-new", "new")
        assert api.now == {"a", "others", "new"}
    assert api.listed == {"a": 1, "others": 1, "new": 1}


@in_virtual_time
async def test_a_namespace_that_leaves_is_watched_no_longer(clock: VirtualClock) -> None:
    stage, api = stage_with(clock, "a", "b", namespaceSelector=OURS)
    async with leading(stage):
        await placed(stage, "first", "b")
        await leaves(stage, "b", "first")
        assert api.now == {"a"}
        stage.create(OWNERS, thing("later"), "b")
        set_team(stage, "a", "theirs")
        await stage.until(lambda: not api.now)
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(30)
        assert stage.label(OWNERS, "later", "b") is None
        set_team(stage, "a", "ours")
        await placed(stage, "back", "a")


@in_virtual_time
async def test_of_many_namespaces_all_are_watched_at_once(clock: VirtualClock) -> None:
    many = [f"team-{number}" for number in range(MAX_NAMESPACES)]
    stage, api = stage_with(clock, *many, namespaceSelector=OURS)
    async with leading(stage):
        await placed(stage, "first", many[0])
        assert api.now == set(many)
        stage.create(OWNERS, thing("meanwhile"), many[1])
        add_namespace(stage, "one-more")
        await stage.until(lambda: api.now == {None})
        await placed(stage, "second", "one-more")
        await placed(stage, "third", many[0])
        await stage.until(lambda: stage.label(OWNERS, "meanwhile", many[1]) == "one")
        await leaves(stage, "one-more", "second")
        assert api.now == set(many)
        await placed(stage, "fourth", many[2])
        await stage.until(lambda: stage.condition("Settled") == "True")


@in_virtual_time
async def test_an_edit_that_leaves_the_namespaces_as_they_are_begins_no_watch_anew(clock: VirtualClock) -> None:
    stage, api = stage_with(clock, "a", namespaceSelector=OURS)
    async with leading(stage):
        await placed(stage, "first", "a")
        spec = {"namespaceSelector": {"matchLabels": {"team": "ours", "kubernetes.io/metadata.name": "a"}}}
        stage.server.patch(CLUSTERRINGS, "ring", None, {"spec": spec})
        await stage.pass_time(10)
        await placed(stage, "second", "a")
    assert api.listed == {"a": 1}


@in_virtual_time
async def test_a_ring_of_all_namespaces_watches_all_at_once(clock: VirtualClock) -> None:
    stage, api = stage_with(clock)
    async with leading(stage):
        await placed(stage, "first", "default")
        assert api.now == {None}


@in_virtual_time
async def test_each_namespace_that_is_watched_counts_as_a_watch(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONNECTIONS, Lane.STREAMS, 9)
    # 4 of the leader itself, and what has no shard, is stranded or drains: each of the latter is watched once.
    stage, _ = stage_with(clock, "a", "b", "c", namespaceSelector=OURS)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        assert stage.condition("Ready") == "True"
        add_namespace(stage, "d")
        await stage.until(lambda: stage.condition("Ready") == "False")
        conditions = stage.server.get(CLUSTERRINGS, "ring", None)["status"]["conditions"]
        assert "the rings together take 10 watches, and a leader holds 9 at most" in str(conditions)
        set_team(stage, "d", "theirs")
        await stage.until(lambda: stage.condition("Ready") == "True")


class PassesApi(MemoryApi):
    """A connection that knows of which namespaces (`None`: all) owners were gone through, and how often."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.passes: Counter[str | None] = Counter()

    async def stream(self, resource: Resource, namespace: str | None = None, **more: Any) -> AsyncIterator[Any]:
        self.passes.update([namespace] if resource == OWNERS else [])
        async for batch in super().stream(resource, namespace, **more):
            yield batch

    async def pages(self, resource: Resource, namespace: str | None = None, **more: Any) -> AsyncIterator[Any]:
        self.passes.update([namespace] if resource == OWNERS else [])
        async for batch in super().pages(resource, namespace, **more):
            yield batch


@in_virtual_time
async def test_nothing_is_gone_through_for_a_namespace_that_was_deleted(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=PassesApi)
    assert isinstance(stage.api, PassesApi)
    names = [f"preview-{number}" for number in range(MAX_NAMESPACES + 2)]
    for name in names:
        add_namespace(stage, name)
    stage.set_up(ring(ALONE, namespaceSelector=OURS), "one")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(30)
        before = stage.api.passes.copy()
        for name in names[1:]:
            stage.server.delete(NAMESPACES, name, None)
            await stage.pass_time(5)
            assert stage.condition("Settled") == "True"
        assert stage.api.passes == before
        await placed(stage, "after", names[0])


@in_virtual_time
async def test_only_the_namespace_that_comes_or_leaves_is_gone_through(clock: VirtualClock) -> None:
    stage = make_stage(clock, api=PassesApi)
    assert isinstance(stage.api, PassesApi)
    add_namespace(stage, "a")
    stage.set_up(ring(ALONE, namespaceSelector=OURS), "one")
    async with leading(stage):
        await placed(stage, "it", "a")
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(30)
        stage.api.passes.clear()
        for number in range(MAX_NAMESPACES + 2):
            add_namespace(stage, f"preview-{number}")
            await stage.pass_time(5)
            assert stage.condition("Settled") == "True"
            set_team(stage, f"preview-{number}", "theirs")
            await stage.pass_time(5)
            assert stage.condition("Settled") == "True"
        await stage.pass_time(30)
        assert stage.api.passes == {f"preview-{number}": 3 for number in range(MAX_NAMESPACES + 2)}, "the third is late"


@pytest.mark.parametrize("seconds", [0.5, 8.0])
@in_virtual_time
async def test_what_was_admitted_by_a_replica_that_did_not_know_the_namespace_yet_is_found(
    clock: VirtualClock, seconds: float
) -> None:
    stage = make_stage(clock)
    add_namespace(stage, "leaves")
    add_namespace(stage, "comes", team="theirs")
    stage.set_up(ring(namespaceSelector=OURS, watchUnassignedControlled=False), "one")
    async with leading(stage):
        await stage.until_settled()
        await stage.pass_time(30)
        set_team(stage, "leaves", "theirs")
        set_team(stage, "comes", "ours")
        await stage.pass_time(seconds)
        stage.create(OWNERS, thing("it", shard="one"), "leaves")
        owner = stage.create(OWNERS, thing("it", shard="one"), "comes")
        stage.create(CHILDREN, thing("its", owner=owner), "comes")
        await stage.until(lambda: stage.draining(OWNERS, "it", "leaves"), seconds=15)
        await stage.until(lambda: stage.label(CHILDREN, "its", "comes") == "one", seconds=15)


@in_virtual_time
async def test_what_comes_with_its_namespace_while_no_shard_is_there_is_placed_once_one_is(clock: VirtualClock) -> None:
    stage, _ = stage_with(clock, "a", namespaceSelector=OURS)
    stage.create(OWNERS, thing("there-before"), "others")
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        stage.release("one")
        await stage.until(lambda: stage.condition("ShardsAvailable") == "False")
        set_team(stage, "others", "ours")
        await stage.pass_time(5)
        assert stage.condition("Settled") != "True"
        stage.start("one")
        await stage.until(lambda: stage.label(OWNERS, "there-before", "others") == "one", seconds=5)
        await stage.until(lambda: stage.condition("Settled") == "True")
