"""The reflector while API server and etcd are killed, paused, restarted and compacted.

The reflector follows one API server; what changes meanwhile is written through
a second one on the same etcd.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from localcluster import ControlPlane
from localcluster.components import Component
from shardsdk.errors import ConnectionFailed, ShardingError, StreamInterrupted
from shardsdk.kube.access import load_access
from shardsdk.kube.client import Client
from shardsdk.kube.reflector import EventKind
from shardsdk.kube.selectors import Selector, equals
from shardsdk.protocol.objects import NAMESPACES
from tests.integration.following import following
from tests.kube_fakes import CONFIGMAPS

pytestmark = pytest.mark.timeout(600)

#: Silence that tests wait for; watches of theirs are never that quiet by themselves for long.
SILENCE_SECONDS = 2.0


@dataclass(frozen=True)
class Pair:
    """The API server that is followed and broken, and a client of it and of the other one."""

    plane: ControlPlane
    victim: Component
    here: Client
    there: Client
    namespace: str

    async def write(self, *names: str) -> None:
        for name in names:
            await self.there.create(CONFIGMAPS, {"metadata": {"name": name, "labels": {"mine": "yes"}}}, self.namespace)

    async def delete(self, *names: str) -> None:
        for name in names:
            await self.there.delete(CONFIGMAPS, name, self.namespace)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def breakable() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(controllers=()) as plane:
        await plane.add_apiserver()
        yield plane


@pytest_asyncio.fixture
async def pair(breakable: ControlPlane) -> AsyncIterator[Pair]:
    first, second = breakable.apiservers[:2]
    paths = [breakable.kubeconfig(path=each.log.with_suffix(".kubeconfig"), server=each) for each in (first, second)]
    async with Client(await load_access(str(paths[0]))) as here, Client(await load_access(str(paths[1]))) as there:
        made = await there.create(NAMESPACES, {"metadata": {"generateName": "outage-"}})
        yield Pair(breakable, first, here, there, made.metadata.name)


MINE = Selector(labels=equals("mine", "yes"))


async def test_a_killed_api_server_costs_nothing_but_time(pair: Pair) -> None:
    await pair.write("a", "b", "c")
    async with following(pair.here, namespace=pair.namespace, selector=MINE) as mine:
        await mine.reflector.synced.wait()
        await pair.victim.kill()
        await mine.until(lambda: isinstance(mine.reflector.failure, ShardingError))
        await pair.delete("a")
        await pair.write("d")
        await pair.there.patch(CONFIGMAPS, "b", pair.namespace, {"data": {"k": "v"}})
        await pair.victim.start()
        await mine.until(lambda: mine.names == {"b", "c", "d"} and len(mine.deltas) == 6)
        assert sorted((kind.value, name) for kind, name in mine.story[3:]) == [
            ("added", "d"),
            ("deleted", "a"),
            ("modified", "b"),
        ]
        await mine.until(lambda: mine.reflector.failure is None)


async def test_a_paused_api_server_is_noticed_by_its_silence(pair: Pair) -> None:
    await pair.write("a")
    async with following(pair.here, namespace=pair.namespace, selector=MINE, silence_seconds=SILENCE_SECONDS) as mine:
        await mine.reflector.synced.wait()
        pair.victim.pause()
        try:
            failures = (StreamInterrupted, ConnectionFailed)
            await mine.until(lambda: isinstance(mine.reflector.failure, failures))
            await pair.delete("a")
            await pair.write("b")
        finally:
            pair.victim.resume()
        await mine.until(lambda: mine.names == {"b"})
        assert (EventKind.DELETED, "a") in mine.story
        await mine.until(lambda: mine.reflector.failure is None)


async def test_a_history_that_was_compacted_away_is_replaced_by_a_list(pair: Pair) -> None:
    await pair.write("kept", "vanishing")
    async with following(pair.here, namespace=pair.namespace, selector=MINE) as mine:
        await mine.reflector.synced.wait()
        known = mine.reflector.store.get(pair.namespace, "kept")
        await pair.victim.kill()
        await pair.delete("vanishing")
        for number in range(5):
            await pair.write(f"new-{number}")
        await pair.plane.compact()
        await pair.victim.start()
        await mine.until(lambda: mine.names == {"kept", *(f"new-{number}" for number in range(5))})
        assert mine.story.count((EventKind.DELETED, "vanishing")) == 1
        assert mine.story.count((EventKind.ADDED, "kept")) == 1
        assert mine.reflector.store.get(pair.namespace, "kept") is known, "what did not change is not told again"
        gone = next(delta for delta in mine.deltas if delta.kind is EventKind.DELETED)
        assert gone.initial, "found out by a list, since its event is gone"


async def test_an_object_made_again_meanwhile_is_another_object(pair: Pair) -> None:
    await pair.write("a")
    async with following(pair.here, namespace=pair.namespace, selector=MINE) as mine:
        await mine.reflector.synced.wait()
        await pair.victim.kill()
        await pair.delete("a")
        await pair.write("a")
        await pair.plane.compact()
        await pair.victim.start()
        await mine.until(lambda: len(mine.deltas) == 3)
        assert [kind for kind, _ in mine.story] == [EventKind.ADDED, EventKind.DELETED, EventKind.ADDED]
        assert mine.deltas[1].object.metadata.uid != mine.deltas[2].object.metadata.uid


async def test_an_outage_of_etcd_changes_nothing(pair: Pair) -> None:
    await pair.write("a")
    async with following(pair.here, namespace=pair.namespace, selector=MINE) as mine:
        await mine.reflector.synced.wait()
        await pair.plane.etcd.restart()
        await pair.victim.ready()
        await pair.plane.apiservers[1].ready()
        await pair.write("b")
        await mine.until(lambda: mine.names == {"a", "b"})
        assert mine.story == [(EventKind.ADDED, "a"), (EventKind.ADDED, "b")]


async def test_a_reflector_that_starts_before_its_api_server_waits_for_it(pair: Pair) -> None:
    await pair.victim.kill()
    await pair.write("a")
    async with following(pair.here, namespace=pair.namespace, selector=MINE) as mine:
        await mine.until(lambda: isinstance(mine.reflector.failure, ConnectionFailed))
        await pair.victim.start(wait=False)
        await mine.until(lambda: mine.names == {"a"})
        await mine.until(lambda: mine.reflector.synced.is_set() and mine.reflector.failure is None)
        await pair.victim.ready()


async def test_an_api_server_without_initial_events_is_listed_in_pages(breakable: ControlPlane, pair: Pair) -> None:
    old = await breakable.add_apiserver(["--feature-gates=WatchList=false"])
    try:
        access = await load_access(str(breakable.kubeconfig(path=old.log.with_suffix(".kubeconfig"), server=old)))
        await pair.write("a", "b")
        async with Client(access) as client, following(client, namespace=pair.namespace, selector=MINE) as mine:
            await mine.reflector.synced.wait()
            assert mine.names == {"a", "b"}
            await pair.delete("a")
            await mine.until(lambda: mine.names == {"b"})
            listed = client.stream(CONFIGMAPS, pair.namespace, selector=MINE)
            assert [each.metadata.name async for batch in listed for each in batch] == ["b"]
    finally:
        await old.kill()
        breakable.apiservers.remove(old)


@pytest.mark.slow
async def test_the_store_converges_through_everything_at_once(pair: Pair) -> None:
    """Somebody writes all the time while the API server is killed, paused and compacted."""
    rng = random.Random(7)
    names = [f"o{number}" for number in range(10)]
    there: set[str] = set()
    writing = True

    async def churn() -> None:
        while writing:
            name = rng.choice(names)
            if name not in there:
                await pair.write(name)
                there.add(name)
            elif rng.random() < 0.4:
                await pair.delete(name)
                there.discard(name)
            else:
                await pair.there.patch(CONFIGMAPS, name, pair.namespace, {"data": {"n": str(rng.random())}})
            await asyncio.sleep(0.005)

    options: dict[str, Any] = {"silence_seconds": SILENCE_SECONDS, "max_pause_seconds": 2.0}
    async with (
        following(pair.here, namespace=pair.namespace, selector=MINE, **options) as mine,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(churn())

        async def works_again() -> None:
            told = len(mine.deltas)
            await mine.until(lambda: mine.reflector.failure is None and len(mine.deltas) > told + 20)

        await mine.reflector.synced.wait()
        for _ in range(2):
            await pair.victim.restart()
            await works_again()
            pair.victim.pause()
            await asyncio.sleep(SILENCE_SECONDS * rng.random() * 2)
            pair.victim.resume()
            await works_again()
            await pair.victim.kill()
            await pair.plane.compact()
            await pair.victim.start()
            await works_again()
        writing = False
        await pair.there.writes_settled()
        listed = pair.there.pages(CONFIGMAPS, pair.namespace, selector=MINE)
        expected = {each.metadata.name: each async for page in listed for each in page}
        await mine.until(lambda: {each.metadata.name: each for each in mine.reflector.store} == expected)
        replayed: set[str] = set()
        for delta in mine.deltas:
            name = delta.object.metadata.name
            assert (name in replayed) is (delta.old is not None)
            (replayed.discard if delta.kind is EventKind.DELETED else replayed.add)(name)
        assert replayed == set(expected)
