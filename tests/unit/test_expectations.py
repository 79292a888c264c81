"""After its own write an object is not reconciled before the cache has seen that write."""

from __future__ import annotations

from shardsdk.protocol.objects import PartialObject
from shardsdk.runtime.context import Context
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS, Rig

Ctx = Context[PartialObject]


async def make_child_if_missing(context: Ctx) -> None:
    if not context.children(CONFIGMAPS):
        reference = context.controller_reference()
        metadata = {"generateName": "child-", "namespace": "default", "ownerReferences": [reference]}
        await context.api.create(CONFIGMAPS, {"metadata": metadata}, "default")


@in_virtual_time
async def test_a_child_is_not_made_twice_although_its_news_are_late(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.api.lag = lambda: 3.0
    async with rig.shard(make_child_if_missing):
        await clock.sleep(5)
        for number in range(10):  # each change would have the owner reconciled
            rig.server.patch(SECRETS, "owner", "default", {"data": {"k": str(number)}})
            await clock.sleep(0.5)
        await clock.sleep(60)
    assert len(rig.server.select(CONFIGMAPS)) == 1


@in_virtual_time
async def test_the_owner_is_reconciled_once_the_cache_has_caught_up(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    async with rig.shard(make_child_if_missing):
        await clock.sleep(5)
        assert rig.reconciled == ["owner", "owner"]  # once for itself, once for its new child


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
        await clock.sleep(10)
        assert rig.reconciled == ["owner", "owner"]
    assert rig.counter("expectations_expired_total") == 1


@in_virtual_time
async def test_a_deletion_from_before_proves_nothing(clock: VirtualClock) -> None:
    """The child of that name is deleted and made again: the news of its deletion are not those of its return."""
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "child")

    async def recreate(context: Ctx) -> None:
        if not context.children(CONFIGMAPS):
            reference = context.controller_reference()
            metadata = {"name": "child", "namespace": "default", "ownerReferences": [reference]}
            await context.api.create(CONFIGMAPS, {"metadata": metadata}, "default")

    async with rig.shard(recreate):
        await clock.sleep(5)
        rig.api.lag = lambda: 1.0
        rig.server.delete(CONFIGMAPS, "child", "default")
        for number in range(10):
            rig.server.patch(SECRETS, "owner", "default", {"data": {"k": str(number)}})
            await clock.sleep(0.3)
        await clock.sleep(30)
    creates = [write for write in rig.api.writes if write[0] == "create"]
    assert len(creates) == 1


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
