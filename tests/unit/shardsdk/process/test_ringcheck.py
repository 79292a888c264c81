"""What the ring does not list is told; children that the sharder has not labelled yet are waited for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError, NotServed
from shardsdk.process.ringcheck import READ_SECONDS, UNSEEN_SECONDS, RingCheck
from shardsdk.protocol.namespaces import NAME_LABEL
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource
from shardsdk.queueing.metrics import Metrics
from shardsdk.reconcile.barrier import CATCH_UP_SECONDS
from shardsdk.reconcile.caches import Caches, CacheSettings
from shardsdk.reconcile.childlists import UNLABELLED_SECONDS
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.spec import controller_for
from shardsdk.testing import Rig, drive
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.rig import RING, SHARD, Given
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS

#: What a merge patch of another selector takes away.
EMPTY = {"matchLabels": None, "matchExpressions": None}
MAIN = SECRETS.group_resource
CHILD = CONFIGMAPS.group_resource


def ring_of(*resources: dict[str, Any], name: str = RING) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"resources": list(resources)}}


LISTED = ring_of({"group": "", "resource": "secrets", "controlledResources": [{"group": "", "resource": "configmaps"}]})
NOT_LISTED = ring_of({"group": "", "resource": "secrets"})


@asynccontextmanager
async def checking(
    server: MemoryServer, clock: VirtualClock, metrics: Metrics, looked_at: Callable[[], bool] | None = None
) -> AsyncIterator[RingCheck]:
    api = MemoryApi(server, clock)
    owned = {CHILD: frozenset({MAIN})}
    check = RingCheck(
        api, RING, frozenset({MAIN}), owned, shard="shard-1", clock=clock, metrics=metrics, looked_at=looked_at
    )
    task = asyncio.create_task(check.run())
    try:
        await check.looked.wait()
        yield check
    finally:
        task.cancel()
        await asyncio.wait([task])


def missing(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("shardsdk_resources_not_in_ring")


@in_virtual_time
async def test_what_is_owned_and_not_listed_is_told_until_the_ring_lists_it(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server, metrics = MemoryServer(), Metrics()
    server.create(CLUSTERRINGS, NOT_LISTED)
    async with checking(server, clock, metrics) as check:
        await clock.sleep(10 * READ_SECONDS)
        [told] = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert told.__dict__["missing"] == "controlledResources of secrets: configmaps"
        assert (missing(metrics), check.lists(MAIN, CHILD)) == (1, False)
        server.patch(CLUSTERRINGS, RING, None, {"spec": LISTED["spec"]})
        await clock.sleep(READ_SECONDS)
        assert (missing(metrics), check.lists(MAIN, CHILD)) == (0, True)
        server.patch(CLUSTERRINGS, RING, None, {"spec": NOT_LISTED["spec"]})
        await clock.sleep(READ_SECONDS)
        assert (missing(metrics), check.lists(MAIN, CHILD)) == (1, False)


IN_TEAM = {"matchLabels": {NAME_LABEL: "team"}}
NOT_IN_SYSTEM = {"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": ["kube-system"]}]}


@in_virtual_time
async def test_namespaces_that_the_ring_covers_and_nobody_watches_are_told_until_they_are_left_out(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server, metrics = MemoryServer(), Metrics()
    server.create(CLUSTERRINGS, LISTED)
    watched = frozenset({"team", "other"})
    check = RingCheck(MemoryApi(server, clock), RING, frozenset({MAIN}), {}, shard="shard-1", watched=watched,
                      clock=clock, metrics=metrics)  # fmt: skip

    def unwatched() -> float | None:
        return metrics.registry.get_sample_value("shardsdk_ring_covers_unwatched_namespaces")

    running = asyncio.create_task(check.run())
    await clock.sleep(3 * READ_SECONDS)
    (told,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert told.__dict__["watched"] == ["other", "team"]
    assert unwatched() == 1
    server.rearrange(CLUSTERRINGS, RING, None, {"status": {"namespaceSelector": IN_TEAM}})
    await clock.sleep(READ_SECONDS)
    assert unwatched() == 0, "by the sharder's default it is left out"
    server.rearrange(CLUSTERRINGS, RING, None, {"status": {"namespaceSelector": None}})
    await clock.sleep(READ_SECONDS)
    for selector, found in ((IN_TEAM, 0), (NOT_IN_SYSTEM, 1), ({"matchLabels": {"any": "label"}}, 0)):
        server.patch(CLUSTERRINGS, RING, None, {"spec": {"namespaceSelector": {**EMPTY, **selector}}})
        await clock.sleep(READ_SECONDS)
        assert unwatched() == found, selector
    assert [each.levelname for each in caplog.records if "does not watch" in each.message] == ["ERROR", "INFO"] * 3
    running.cancel()


@in_virtual_time
async def test_shards_of_resources_without_a_common_namespace_are_told_to_be_of_two_rings(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = MemoryServer()
    server.create(CLUSTERRINGS, LISTED)
    check = RingCheck(MemoryApi(server, clock), RING, frozenset(), {}, shard="one", watched=frozenset(), clock=clock)
    running = asyncio.create_task(check.run())
    await check.looked.wait()
    (told,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "a ring of its own" in told.__dict__["remedy"]
    running.cancel()


@pytest.mark.parametrize(
    ("manager", "secrets", "watched"),
    [
        (None, None, None),
        ("team", None, {"team"}),
        (["team", "other"], None, {"team", "other"}),
        ("team", [], None),
        (None, ["other"], {"other"}),
        ("", None, None),
    ],
)
def test_what_is_watched_is_what_the_manager_and_its_caches_say(
    manager: str | list[str] | None, secrets: list[str] | None, watched: set[str] | None
) -> None:
    namespaces = [manager] if isinstance(manager, str) else manager or []
    settings = {} if secrets is None else {MAIN: CacheSettings(namespaces=secrets)}
    clock = VirtualClock()
    caches = Caches(
        MemoryApi(MemoryServer(), clock), None, namespaces=namespaces, settings=settings, clock=clock, rng=Random(1)
    )
    assert caches.namespaces_of_all([SECRETS, CLUSTERRINGS]) == watched


@in_virtual_time
async def test_a_shard_by_labels_ends_within_a_minute_of_its_rings_new_way(clock: VirtualClock) -> None:
    server = MemoryServer()
    server.create(CLUSTERRINGS, LISTED)
    check = RingCheck(MemoryApi(server, clock), RING, frozenset({MAIN}), {}, shard="shard-1", clock=clock)
    running = asyncio.create_task(check.run())
    await check.looked.wait()
    before = clock.monotonic()
    server.patch(CLUSTERRINGS, RING, None, {"spec": {"assignment": "Ranges", "hashBy": "UID"}})
    with pytest.raises(ConfigurationError, match=r"by hashes of uids, and this process works by labels: start it anew"):
        await running
    assert clock.monotonic() - before < READ_SECONDS + 1, "the look, and the answer to it"


@in_virtual_time
async def test_a_main_resource_that_is_not_listed_is_told_too(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server, metrics = MemoryServer(), Metrics()
    server.create(CLUSTERRINGS, ring_of({"group": "apps", "resource": "deployments"}))
    async with checking(server, clock, metrics):
        assert missing(metrics) == 2
    assert "resources: secrets; controlledResources of secrets: configmaps" in [
        each.__dict__.get("missing") for each in caplog.records
    ]


@in_virtual_time
async def test_a_ring_that_is_not_there_yet_is_told_once_and_looked_for_again(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server, metrics = MemoryServer(), Metrics()
    async with checking(server, clock, metrics) as check:
        await clock.sleep(5 * READ_SECONDS)
        assert [each.levelname for each in caplog.records] == ["WARNING"]
        assert not check.lists(MAIN, CHILD)
        server.create(CLUSTERRINGS, LISTED)
        await clock.sleep(READ_SECONDS)
        assert check.lists(MAIN, CHILD)
        assert not check.lists(GroupResource("apps", "deployments"), CHILD)
        assert missing(metrics) == 0


@in_virtual_time
async def test_a_ring_that_is_deleted_while_its_shard_works_is_told_once_with_the_remedy(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server = MemoryServer()
    server.create(CLUSTERRINGS, LISTED)
    async with checking(server, clock, Metrics()):
        server.delete(CLUSTERRINGS, RING, None)
        await clock.sleep(3 * READ_SECONDS)
    (told,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert (told.levelname, told.message[:20], vars(told)["ring"]) == ("ERROR", "The ring was deleted", RING)
    assert "stop its shards before those of another ring" in vars(told)["remedy"]


@in_virtual_time
async def test_a_ring_that_is_made_again_is_told_too(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="shardsdk")
    server = MemoryServer()
    server.create(CLUSTERRINGS, LISTED)
    async with checking(server, clock, Metrics()):
        assert not caplog.records
        server.delete(CLUSTERRINGS, RING, None)
        await clock.sleep(READ_SECONDS + 1)
        server.create(CLUSTERRINGS, LISTED)
        await clock.sleep(3 * READ_SECONDS)
    assert [(each.levelname, each.message[:21]) for each in caplog.records] == [
        ("ERROR", "The ring was deleted;"),
        ("INFO", "The ring is there now"),
    ]


@in_virtual_time
async def test_a_ring_whose_type_is_not_served_is_not_said_to_be_deleted(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unserved(*_: object, **__: object) -> None:
        raise NotServed("404 page not found")

    caplog.set_level(logging.INFO, logger="shardsdk")
    server = MemoryServer()
    server.create(CLUSTERRINGS, LISTED)
    async with checking(server, clock, Metrics(), lambda: False):
        with monkeypatch.context() as patched:
            patched.setattr(MemoryApi, "get", unserved)
            await clock.sleep(3 * READ_SECONDS)
        unseen, told = caplog.records
        assert vars(unseen)["why"].startswith("none runs")
        assert (told.levelname, told.message[:26]) == ("WARNING", "The ring could not be read")
        assert vars(told)["error"] == (
            "404 page not found: ClusterRings are not served; if their definition was deleted, so was the ring"
        )
        await clock.sleep(3 * READ_SECONDS)
        assert len(caplog.records) == 2, "the ring has been there all the time"


# -- the shard's lease -----------------------------------------------------------------


@in_virtual_time
async def test_a_shard_that_no_sharder_looks_at_says_so_after_half_a_minute_and_why(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server, seen = MemoryServer(), list[int]()

    def told() -> list[str]:
        return [str(vars(each).get("why", "it does")) for each in caplog.records if "sharder looks" in each.message]

    async with checking(server, clock, Metrics(), lambda: bool(seen)):
        await clock.sleep(UNSEEN_SECONDS - 1)
        assert told() == []
        await clock.sleep(300)
        assert told() == ["there is no ClusterRing 'test': create it, or correct the name"]
        seen.append(1)
        await clock.sleep(UNSEEN_SECONDS)
        assert told()[1:] == ["it does"]
    server.create(CLUSTERRINGS, LISTED)
    caplog.clear()
    async with checking(server, clock, Metrics(), lambda: False):
        await clock.sleep(300)
        assert [each.split(",")[0] for each in told()] == ["none runs"]
    caplog.clear()
    async with checking(server, clock, Metrics(), lambda: True):
        await clock.sleep(300)
        assert told() == []


# -- children without a label --------------------------------------------------------


async def make_child_if_missing(context: Context[Any]) -> None:
    if not context.children(CONFIGMAPS):
        metadata = {
            "generateName": "made-",
            "namespace": "default",
            "ownerReferences": [context.controller_reference()],
        }
        await context.api.create(CONFIGMAPS, {"metadata": metadata}, "default")


OWNING = controller_for(SECRETS).owns(CONFIGMAPS).reconcile(make_child_if_missing)
#: The first object that a rig makes has this uid.
FIRST_UID = "uid-1"
UNLABELLED: dict[str, Any] = {
    "metadata": {
        "name": "child",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": FIRST_UID, "controller": True}
        ],
    }
}
OBJECTS: list[Given] = [
    (SECRETS, {"metadata": {"name": "owner"}}),
    (CONFIGMAPS, UNLABELLED),
    (SECRETS, {"metadata": {"name": "b"}}),
]


def test_an_owner_waits_for_its_child_that_the_sharder_is_about_to_label() -> None:
    """The resource was added to the ring, and the shards were started with the code that owns it, at once."""

    async def story(rig: Rig) -> None:
        assert [name for name, _ in rig.outcomes if name == "owner"] == []
        assert {name for name, _ in rig.outcomes} == {"b"}
        await rig.clock.sleep(300)
        assert {name for name, _ in rig.outcomes} == {"b"}
        rig.patch(CONFIGMAPS, "child", {"metadata": {"labels": {rig.labels_of_ring.shard: SHARD}}})
        await rig.settle()
        assert "owner" in {name for name, _ in rig.outcomes}
        # From now on nobody looks for such children any more.
        rig.create(SECRETS, {"metadata": {"name": "c"}})
        await rig.settle()
        before = len(rig.api.lists)
        rig.create(SECRETS, {"metadata": {"name": "d"}})
        await rig.settle()
        assert len(rig.api.lists) == before + 1

    rig = drive(OWNING, [*OBJECTS, (CLUSTERRINGS, LISTED)], story)
    assert [each["metadata"]["name"] for each in rig.children(SECRETS, "owner", CONFIGMAPS)] == ["child"]


def test_an_owner_whose_child_nobody_labels_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """A namespace that is not the ring's, or no sharder at all."""

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(UNLABELLED_SECONDS - 2 * CATCH_UP_SECONDS)
        assert {name for name, _ in rig.outcomes} == {"b"}
        await rig.clock.sleep(3 * CATCH_UP_SECONDS + 1)
        assert {name for name, _ in rig.outcomes} == {"b", "owner"}

    drive(OWNING.reconcile(nothing), [*OBJECTS, (CLUSTERRINGS, LISTED)], story)
    [told] = [each for each in caplog.records if "goes on without it" in each.message]
    assert told.__dict__["object"] == "child"


@pytest.mark.parametrize("ring", [[(CLUSTERRINGS, NOT_LISTED)], []], ids=["not listed", "no ring"])
def test_nobody_waits_for_a_label_that_the_sharder_may_never_write(ring: list[Any]) -> None:
    rig = drive(OWNING, [*OBJECTS, *ring])
    assert {name for name, _ in rig.outcomes} == {"owner", "b"}


async def nothing(context: Context[Any]) -> None:
    return None


def test_that_a_child_was_seen_to_lose_its_label_does_not_count_as_having_it() -> None:
    async def story(rig: Rig) -> None:
        shard = {rig.labels_of_ring.shard: SHARD}
        rig.create_child(SECRETS, "b", CONFIGMAPS, {"metadata": {"name": "seen"}})
        await rig.settle()
        rig.patch(CONFIGMAPS, "seen", {"metadata": {"labels": {rig.labels_of_ring.shard: None}}})
        rig.drain(SECRETS, "b")
        await rig.settle()
        assert rig.labels(SECRETS, "b") == {}
        before = len(rig.outcomes)
        rig.patch(SECRETS, "b", {"metadata": {"labels": shard}})
        await rig.settle()
        assert len(rig.outcomes) == before
        rig.patch(CONFIGMAPS, "seen", {"metadata": {"labels": shard}})
        await rig.settle()
        assert len(rig.outcomes) > before

    # The first owner's child stays without a label, so that such children are looked for all the while.
    drive(OWNING.reconcile(nothing), [*OBJECTS, (CLUSTERRINGS, LISTED)], story)
