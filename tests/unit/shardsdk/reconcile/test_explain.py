"""What an object waits for is said in a sentence, by the same rules that let its reconcile begin."""

from __future__ import annotations

from itertools import product

import pytest

from shardsdk.cache.objects import Request
from shardsdk.errors import TerminalError
from shardsdk.protocol.objects import PartialObject
from shardsdk.protocol.verdict import Verdict
from shardsdk.queueing.item import ItemState
from shardsdk.queueing.workers import Outcome, Requeue, RequeueAfter
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.controller import Controller
from shardsdk.reconcile.explain import GATE, MEANINGS, Admission, Facts, Wait, explain, held_by
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Lag, Rig

Ctx = Context[PartialObject]
A = Request("default", "a")


def said(reconciler: Controller[PartialObject], request: Request = A) -> tuple[Wait, str]:
    explanation = reconciler.explain(request)
    return explanation.wait, explanation.text


async def make_child(context: Ctx) -> None:
    if not context.children(CONFIGMAPS):
        metadata = {"name": f"{context.request.name}-seen", "ownerReferences": [context.controller_reference()]}
        await context.api.create(CONFIGMAPS, {"metadata": metadata}, "default")


def test_every_reason_has_a_meaning_and_words() -> None:
    assert set(MEANINGS) == set(Wait)
    facts = Facts("first", SECRETS.group_resource, A, 1.0, Admission(Verdict.RECONCILE), ItemState())
    assert explain(facts).text == "default/a: waits for its next event"


def test_a_reconcile_begins_only_when_all_is_right() -> None:
    """By every combination of what the gate asks."""
    verdicts = [*Verdict, None]
    for verdict, *rest in product(verdicts, *[(True, False)] * 5):
        held = held_by(Admission(verdict, *rest))
        assert (held is None) == (verdict is Verdict.RECONCILE and all(rest))
    assert len(GATE) == len(verdicts) + 4


@in_virtual_time
async def test_an_own_write_that_the_cache_does_not_show(clock: VirtualClock) -> None:
    rig = Rig(clock)
    async with rig.shard(make_child) as reconciler:
        await clock.sleep(1)
        Lag(rig, CONFIGMAPS, 1000)
        rig.secret("a")
        await clock.sleep(1)
        rig.server.patch(SECRETS, "a", "default", {"data": {"k": "v"}})
        await clock.sleep(2)
        version = rig.server.get(CONFIGMAPS, "a-seen", "default")["metadata"]["resourceVersion"]
        wait, text = said(reconciler)
        assert wait is Wait.WRITES
        assert text == (
            f"default/a: waits since 3 s for the cache to show its own write of ConfigMap default/a-seen (version"
            f" {version}); looked at again in 12 s at the latest"
        )
        assert reconciler.not_at_rest() == [A]


@in_virtual_time
async def test_asking_changes_nothing(clock: VirtualClock) -> None:
    """An expectation that has run out is still there after it was looked at, for the reconcile to give up."""
    rig = Rig(clock)
    async with rig.shard(make_child) as reconciler:
        await clock.sleep(1)
        Lag(rig, CONFIGMAPS, 1000)
        rig.secret("a")
        await clock.sleep(20)
        for _ in range(3):
            assert said(reconciler) == (Wait.NOTHING, "default/a: waits for its next event")
        assert rig.counter("expectations_expired_total") == 0
        rig.server.patch(SECRETS, "a", "default", {"data": {"k": "v"}})
        await clock.sleep(1)
        assert rig.counter("expectations_expired_total") == 1


@in_virtual_time
async def test_children_that_are_not_known_yet(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a", shard="shard-2")
    rig.child("a", "child", shard="shard-2")
    async with rig.shard() as reconciler:
        await clock.sleep(5)
        lag = Lag(rig, CONFIGMAPS, 20)
        rig.relabel(CONFIGMAPS, "child", shard="shard-1")
        rig.relabel(SECRETS, "a", shard="shard-1")
        await clock.sleep(3)
        version = rig.server.get(CONFIGMAPS, "child", "default")["metadata"]["resourceVersion"]
        wait, text = said(reconciler)
        assert wait is Wait.CHILDREN
        assert text.startswith(
            "default/a: waits since 3 s for the cache to show what a list has shown of its children:"
        )
        assert f"ConfigMap default/child (version {version}); listed again in 27 s at the latest" in text
        lag.seconds = 0
        rig.nudge(CONFIGMAPS)
        await clock.sleep(1)
        assert said(reconciler) == (Wait.NOTHING, "default/a: waits for its next event")


@in_virtual_time
async def test_a_list_that_does_not_come(clock: VirtualClock) -> None:
    rig = Rig(clock)
    async with rig.shard() as reconciler:
        await clock.sleep(5)
        rig.api.delay = lambda: 10.0
        rig.secret("a")
        await clock.sleep(4)
        assert said(reconciler) == (Wait.CHILDREN, "default/a: waits since 4 s for a list of its children")


@in_virtual_time
async def test_what_runs_what_waits_for_a_worker_and_what_is_drained(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def slow(context: Ctx) -> None:
        await clock.sleep(100)

    async with rig.shard(slow, concurrency=1) as reconciler:
        await clock.sleep(5)
        rig.secret("a")
        await clock.sleep(2)
        rig.secret("b")
        await clock.sleep(3)
        assert said(reconciler) == (Wait.RUNNING, "default/a: is being reconciled since 5 s")
        assert said(reconciler, Request("default", "b")) == (
            Wait.WORKER,
            "default/b: waits since 3 s for a free worker (fresh priority)",
        )
        rig.drain("a")
        await clock.sleep(1)
        assert said(reconciler)[1] == "default/a: is being reconciled since 6 s; its drain waits for the end of that"
        await clock.sleep(100)
        assert said(reconciler)[0] is Wait.CACHE


@in_virtual_time
async def test_a_drain_that_waits_for_another_controller(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def slow(context: Ctx) -> None:
        await clock.sleep(100)

    rig.secret("a")
    async with rig.shard(also=slow) as reconciler:
        await clock.sleep(5)
        rig.drain("a")
        await clock.sleep(4)
        assert said(reconciler) == (
            Wait.DRAIN,
            "default/a: is to be given away since 4 s; that waits for the end of a reconcile of it",
        )
        assert reconciler.not_at_rest() == [A]


@in_virtual_time
async def test_a_drain_that_waits_for_own_writes(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    async with rig.shard() as reconciler:
        await clock.sleep(5)
        rig.api.delay = lambda: 50.0
        rig.drain("a")
        await clock.sleep(4)
        assert said(reconciler)[1] == (
            "default/a: is to be given away since 4 s, once this shard's own writes are answered or dead"
        )


@in_virtual_time
async def test_a_backoff_says_how_often_and_why(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def fail(context: Ctx) -> None:
        raise RuntimeError("the bucket is full")

    rig.secret("a")
    async with rig.shard(fail, owns=False) as reconciler:
        await clock.sleep(4)  # after 0, 1 and 3 s; the next is at 7
        wait, text = said(reconciler)
        assert wait is Wait.BACKOFF
        assert text.startswith(
            "default/a: has failed 3 times in a row, the last time with RuntimeError: the bucket is full;"
        )
        assert reconciler.explain(A).failures == 3


@pytest.mark.parametrize(
    ("outcome", "wait", "words"),
    [
        (Requeue(), Wait.BACKOFF, "default/a: has asked 2 times in a row to come back (Requeue); tried again in 1.8 s"),
        (
            RequeueAfter(30),
            Wait.DELAY,
            "default/a: waits until the time that its last reconcile asked for; looked at again in 29 s",
        ),
        (None, Wait.NOTHING, "default/a: waits for its next event"),
    ],
)
def test_what_a_reconcile_asked_for(outcome: Outcome | None, wait: Wait, words: str) -> None:
    @in_virtual_time
    async def play(clock: VirtualClock) -> None:
        rig = Rig(clock)

        async def ask(context: Ctx) -> Outcome | None:
            return outcome

        rig.secret("a")
        async with rig.shard(ask, owns=False) as reconciler:
            await clock.sleep(1.2)
            assert said(reconciler) == (wait, words)

    play()


@in_virtual_time
async def test_an_error_for_good_is_remembered_until_the_object_is_reconciled_well(clock: VirtualClock) -> None:
    rig = Rig(clock)
    fails = True

    async def refuse(context: Ctx) -> None:
        if fails:
            raise TerminalError("no settings")

    rig.secret("a")
    async with rig.shard(refuse, owns=False) as reconciler:
        await clock.sleep(1)
        assert said(reconciler) == (
            Wait.GAVE_UP,
            "default/a: waits for its next event; its last reconcile ended with TerminalError: no settings",
        )
        assert reconciler.not_at_rest() == [A]
        fails = False
        rig.server.patch(SECRETS, "a", "default", {"data": {"k": "v"}})
        await clock.sleep(1)
        assert said(reconciler)[0] is Wait.NOTHING
        assert reconciler.not_at_rest() == []


@in_virtual_time
async def test_what_is_not_ours_and_what_nobody_may_touch(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    rig.secret("b", shard="shard-2")
    async with rig.shard(filtered=False) as reconciler:
        await clock.sleep(5)
        assert said(reconciler, Request("default", "b"))[0] is Wait.ANOTHERS
        assert said(reconciler, Request("default", "c"))[0] is Wait.CACHE
        rig.hold.seconds = 0
        assert said(reconciler)[0] is Wait.LEASE
        assert RING.drain not in rig.labels("a")


@in_virtual_time
async def test_what_is_known_goes_with_the_object(clock: VirtualClock) -> None:
    rig = Rig(clock)

    async def fail(context: Ctx) -> None:
        raise TerminalError("no")

    async with rig.shard(fail) as reconciler:
        await clock.sleep(1)
        for number in range(50):
            rig.secret(f"s{number}")
        await clock.sleep(2)
        assert reconciler._states.known() == 50
        for number in range(50):
            rig.server.delete(SECRETS, f"s{number}", "default")
        await clock.sleep(2)
        assert reconciler._states.known() == 0
        assert reconciler.not_at_rest() == []
