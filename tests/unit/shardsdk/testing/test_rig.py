"""Driving a controller with objects: what a user's unit test can arrange and see."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from shardsdk import (
    Context,
    Done,
    Election,
    EventType,
    Every,
    Manager,
    PartialObject,
    Request,
    RequeueAfter,
    Resource,
    Selector,
    TerminalError,
    Trigger,
    controller_for,
    finalizing,
    set_controller_reference,
)
from shardsdk.errors import ConfigurationError, Conflict
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.testing import threads
from shardsdk.testing.rig import RING, Rig, drive
from shardsdk.testing.virtual import EPOCH, Deadlock, Livelock
from tests.shard_rig import CONFIGMAPS, SECRETS

Ctx = Context[PartialObject]


async def make_child(context: Ctx) -> None:
    name = f"{context.request.name}-seen"
    if context.child(CONFIGMAPS, name) is None:
        body: dict[str, Any] = {"metadata": {"name": name}, "data": {"by": "me"}}
        body = set_controller_reference(context.main, context.metadata, CONFIGMAPS, body)
        await context.api.create(CONFIGMAPS, body, context.request.namespace)
        context.event(EventType.NORMAL, "Made", f"made {name}")


def make_child_plainly(context: Ctx) -> None:
    context.run(make_child(context))


SECRET = (SECRETS, {"metadata": {"name": "a"}})


@pytest.mark.parametrize("function", [make_child, make_child_plainly])
def test_what_was_written_is_seen(function: Any) -> None:
    rig = drive(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(function), [SECRET])
    assert rig.get(CONFIGMAPS, "a-seen")["data"] == {"by": "me"}
    assert rig.writes == [("create", "configmaps", "a-seen")]
    assert [child["metadata"]["name"] for child in rig.children(SECRETS, "a", CONFIGMAPS)] == ["a-seen"]
    assert rig.events == [("a", "Made", "made a-seen")]
    assert rig.outcomes[0] == ("a", None)


def test_children_are_made_once_though_the_cache_is_late() -> None:
    """Expectations are on: a reconcile waits until the cache shows what the last one wrote."""

    async def story(rig: Rig) -> None:
        rig.api.lag = lambda: 0.05
        rig.create(SECRETS, {"metadata": {"name": "b"}})
        for number in range(3):
            await asyncio.sleep(0.02)
            rig.patch(SECRETS, "b", {"metadata": {"annotations": {"number": str(number)}}})

    rig = drive(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(make_child), [], story)
    assert rig.writes == [("create", "configmaps", "b-seen")]


def test_children_that_are_there_are_found() -> None:
    async def story(rig: Rig) -> None:
        rig.create(SECRETS, {"metadata": {"name": "b", "labels": {rig.labels_of_ring.shard: "shard-2"}}})
        rig.create_child(SECRETS, "b", CONFIGMAPS, {"metadata": {"name": "b-seen"}})
        rig.patch(SECRETS, "b", {"metadata": {"labels": {rig.labels_of_ring.shard: "shard-1"}}})
        await rig.settle()

    rig = drive(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(make_child), [], story)
    assert rig.writes == []
    assert [name for name, _ in rig.outcomes] == ["b"]


def test_a_drain_is_acknowledged_and_the_object_left_alone() -> None:
    async def story(rig: Rig) -> None:
        rig.drain(SECRETS, "a")
        await rig.settle()
        assert rig.labels(SECRETS, "a") == {}
        before = len(rig.outcomes)
        rig.patch(SECRETS, "a", {"metadata": {"annotations": {"changed": "yes"}}})
        await rig.settle()
        assert len(rig.outcomes) == before

    rig = drive(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(make_child), [SECRET], story)
    assert rig.writes[-1] == ("patch", "secrets", "a")


def test_a_deletion_is_held_by_finalizers() -> None:
    async def reconcile(context: Ctx) -> None:
        await finalizing(context, "example.com/a", lambda: asyncio.sleep(10))

    async def story(rig: Rig) -> None:
        rig.delete(SECRETS, "a")
        await rig.settle()
        assert rig.find(SECRETS, "a") is None

    drive(controller_for(SECRETS).reconcile(reconcile), [SECRET], story)


def test_what_is_due_later_comes_when_time_passes() -> None:
    async def reconcile(context: Ctx) -> RequeueAfter:
        return RequeueAfter(3600)

    async def story(rig: Rig) -> None:
        assert len(rig.outcomes) == 1
        await rig.clock.sleep(3 * 3600)
        assert len(rig.outcomes) == 4

    drive(controller_for(SECRETS).reconcile(reconcile), [SECRET], story)


def test_a_helper_in_a_thread_may_use_the_api() -> None:
    async def reconcile(context: Ctx) -> None:
        def help_out() -> float:
            context.run(asyncio.sleep(1))
            context.run(make_child(context))
            return context.clock.monotonic()

        began = context.clock.monotonic()
        assert await asyncio.to_thread(help_out) - began > 1

    rig = drive(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(reconcile), [SECRET])
    assert rig.writes == [("create", "configmaps", "a-seen")]


def test_a_helper_that_waits_for_ever_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PATIENCE_SECONDS", 0.01)
    never = threading.Event()

    async def reconcile(context: Ctx) -> None:
        await asyncio.to_thread(never.wait)

    try:
        with pytest.raises(Deadlock, match="'secrets' reconciled default/a last: a thread waits"):
            drive(controller_for(SECRETS).reconcile(reconcile), [SECRET])
    finally:
        never.set()


def test_failures_that_a_story_has_dealt_with_are_forgotten() -> None:
    calls: list[str] = []

    async def reconcile(context: Ctx) -> None:
        calls.append(context.request.name)
        if len(calls) == 1:
            raise ValueError("once")

    async def story(rig: Rig) -> None:
        assert [str(each) for each in rig.failures] == ["once"]
        rig.outcomes.clear()

    assert drive(controller_for(SECRETS).reconcile(reconcile), [SECRET], story).failures == []


def test_what_a_reconcile_raises_comes_out() -> None:
    async def reconcile(context: Ctx) -> None:
        raise TerminalError("no such thing")

    spec = controller_for(SECRETS).reconcile(reconcile)
    with pytest.raises(TerminalError, match="no such thing"):
        drive(spec, [SECRET])
    [failure] = drive(spec, [SECRET], raises=False).failures
    assert isinstance(failure, TerminalError)


def test_a_conflict_is_no_failure() -> None:
    attempts: list[str] = []

    async def reconcile(context: Ctx) -> Done:
        attempts.append(context.request.name)
        if len(attempts) == 1:
            raise Conflict("somebody was faster", status=409)
        return Done()

    rig = drive(controller_for(SECRETS).reconcile(reconcile), [SECRET])
    assert rig.failures == []
    assert rig.outcomes[-1] == ("a", Done())


def test_a_controller_that_never_comes_to_rest_is_reported() -> None:
    async def reconcile(context: Ctx) -> RequeueAfter:
        return RequeueAfter(0.01)

    with pytest.raises(AssertionError, match="does not come to rest"):
        drive(controller_for(SECRETS).reconcile(reconcile), [SECRET])


def test_another_shards_objects_are_not_reconciled() -> None:
    labels = {parse_ring_name(RING).shard: "shard-2"}
    other = (SECRETS, {"metadata": {"name": "b", "labels": labels}})
    assert drive(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(make_child), [other]).outcomes == []


@pytest.mark.parametrize("scope", ["leader", "everywhere"])
def test_unsharded_controllers_see_every_object(scope: str) -> None:
    async def note(context: Ctx) -> None:
        await context.api.patch(
            SECRETS, context.request.name, "default", {"metadata": {"annotations": {"seen": "yes"}}}
        )

    spec = controller_for(SECRETS).reconcile(note)
    spec = spec.on_leader() if scope == "leader" else spec.on_every_replica()
    rig = drive(spec, [SECRET, (SECRETS, {"metadata": {"name": "b"}})])
    assert {name for _, _, name in rig.writes} == {"a", "b"}
    assert rig.labels(SECRETS, "a") == {}


def test_timers_and_pushes_wake_a_controller() -> None:
    trigger = Trigger()

    async def story(rig: Rig) -> None:
        before = len(rig.outcomes)
        trigger.push(Request("default", "a"))
        await rig.settle()
        assert len(rig.outcomes) == before + 1
        await rig.clock.sleep(60)
        assert len(rig.outcomes) == before + 2

    spec = controller_for(SECRETS).source(trigger).source(Every(60))
    drive(spec.reconcile(make_nothing), [SECRET], story)


async def make_nothing(context: Ctx) -> None:
    return None


def test_a_reconcile_knows_for_how_long_it_may_write() -> None:
    seconds: list[float] = []

    async def reconcile(context: Ctx) -> None:
        seconds.append(context.remaining_seconds)

    drive(controller_for(SECRETS).reconcile(reconcile), [SECRET])
    drive(controller_for(SECRETS).on_every_replica().reconcile(reconcile), [SECRET])
    assert 3000 < seconds[0] < 3600
    assert seconds[-1] == float("inf")


def test_what_a_manager_caches_is_driven_with_it() -> None:
    """Indexes, selectors and transforms are said at the manager, and reconciles need them."""

    async def count(context: Ctx) -> None:
        alike = context.cache(CONFIGMAPS).by_index("letter", context.request.name[0])
        context.event(EventType.NORMAL, "Counted", ",".join(sorted(each["metadata"]["name"] for each in alike)))

    def shorten(thing: Any) -> Any:
        return {"metadata": thing["metadata"]}

    manager = Manager("example").add(controller_for(SECRETS).watches(CONFIGMAPS, lambda _: [], dict).reconcile(count))
    manager.cache(
        CONFIGMAPS,
        selector=Selector(labels="counted=yes"),
        indexes={"letter": lambda thing: [thing["metadata"]["name"][0]]},
        transform=shorten,
    )
    labels = {"counted": "yes"}
    objects = [(CONFIGMAPS, {"metadata": {"name": name, "labels": labels}}) for name in ("a1", "a2", "b1")]

    rig = drive(manager, [*objects, (CONFIGMAPS, {"metadata": {"name": "a3"}}), SECRET])

    assert rig.events == [("a", "Counted", "a1,a2")]


@pytest.mark.parametrize(
    ("manager", "seen"),
    [
        (lambda: Manager("example"), ["mine"]),
        (lambda: Manager(election=Election("example")), ["mine", "theirs"]),
        (lambda: Manager(), ["mine", "theirs"]),
        (lambda: Manager(watch_namespace="elsewhere"), []),
    ],
    ids=["a shard", "elected", "every replica", "another namespace"],
)
def test_a_manager_is_driven_as_it_runs(manager: Callable[[], Manager], seen: list[str]) -> None:
    async def note(context: Ctx) -> None:
        pass

    theirs = {parse_ring_name(RING).shard: "shard-2"}
    objects: list[tuple[Resource, dict[str, Any]]] = [
        (SECRETS, {"metadata": {"name": "mine"}}),
        (SECRETS, {"metadata": {"name": "theirs", "labels": theirs}}),
    ]

    rig = drive(manager().add(controller_for(SECRETS).reconcile(note)), objects)

    assert sorted(name for name, _ in rig.outcomes) == seen


def test_in_a_pod_it_takes_no_seat_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_UID", "uid-1")
    monkeypatch.setattr("shardsdk.lease.incarnation.take_seat", lambda *where: pytest.fail(f"took {where}"))
    drive(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(make_child), [SECRET])


def test_an_object_is_as_old_as_the_clock_says() -> None:
    ages: list[tuple[str, float]] = []

    async def look(context: Ctx) -> None:
        moments = {name: getattr(context.metadata, name) for name in ("creation_timestamp", "deletion_timestamp")}
        since = {name: datetime.fromisoformat(moment) for name, moment in moments.items() if moment}
        ages.extend((name, (context.clock.now() - moment).total_seconds()) for name, moment in since.items())

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(3600)
        rig.create(SECRETS, {"metadata": {"name": "a", "finalizers": ["example.com/a"]}})
        await rig.settle()
        await rig.clock.sleep(600)
        rig.delete(SECRETS, "a")
        await rig.settle()

    drive(controller_for(SECRETS).reconcile(look), [], story)
    assert [name for name, _ in ages] == ["creation_timestamp", "creation_timestamp", "deletion_timestamp"]
    assert [round(age, -1) for _, age in ages] == [0, 600, 0]


@pytest.mark.parametrize("phase", [45, 80, 126])
def test_a_wait_for_a_moment_of_the_wall_clock_ends(phase: int) -> None:
    due, calls = EPOCH + timedelta(seconds=60), list[float]()

    async def wait(context: Ctx) -> RequeueAfter | None:
        calls.append(context.clock.monotonic())
        left = due.timestamp() - context.clock.now().timestamp()
        return RequeueAfter(left) if left > 0 else None

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(1 + phase * 0.0371234567)  # at which rounding has it wake just before
        rig.patch(SECRETS, "a", {"metadata": {"labels": {"a": "b"}}})
        await rig.clock.sleep(120)

    drive(controller_for(SECRETS).reconcile(wait), [(SECRETS, {"metadata": {"name": "a"}})], story)
    assert len([moment for moment in calls if moment > 59]) <= 3


def test_who_keeps_time_from_passing_is_named() -> None:
    async def spin(context: Ctx) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="'secrets' reconciled default/a last"):
        drive(controller_for(SECRETS).reconcile(spin), [(SECRETS, {"metadata": {"name": "a"}})])


@pytest.mark.parametrize("given", [None, "a", ["a"], [("default", "a")], KeyError("nobody")])
def test_what_a_mapping_raises_comes_out(given: Any) -> None:
    def mapping(_: object) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    controller = controller_for(SECRETS).watches(CONFIGMAPS, mapping).reconcile(make_nothing)
    objects = [(CONFIGMAPS, {"metadata": {"name": "a"}})]
    with pytest.raises((KeyError, TypeError)) as raised:
        drive(controller, objects)
    assert [type(each) for each in drive(controller, objects, raises=False).failures] == [raised.type]


async def yield_once(context: Ctx) -> Any:
    yield None


def yield_plainly(context: Ctx) -> Any:
    yield None


async def give_a_dict(context: Ctx) -> Any:
    return {"requeue": True}


@pytest.mark.parametrize("function", [yield_once, yield_plainly, give_a_dict])
def test_what_is_no_outcome_fails_as_in_a_process(function: Any) -> None:
    with pytest.raises(TypeError, match=r"returned .*: return None, Done\(\), Requeue\(\) or RequeueAfter"):
        drive(controller_for(SECRETS).reconcile(function), [SECRET])


def test_a_loop_of_ones_own_is_refused_as_in_a_process() -> None:
    def reconcile(context: Ctx) -> None:
        asyncio.run(make_child(context))

    with pytest.raises(ConfigurationError, match=r"on another event loop than its own.* ctx\.run"):
        drive(controller_for(SECRETS).owns(CONFIGMAPS).reconcile(reconcile), [SECRET])
