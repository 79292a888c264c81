"""What wakes a controller besides its own objects: mapped watches, timers, pushes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from functools import partial

import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import PartialObject
from shardsdk.queueing.predicates import labels_changed, never, of_kind
from shardsdk.queueing.queue import Priority
from shardsdk.queueing.sources import MAX_PUSHED, Every, Feed, RequestSource, Trigger
from shardsdk.reconcile.spec import ControllerSpec, controller_for
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS
from tests.unsharded_rig import ELECTION, Cluster, Ctx, Replica, shard_of_ring


def named(name: str) -> Request:
    return Request("default", name)


def wanted_by(thing: PartialObject) -> Iterable[Request]:
    """The secrets that a config map names in its labels."""
    return [named(value) for value in (thing.metadata.labels or {}).values()]


def refer(cluster: Cluster, name: str, secret: str | None) -> None:
    body = {"metadata": {"name": name, "namespace": "default", "labels": {"secret": secret} if secret else {}}}
    cluster.server.create(CONFIGMAPS, body)


async def stop(manager: Manager, process: asyncio.Task[ExitCode]) -> None:
    manager.stopping.set()
    assert await process is ExitCode.OK


def watching(replica: Replica) -> ControllerSpec[PartialObject]:
    return controller_for(SECRETS).watches(CONFIGMAPS, wanted_by).reconcile(replica.note)


@in_virtual_time
async def test_a_mapping_wakes_whom_the_object_names_and_whom_it_named_before(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    for name in ("a", "b", "c"):
        cluster.secret(name)
    refer(cluster, "reference", "a")
    replica = cluster.replica()
    process = replica.start(manager := Manager().add(watching(replica)))
    await clock.sleep(5)
    replica.reconciled.clear()
    cluster.server.patch(CONFIGMAPS, "reference", "default", {"metadata": {"labels": {"secret": "b"}}})
    await clock.sleep(1)
    assert sorted(replica.reconciled) == ["a", "b"]
    replica.reconciled.clear()
    cluster.server.delete(CONFIGMAPS, "reference", "default")
    await clock.sleep(1)
    assert replica.reconciled == ["b"]
    await stop(manager, process)


@in_virtual_time
async def test_a_shard_watches_whole_resources_and_ignores_what_is_mapped_to_others_objects(
    clock: VirtualClock,
) -> None:
    cluster = Cluster(clock)
    cluster.secret("mine", shard="shard-1")
    cluster.secret("other", shard="shard-2")
    replica = cluster.replica()
    process = replica.start(manager := shard_of_ring().add(watching(replica)))
    await clock.sleep(5)
    replica.reconciled.clear()
    for name in ("mine", "other", "nowhere"):
        refer(cluster, name, name)
    await clock.sleep(5)
    assert replica.reconciled == ["mine"]
    await stop(manager, process)


@in_virtual_time
async def test_a_watched_resource_has_one_cache_whoever_watches_it(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    replica = cluster.replica()
    manager = shard_of_ring().add(watching(replica))
    manager.add(watching(replica).options(name="second"))
    manager.add(controller_for(CONFIGMAPS).on_every_replica().reconcile(replica.note))
    process = replica.start(manager)
    await clock.sleep(5)
    assert sum(api.lists.count("configmaps") for api in replica.apis) == 1
    await stop(manager, process)


@in_virtual_time
async def test_a_mapping_that_raises_costs_only_its_own_news(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")

    def picky(thing: PartialObject) -> Iterable[Request]:
        if thing.metadata.name == "bad":
            raise KeyError("what is that?")
        return [named("a")]

    replica = cluster.replica()
    spec = controller_for(SECRETS).watches(CONFIGMAPS, picky).reconcile(replica.note)
    process = replica.start(manager := Manager().add(spec))
    await clock.sleep(5)
    refer(cluster, "bad", None)
    refer(cluster, "good", None)
    await clock.sleep(5)
    assert replica.reconciled == ["a", "a"]
    await stop(manager, process)


@in_virtual_time
async def test_a_watch_hears_only_the_changes_that_its_predicate_lets_pass(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    refer(cluster, "reference", "a")
    replica = cluster.replica()
    spec = controller_for(SECRETS).watches(CONFIGMAPS, wanted_by, when=labels_changed).reconcile(replica.note)
    process = replica.start(manager := Manager().add(spec))
    await clock.sleep(5)
    replica.reconciled.clear()
    cluster.server.patch(CONFIGMAPS, "reference", "default", {"data": {"key": "value"}})
    await clock.sleep(5)
    assert replica.reconciled == []
    cluster.server.patch(CONFIGMAPS, "reference", "default", {"metadata": {"labels": {"other": "a"}}})
    await clock.sleep(5)
    assert replica.reconciled == ["a"]
    await stop(manager, process)


# -- priorities --------------------------------------------------------------------


class Line:
    """Five secrets that one replica reconciles one after the other, `seconds` each."""

    def __init__(self, cluster: Cluster, replica: Replica, seconds: float) -> None:
        self.cluster, self.replica, self.seconds = cluster, replica, seconds
        self.names = ["a", "b", "c", "d", "e"]
        #: The order in which they are reconciled if the last one changes while the first is.
        self.overtaken = ["a", "e", "b", "c", "d"]
        for name in self.names:
            cluster.secret(name)

    async def reconcile(self, context: Ctx) -> None:
        await self.replica.note(context)
        await self.cluster.clock.sleep(self.seconds)

    async def begun(self) -> None:
        while not self.replica.reconciled:
            await self.cluster.clock.sleep(0.1)

    def change_the_last(self) -> None:
        self.cluster.server.patch(SECRETS, "e", "default", {"data": {"key": "fresh"}})


@pytest.mark.parametrize("brings", ["objects", "children", "watched objects"])
@in_virtual_time
async def test_a_change_overtakes_what_first_lists_bring(clock: VirtualClock, brings: str) -> None:
    cluster = Cluster(clock)
    line = Line(cluster, cluster.replica(), seconds=10)
    spec = controller_for(SECRETS).reconcile(line.reconcile)
    for name in line.names:
        if brings == "watched objects":
            refer(cluster, name, name)
        elif brings == "children":
            uid = cluster.server.get(SECRETS, name, "default")["metadata"]["uid"]
            owner = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid, "controller": True}
            metadata = {"name": name, "namespace": "default", "ownerReferences": [owner]}
            cluster.server.create(CONFIGMAPS, {"metadata": metadata})
    if brings == "watched objects":
        spec = spec.watches(CONFIGMAPS, wanted_by)
    elif brings == "children":
        spec = spec.owns(CONFIGMAPS)
    process = line.replica.start(manager := Manager().add(spec))
    await line.begun()
    await clock.sleep(1)
    line.change_the_last()
    await clock.sleep(100)
    assert line.replica.reconciled == line.overtaken
    await stop(manager, process)


@in_virtual_time
async def test_a_change_overtakes_what_the_caches_of_a_new_leader_hold_already(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    before, line = cluster.replica(), Line(cluster, cluster.replica(), seconds=10)
    led = before.start(leader := Manager(election=ELECTION).add(controller_for(SECRETS).reconcile(before.note)))
    await clock.sleep(5)
    manager = Manager(election=ELECTION).add(controller_for(SECRETS).reconcile(line.reconcile))
    process = line.replica.start(manager)
    await clock.sleep(5)
    await stop(leader, led)
    await line.begun()
    line.change_the_last()
    await clock.sleep(100)
    assert line.replica.reconciled == line.overtaken
    await stop(manager, process)


# -- timers ------------------------------------------------------------------------


@in_virtual_time
async def test_a_timer_has_everything_reconciled_again_and_again(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("mine", shard="shard-1")
    cluster.secret("other", shard="shard-2")
    replica = cluster.replica()
    manager = shard_of_ring().add(controller_for(SECRETS).source(Every(60)).reconcile(replica.note))
    process = replica.start(manager)
    await clock.sleep(5 + 3 * 60)
    assert replica.reconciled == ["mine"] * 4
    await stop(manager, process)


@in_virtual_time
async def test_a_timer_may_say_itself_what_to_reconcile(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    cluster.secret("b")
    replica = cluster.replica()
    every = Every(60, lambda: [named("b"), named("nowhere")])
    process = replica.start(manager := Manager().add(controller_for(SECRETS).source(every).reconcile(replica.note)))
    await clock.sleep(65)
    assert replica.reconciled == ["a", "b", "b"]
    await stop(manager, process)


@in_virtual_time
async def test_a_change_overtakes_what_a_timer_asks_for(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    line = Line(cluster, cluster.replica(), seconds=0)
    spec = controller_for(SECRETS).source(Every(60)).reconcile(line.reconcile)
    process = line.replica.start(manager := Manager().add(spec))
    await clock.sleep(30)
    assert line.replica.reconciled == line.names
    line.replica.reconciled.clear()
    line.seconds = 5
    await line.begun()
    line.change_the_last()
    await clock.sleep(20)
    assert line.replica.reconciled == line.overtaken
    await stop(manager, process)


def test_a_timer_without_a_pause_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="more than zero"):
        Every(0)


# -- pushes ------------------------------------------------------------------------


@in_virtual_time
async def test_what_is_pushed_is_reconciled_by_every_controller_of_the_trigger(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica, trigger = cluster.replica(), Trigger()
    spec = controller_for(SECRETS).source(trigger).reconcile(replica.note)
    process = replica.start(manager := Manager().add(spec).add(spec.options(name="second")))
    await clock.sleep(5)
    replica.reconciled.clear()
    assert trigger.push(named("a"))
    assert trigger.push(named("nowhere"))
    await clock.sleep(1)
    assert replica.reconciled == ["a", "a"]
    await stop(manager, process)


@in_virtual_time
async def test_what_is_pushed_before_its_controllers_run_each_of_them_gets(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica, trigger, before = cluster.replica(), Trigger(), []

    async def also(context: Ctx) -> None:
        before.append(context.name)

    asked = controller_for(SECRETS, when=never).source(trigger, when=of_kind(EventKind.GENERIC))
    manager = Manager().add(asked.reconcile(replica.note)).add(asked.options(name="second").reconcile(also))
    assert trigger.push(named("a"))
    process = replica.start(manager)
    await clock.sleep(5)
    assert (replica.reconciled, before) == (["a"], ["a"])
    trigger.push(named("a"))
    await clock.sleep(5)
    assert (replica.reconciled, before) == (["a"] * 2, ["a"] * 2)
    await stop(manager, process)


async def test_what_is_pushed_when_the_first_of_two_controllers_runs_waits_for_the_second() -> None:
    trigger, taken = Trigger(), [asyncio.Queue[Request](), asyncio.Queue[Request]()]
    for _ in taken:
        trigger.expect()
    running: list[asyncio.Task[None]] = []
    async with asyncio.timeout(60):
        for number, queue in enumerate(taken):
            trigger.push(named(str(number)))
            add = partial(lambda queue, request, priority: queue.put_nowait(request), queue)
            running.append(asyncio.create_task(trigger.run(Feed(add, list, None, None))))  # type: ignore[arg-type]
            await queue.get()
        assert (await taken[0].get(), await taken[1].get()) == (named("1"), named("1"))
        trigger.push(named("late"))
        assert [await queue.get() for queue in taken] == [named("late")] * 2
    for task in running:
        task.cancel()
    await asyncio.wait(running)
    trigger.expect()
    again = asyncio.Queue[Request]()
    feed = Feed(lambda request, priority: again.put_nowait(request), list, None, None)  # type: ignore[arg-type]
    third = asyncio.create_task(trigger.run(feed))
    trigger.push(named("new"))
    assert await again.get() == named("new"), "what the first two have taken is not kept"
    third.cancel()
    await asyncio.wait([third])


async def test_what_is_pushed_early_waits_and_may_come_from_any_thread() -> None:
    trigger, taken = Trigger(), asyncio.Queue[Request]()
    threads = [threading.Thread(target=trigger.push, args=(named(str(number)),)) for number in range(20)]
    for thread in threads[:10]:
        thread.start()
    for thread in threads[:10]:
        thread.join()
    feed = Feed(lambda request, priority: taken.put_nowait(request), list, None, None)  # type: ignore[arg-type]
    running = asyncio.create_task(trigger.run(feed))
    for thread in threads[10:]:
        thread.start()
    async with asyncio.timeout(60):
        found = {(await taken.get()).name for _ in threads}
    assert found == {str(number) for number in range(20)}
    running.cancel()
    await asyncio.wait([running])


def test_a_trigger_keeps_each_request_once_and_not_without_bounds() -> None:
    trigger = Trigger()
    for number in range(MAX_PUSHED):
        assert trigger.push(named(str(number)))
    assert not trigger.push(named("one too many"))
    assert trigger.push(named("7"), Priority.BULK), "it waits already"


class Once:
    """A source of a user's own."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def run(self, feed: Feed) -> None:
        for name in self.names:
            feed.add(named(name), Priority.FRESH)


@in_virtual_time
async def test_a_source_of_ones_own_begins_once_caches_are_complete_and_may_end(clock: VirtualClock) -> None:
    cluster = Cluster(clock)
    cluster.secret("a")
    replica = cluster.replica()
    source: RequestSource = Once("a", "b")

    def unless_generic(delta: Delta[PartialObject]) -> bool:
        return delta.kind is not EventKind.GENERIC

    spec = controller_for(SECRETS, when=unless_generic).source(source, when=of_kind(EventKind.GENERIC))
    process = replica.start(manager := Manager().add(spec.reconcile(replica.note)))
    await clock.sleep(5)
    assert replica.reconciled == ["a"], "known to the cache when the source began, and queued once"
    await stop(manager, process)


@in_virtual_time
async def test_a_source_that_raises_ends_the_process(clock: VirtualClock) -> None:
    class Broken:
        async def run(self, feed: Feed) -> None:
            raise RuntimeError("no connection to the message queue")

    cluster = Cluster(clock)
    replica = cluster.replica()
    manager = Manager().add(controller_for(SECRETS).source(Broken()).reconcile(replica.note))
    assert await replica.start(manager) is ExitCode.FAILED


def test_a_resource_is_watched_once_by_a_controller() -> None:
    spec = controller_for(SECRETS).watches(CONFIGMAPS, wanted_by)
    with pytest.raises(ConfigurationError, match="watches configmaps twice"):
        spec.watches(CONFIGMAPS, wanted_by)
