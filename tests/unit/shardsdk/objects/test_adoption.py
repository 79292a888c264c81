"""Adoption and release by selector, and what sharding makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shardsdk.cache.objects import metadata_of
from shardsdk.errors import ConfigurationError, Conflict
from shardsdk.kube.api import Selection
from shardsdk.kube.selectors import Selector
from shardsdk.objects.adoption import Claimed, adopt, claim
from shardsdk.protocol.objects import PartialObject
from shardsdk.reconcile.context import Context
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Rig

WEB = Selector(labels="app=web")


def orphan(rig: Rig, name: str, *, app: str = "web", shard: str | None = None, **more: Any) -> dict[str, Any]:
    labels = {"app": app} | ({} if shard is None else {RING.shard: shard})
    return rig.server.create(CONFIGMAPS, {"metadata": {"name": name, "namespace": "default", "labels": labels, **more}})


def controller(rig: Rig, name: str) -> str | None:
    references = rig.server.get(CONFIGMAPS, name, "default")["metadata"].get("ownerReferences") or []
    return next((each["name"] for each in references if each.get("controller")), None)


def shard_of(rig: Rig, name: str) -> str | None:
    return rig.labels(name, CONFIGMAPS).get(RING.shard)


async def claim_once(rig: Rig, *, seconds: float = 1.0) -> list[Claimed | Exception]:
    """Run the shard for a while; what each claim gave."""
    outcomes: list[Claimed | Exception] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        try:
            outcomes.append(await claim(context, CONFIGMAPS, WEB))
        except Exception as error:
            outcomes.append(error)
            raise

    async with rig.shard(reconcile):
        await asyncio.sleep(seconds)
    return outcomes


@in_virtual_time
async def test_orphans_that_are_selected_are_adopted_with_the_shards_label_in_the_same_patch(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    rig.secret("a")
    orphan(rig, "one")
    orphan(rig, "two", shard="shard-1")
    orphan(rig, "other", app="db")

    first = (await claim_once(rig))[0]

    assert isinstance(first, Claimed)
    assert [child.metadata.name for child in first.adopted] == ["one", "two"]
    assert (controller(rig, "one"), controller(rig, "two"), controller(rig, "other")) == ("a", "a", None)
    assert (shard_of(rig, "one"), shard_of(rig, "other")) == ("shard-1", None)
    assert rig.api.writes == [("patch", "configmaps", "one"), ("patch", "configmaps", "two")]


@in_virtual_time
async def test_a_child_that_is_selected_again_while_the_list_comes_is_not_released(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    outcomes: list[str] = []

    async def relabel(app: str) -> None:
        await rig.api.patch(CONFIGMAPS, "one", "default", {"metadata": {"labels": {"app": app}}})

    async def reconcile(context: Context[PartialObject]) -> None:
        if not context.children(CONFIGMAPS):
            metadata = {"name": "one", "labels": {"app": "db"}, "ownerReferences": [context.controller_reference()]}
            await context.api.create(CONFIGMAPS, {"metadata": metadata}, "default")
            return
        if not outcomes:
            listed = context.api.stream

            async def slowly(*given: Any, **named: Any) -> AsyncIterator[Any]:
                async for page in listed(*given, **named):
                    yield page
                await relabel("web")
                await clock.sleep(1)

            context.api.stream = slowly  # type: ignore[method-assign]
        try:
            claimed = await claim(context, CONFIGMAPS, WEB)
        except Conflict:
            outcomes.append("conflict")
            raise
        outcomes.append(f"{len(claimed.children)} kept, {len(claimed.released)} released")

    async with rig.shard(reconcile):
        await clock.sleep(60)
    assert controller(rig, "one") == "a"
    assert outcomes[0] == "conflict"
    assert set(outcomes[1:]) == {"1 kept, 0 released"}


@in_virtual_time
async def test_an_orphan_with_another_shards_label_gets_the_adopters_in_the_same_patch(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    orphan(rig, "one", shard="shard-2")
    await claim_once(rig)
    assert (controller(rig, "one"), shard_of(rig, "one")) == ("a", "shard-1")
    assert rig.api.writes == [("patch", "configmaps", "one")]


@pytest.mark.parametrize("shard", [None, "shard-1", "shard-2"])
@pytest.mark.parametrize("answered", [True, False])
@in_virtual_time
async def test_what_was_adopted_is_never_made_a_second_time(
    clock: VirtualClock, shard: str | None, answered: bool
) -> None:
    """Whatever label the orphan carries, and though nobody moves it; also if the answer is lost."""
    rig = Rig(clock)
    rig.secret("a")
    made = metadata_of(orphan(rig, "one", shard=shard))
    adopted: list[PartialObject | None] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        if not adopted:
            adopted.append(None)
            rig.api.fault = Fault.NONE if answered else Fault.UNANSWERED
            try:
                body = {"ownerReferences": [context.controller_reference()], "resourceVersion": made.resource_version}
                await context.api.patch(CONFIGMAPS, "one", "default", {"metadata": body})
            finally:
                rig.api.fault = Fault.NONE
        elif not context.children(CONFIGMAPS):
            await context.api.create(
                CONFIGMAPS,
                {
                    "metadata": {
                        "generateName": "again-",
                        "namespace": "default",
                        "ownerReferences": [context.controller_reference()],
                    }
                },
                "default",
            )

    async with rig.shard(reconcile):
        await clock.sleep(60)
        rig.server.patch(SECRETS, "a", "default", {"data": {"k": "v"}})
        await clock.sleep(300)
    assert [each["metadata"]["name"] for each in rig.server.select(CONFIGMAPS)] == ["one"]
    assert len(rig.reconciled) > 1
    assert rig.counter("expectations_expired_total") == 0


@in_virtual_time
async def test_an_orphan_that_its_shards_owner_has_claimed_meanwhile_is_not_taken(clock: VirtualClock) -> None:
    """Of an adoption and whatever else is written to the child one succeeds: the patch names the version."""
    rig = Rig(clock)
    rig.secret("a")
    rig.secret("b", shard="shard-2")
    orphan(rig, "one", shard="shard-2")
    list_children, uid = rig.api.read_stream, rig.server.get(SECRETS, "b", "default")["metadata"]["uid"]
    theirs = {"apiVersion": "v1", "kind": "Secret", "name": "b", "uid": uid, "controller": True}

    async def list_and_claim(selection: Selection[Any], batch: int) -> Any:
        async for page in list_children(selection, batch):
            yield page
        if selection.selector == WEB:
            rig.server.patch(CONFIGMAPS, "one", "default", {"metadata": {"ownerReferences": [theirs]}})

    rig.api.read_stream = list_and_claim  # type: ignore[method-assign]
    outcomes = await claim_once(rig, seconds=30)
    assert isinstance(outcomes[0], Conflict)
    assert (controller(rig, "one"), shard_of(rig, "one")) == ("b", "shard-2")


@in_virtual_time
async def test_other_owners_and_their_fields_stay(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    other = {"apiVersion": "v1", "kind": "Secret", "name": "b", "uid": "uid-b", "blockOwnerDeletion": True}
    orphan(rig, "one", ownerReferences=[other])
    await claim_once(rig)
    references = rig.server.get(CONFIGMAPS, "one", "default")["metadata"]["ownerReferences"]
    assert references[0] == other
    assert references[1]["controller"] is True


@in_virtual_time
async def test_a_child_that_is_no_longer_selected_is_released_with_its_shards_label(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    rig.child("a", "one")
    outcomes = await claim_once(rig)
    assert (controller(rig, "one"), shard_of(rig, "one")) == (None, None)
    assert isinstance(outcomes[0], Claimed)
    assert [child.metadata.name for child in outcomes[0].released] == ["one"]


@in_virtual_time
async def test_children_of_others_are_left_alone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    rig.secret("b", shard="shard-2")
    rig.child("b", "one", shard="shard-2")
    rig.server.patch(CONFIGMAPS, "one", "default", {"metadata": {"labels": {"app": "web"}}})
    await claim_once(rig)
    assert controller(rig, "one") == "b"


@in_virtual_time
async def test_orphans_that_are_being_deleted_are_not_adopted(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    orphan(rig, "one", finalizers=["example.com/held"])
    rig.server.delete(CONFIGMAPS, "one", "default")
    await claim_once(rig)
    assert controller(rig, "one") is None


@in_virtual_time
async def test_an_owner_that_is_being_deleted_neither_adopts_nor_releases(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a", finalizers=["example.com/held"])
    rig.child("a", "mine")
    orphan(rig, "one")
    rig.server.delete(SECRETS, "a", "default")
    await claim_once(rig)
    assert (controller(rig, "mine"), controller(rig, "one")) == ("a", None)


@in_virtual_time
async def test_an_owner_that_cannot_be_given_away_yet_adopts_though_it_is_drained(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.hold.owed_until = 30.0
    rig.secret("a")
    orphan(rig, "one")

    async def reconcile(context: Context[PartialObject]) -> None:
        if clock.monotonic() > 5:
            await claim(context, CONFIGMAPS, WEB)

    async with rig.shard(reconcile):
        await clock.sleep(5)
        rig.drain("a")
        await clock.sleep(1)
    assert (controller(rig, "one"), shard_of(rig, "one")) == ("a", "shard-1")


@in_virtual_time
@pytest.mark.parametrize("change", ["made anew", "drained", "gone"])
async def test_the_owner_is_read_again_before_it_adopts(clock: VirtualClock, change: str) -> None:
    """The cache still shows it as it was: only the API server knows."""
    rig = Rig(clock)
    rig.secret("a")
    orphan(rig, "one")
    rig.api.lag = lambda: 5.0
    list_children = rig.api.read_stream
    outcomes: list[Exception] = []

    def list_and_change(selection: Selection[Any], batch: int) -> Any:
        if selection.selector == WEB and not outcomes:
            if change == "drained":
                rig.drain("a")
            else:
                rig.server.delete(SECRETS, "a", "default")
            if change == "made anew":
                rig.secret("a")
        return list_children(selection, batch)

    rig.api.read_stream = list_and_change  # type: ignore[method-assign]

    async def reconcile(context: Context[PartialObject]) -> None:
        try:
            await claim(context, CONFIGMAPS, WEB)
        except Conflict as error:
            outcomes.append(error)
            raise

    async with rig.shard(reconcile):
        while not outcomes:
            await asyncio.sleep(0.001)
        assert controller(rig, "one") is None
        assert shard_of(rig, "one") is None


@in_virtual_time
async def test_of_two_owners_one_gets_the_orphan(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    rig.secret("b")
    orphan(rig, "one")
    outcomes = await claim_once(rig, seconds=30)
    adopted = [child for each in outcomes if isinstance(each, Claimed) for child in each.adopted]
    assert len(adopted) == 1
    assert controller(rig, "one") in ("a", "b")


@in_virtual_time
async def test_one_orphan_can_be_adopted_by_itself(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    made = metadata_of(orphan(rig, "one"))
    outcomes: list[PartialObject | None] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        if not outcomes:
            outcomes.append(await adopt(context, CONFIGMAPS, made))
            outcomes.append(await adopt(context, CONFIGMAPS, metadata_of(rig.server.get(CONFIGMAPS, "one", "default"))))

    async with rig.shard(reconcile):
        await asyncio.sleep(1)
    assert outcomes[0] is not None
    assert outcomes[1] is None
    assert (controller(rig, "one"), shard_of(rig, "one")) == ("a", "shard-1")


@in_virtual_time
async def test_a_resource_that_the_controller_does_not_look_at_is_refused(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("a")
    refused: list[str] = []

    async def reconcile(context: Context[PartialObject]) -> None:
        with pytest.raises(ConfigurationError) as caught:
            await claim(context, CONFIGMAPS, WEB)
        refused.append(str(caught.value))

    async with rig.shard(reconcile, owns=False):
        await asyncio.sleep(1)
    assert refused == ["controller 'first' adopts configmaps that it does not look at: declare .owns(…) for them"]
