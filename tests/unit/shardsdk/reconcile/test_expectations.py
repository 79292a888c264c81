"""After its own write an object is not reconciled before the cache has seen that write."""

from __future__ import annotations

import asyncio
from random import Random

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request
from shardsdk.errors import NotFound
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.expectations import EXPECTATION_SECONDS, Expectations
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS, Lag, Rig

Ctx = Context[PartialObject]


async def make_child_if_missing(context: Ctx) -> None:
    if not context.children(CONFIGMAPS):
        reference = context.controller_reference()
        metadata = {"generateName": "child-", "namespace": "default", "ownerReferences": [reference]}
        await context.api.create(CONFIGMAPS, {"metadata": metadata}, "default")


async def change_the_owner(rig: Rig, clock: VirtualClock) -> None:
    """Each change would have it reconciled; then time for everything to be seen."""
    await clock.sleep(5)
    for number in range(10):
        rig.server.patch(SECRETS, "owner", "default", {"data": {"k": str(number)}})
        await clock.sleep(0.5)
    await clock.sleep(60)


@in_virtual_time
async def test_a_child_is_not_made_twice_although_its_news_are_late(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.api.lag = lambda: 3.0
    async with rig.shard(make_child_if_missing):
        await change_the_owner(rig, clock)
    assert len(rig.server.select(CONFIGMAPS)) == 1


@in_virtual_time
async def test_the_owner_is_reconciled_once_the_cache_has_caught_up(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    async with rig.shard(make_child_if_missing):
        await clock.sleep(5)
        assert rig.reconciled == ["owner", "owner"]  # once for itself, once for its new child


@in_virtual_time
async def test_what_was_put_off_is_not_reconciled_once_more_when_the_time_for_it_is_over(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    async with rig.shard(make_child_if_missing):
        await clock.sleep(5)
        rig.api.lag = lambda: 1.0
        rig.server.delete(CONFIGMAPS, rig.server.select(CONFIGMAPS)[0]["metadata"]["name"], "default")
        await clock.sleep(0.5)  # shown when the new child is made, and before that is shown
        rig.server.patch(SECRETS, "owner", "default", {"data": {"k": "v"}})
        await clock.sleep(5)
        settled = list(rig.reconciled)
        await clock.sleep(60)
        assert rig.reconciled == settled
    assert rig.counter("expectations_expired_total") == 0


@in_virtual_time
async def test_a_write_that_is_never_seen_is_given_up(clock: VirtualClock) -> None:
    """The child loses its label at once, so that the cache never shows it."""
    rig = Rig(clock)
    rig.secret("owner")
    made = 0

    async def make_once(context: Ctx) -> None:
        nonlocal made
        if not made:
            made += 1
            await make_child_if_missing(context)

    def strip(verb: str, resource: object, old: object, new: dict[str, object]) -> dict[str, object]:
        metadata = new["metadata"]
        assert isinstance(metadata, dict)
        if resource == CONFIGMAPS:
            metadata.pop("labels", None)
        return new

    rig.server.admit = strip
    async with rig.shard(make_once):
        await clock.sleep(5)
        rig.server.patch(SECRETS, "owner", "default", {"data": {"k": "v"}})
        await clock.sleep(5)
        assert rig.reconciled == ["owner"]
        lists = rig.counter("child_lists_total")
        await clock.sleep(10)
        assert rig.reconciled == ["owner", "owner"]
        assert rig.counter("child_lists_total") == (lists or 0) + 1, "through the barrier: only a list can tell"
    assert rig.counter("expectations_expired_total") == 1


@in_virtual_time
async def test_news_that_come_before_the_answer_count(clock: VirtualClock) -> None:
    """The child is made and deleted again, both seen, before its creation is answered."""
    rig = Rig(clock)
    rig.secret("owner")

    async def slow_answer(context: Ctx) -> None:
        rig.api.delay = lambda: 1.0
        await make_child_if_missing(context)
        rig.api.delay = lambda: 0.001

    async with rig.shard(slow_answer):
        while not rig.server.select(CONFIGMAPS):
            await clock.sleep(0.1)
        rig.server.delete(CONFIGMAPS, rig.server.select(CONFIGMAPS)[0]["metadata"]["name"], "default")
        await clock.sleep(5)
        assert len(rig.server.select(CONFIGMAPS)) == 1
    assert rig.counter("expectations_expired_total") == 0


@in_virtual_time
async def test_the_deletion_of_an_earlier_object_of_that_name_proves_nothing(clock: VirtualClock) -> None:
    woken: list[Request] = []
    expectations = Expectations(
        clock, wake=woken.append, wake_at=lambda owner, moment: None, cancel=lambda owner, moment: None
    )
    rig = Rig(clock)
    cache: Cache[PartialObject] = Cache(rig.api, CONFIGMAPS, clock=clock, rng=Random(1))
    owner, child = Request("default", "owner"), Request("default", "child")

    def delta(kind: EventKind, version: str) -> Delta[PartialObject]:
        metadata = ObjectMeta(name="child", namespace="default", resource_version=version)
        return Delta(kind, PartialObject(metadata), None, initial=False)

    expectations.expect(owner, cache, child, "10")
    assert expectations.pending(owner)
    expectations.postpone(owner)
    expectations.observe(cache, delta(EventKind.DELETED, "9"))
    assert expectations.pending(owner)
    expectations.observe(cache, delta(EventKind.DELETED, "11"))
    assert not expectations.pending(owner)
    assert woken == [owner]


@in_virtual_time
async def test_of_several_writes_that_are_not_shown_the_first_to_run_out_wakes_the_owner(clock: VirtualClock) -> None:
    alarms: list[float] = []
    expectations = Expectations(
        clock, wake=lambda owner: None, wake_at=lambda owner, at: alarms.append(at), cancel=lambda owner, at: None
    )
    cache: Cache[PartialObject] = Cache(Rig(clock).api, CONFIGMAPS, clock=clock, rng=Random(1))
    owner = Request("default", "owner")
    began = clock.monotonic()
    for name in ("first", "second"):
        expectations.expect(owner, cache, Request("default", name), "10")
        await clock.sleep(5)
    expectations.postpone(owner)
    assert alarms == [began + EXPECTATION_SECONDS]
    await clock.sleep(5)
    assert expectations.expire(owner)
    expectations.postpone(owner)
    assert alarms[1:] == [began + 5 + EXPECTATION_SECONDS]


@in_virtual_time
async def test_who_left_waits_for_nothing_that_was_written_before(clock: VirtualClock) -> None:
    """Else it would be put off as it comes back, for a child that may be another shard's by now."""
    woken: list[Request] = []
    expectations = Expectations(
        clock, wake=woken.append, wake_at=lambda owner, moment: None, cancel=lambda owner, moment: None
    )
    cache: Cache[PartialObject] = Cache(Rig(clock).api, CONFIGMAPS, clock=clock, rng=Random(1))
    owner = Request("default", "owner")
    for name in ("first", "second"):
        expectations.expect(owner, cache, Request("default", name), "10")
    expectations.postpone(owner)
    expectations.forget(owner)
    assert not expectations.pending(owner)
    shown = PartialObject(ObjectMeta(name="first", namespace="default", resource_version="11"))
    expectations.observe(cache, Delta(EventKind.ADDED, shown, None, initial=False))
    assert not woken


@in_virtual_time
async def test_a_deletion_is_a_write_that_the_cache_must_show(clock: VirtualClock) -> None:
    """Else who counts its children deletes more of them each time it is called meanwhile."""
    rig = Rig(clock)
    rig.secret("owner")
    for name in ("a", "b", "c"):
        rig.child("owner", name)
    calls = 0

    async def keep_one(context: Ctx) -> None:
        nonlocal calls
        calls += 1
        children = context.children(CONFIGMAPS)
        for child in (children if calls % 2 else children[::-1])[1:]:
            await context.api.delete(CONFIGMAPS, child.metadata.name, "default")

    rig.api.lag = lambda: 3.0
    async with rig.shard(keep_one):
        await change_the_owner(rig, clock)
    assert len(rig.server.select(CONFIGMAPS)) == 1
    assert calls > 1


@in_virtual_time
async def test_a_child_that_was_gone_already_is_expected_to_be_seen_gone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "a")
    missing, late = 0, False

    async def delete_all(context: Ctx) -> None:
        nonlocal missing
        for child in context.children(CONFIGMAPS) if late else ():
            try:
                await context.api.delete(CONFIGMAPS, child.metadata.name, "default")
            except NotFound:
                missing += 1

    async with rig.shard(delete_all):
        await clock.sleep(5)
        Lag(rig, CONFIGMAPS, 3)
        late = True
        rig.server.delete(CONFIGMAPS, "a", "default")
        for number in range(10):
            rig.server.patch(SECRETS, "owner", "default", {"data": {"k": str(number)}})
            await clock.sleep(0.2)
        await clock.sleep(2)
        rig.nudge(CONFIGMAPS)
        await clock.sleep(60)
    assert missing == 1


@in_virtual_time
async def test_a_child_whose_finalizer_keeps_it_is_seen_gone_once_it_is_marked_for_deletion(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "child")
    rig.server.patch(CONFIGMAPS, "child", "default", {"metadata": {"finalizers": ["example.com/held"]}})

    async def delete_all(context: Ctx) -> None:
        for child in context.children(CONFIGMAPS):
            await context.api.delete(CONFIGMAPS, child.metadata.name, "default")

    async with rig.shard(delete_all):
        await clock.sleep(5)
        before = len(rig.reconciled)
        rig.server.patch(SECRETS, "owner", "default", {"data": {"k": "v"}})
        await clock.sleep(1)
        assert len(rig.reconciled) > before
    assert rig.server.get(CONFIGMAPS, "child", "default")["metadata"]["deletionTimestamp"]


@in_virtual_time
async def test_a_deleted_child_is_seen_gone_as_soon_as_another_has_its_name(clock: VirtualClock) -> None:
    """A list after a lost watch shows the other one, and no deletion."""
    expectations = Expectations(
        clock, wake=lambda owner: None, wake_at=lambda owner, moment: None, cancel=lambda owner, moment: None
    )
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "child")
    cache: Cache[PartialObject] = Cache(rig.api, CONFIGMAPS, clock=clock, rng=Random(1))
    owner, child = Request("default", "owner"), Request("default", "child")

    def expected_after_news_of(uid: str) -> bool:
        metadata = ObjectMeta(name="child", namespace="default", uid=uid, resource_version="100")
        expectations.observe(cache, Delta(EventKind.MODIFIED, PartialObject(metadata), None, initial=False))
        return expectations.pending(owner)

    running = asyncio.create_task(cache.run())
    await clock.sleep(1)
    found = cache.peek(child)
    assert found is not None
    expectations.expect_end(owner, cache, child, found.metadata.uid)
    assert expected_after_news_of(found.metadata.uid)
    assert not expected_after_news_of("another")
    running.cancel()


@in_virtual_time
async def test_who_did_not_come_too_early_is_not_woken(clock: VirtualClock) -> None:
    """Else a reconcile that writes and then fails would come back without its backoff."""
    rig = Rig(clock)
    rig.secret("owner")

    async def write_and_fail(context: Ctx) -> None:
        await make_child_if_missing(context)
        raise RuntimeError("boom")

    async with rig.shard(write_and_fail, child_predicate=lambda delta: False):
        await clock.sleep(20)
    assert len(rig.reconciled) == 5  # after 1, 2, 4 and 8 seconds


@in_virtual_time
async def test_a_reconcile_sees_its_own_write_on_the_main_object(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.api.lag = lambda: 3.0
    seen: list[bool] = []

    async def annotate_once(context: Ctx) -> None:
        marked = bool(context.metadata.annotations)
        seen.append(marked)
        if not marked:
            patch = {"metadata": {"annotations": {"example.com/seen": "yes"}}}
            await context.api.patch(SECRETS, "owner", "default", patch)

    async with rig.shard(annotate_once) as reconciler:
        await clock.sleep(0.1)
        for _ in range(20):
            for request in rig.main.requests():
                reconciler.queue.add(request)
            await clock.sleep(0.1)
        await clock.sleep(30)
    assert seen[0] is False
    assert all(seen[1:])
