"""An object of another namespace that names an owner by its uid is no child of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardsdk.kube.selectors import Selector
from shardsdk.objects.adoption import claim
from shardsdk.protocol.objects import MAX_REFERENCE, PartialObject, Resource
from shardsdk.reconcile.context import Context
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS, Rig
from tests.unit.shardsdk.reconcile.test_unfit import BAD, TYPED_CHILDREN


def pretend(rig: Rig, owner: str, *, shard: str | None, kind: str = "Secret", **more: Any) -> None:
    """A config map called as its owner, in a namespace of somebody else."""
    child = rig.child(owner, "mine")
    rig.server.delete(CONFIGMAPS, "mine", "default")
    [reference] = child["metadata"]["ownerReferences"]
    metadata = {
        "name": owner, "namespace": "another", "labels": {} if shard is None else {RING.shard: shard},
        "ownerReferences": [{**reference, "kind": kind}],
    }  # fmt: skip
    rig.server.create(CONFIGMAPS, {"metadata": metadata, **more})


@in_virtual_time
async def test_it_is_not_among_the_owners_children(clock: VirtualClock) -> None:
    rig, found = Rig(clock), list[Any]()
    rig.secret("owner", shard="shard-2")
    pretend(rig, "owner", shard="shard-1")

    async def look(context: Context[PartialObject]) -> None:
        found.extend([*context.children(CONFIGMAPS), context.child(CONFIGMAPS)])

    async with rig.shard(look):
        await clock.sleep(5)
        rig.relabel(SECRETS, "owner", shard="shard-1")
        await clock.sleep(5)
    assert found == [None]


@in_virtual_time
async def test_the_owner_does_not_wait_for_its_label(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    pretend(rig, "owner", shard=None, kind="Something")
    async with rig.shard(listed=True):
        await clock.sleep(60)
    assert rig.reconciled == ["owner"]


@in_virtual_time
async def test_it_may_be_unreadable(clock: VirtualClock) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    pretend(rig, "owner", shard="shard-1", **BAD)
    async with rig.shard(models=TYPED_CHILDREN):
        await clock.sleep(60)
    assert rig.reconciled == ["owner"]


@in_virtual_time
async def test_it_is_not_among_those_that_the_owner_claims(clock: VirtualClock) -> None:
    """Made in the owner's namespace, for an owner of another kind."""
    rig, claimed = Rig(clock), list[str]()
    rig.secret("owner")
    child = rig.child("owner", "mine")
    [reference] = child["metadata"]["ownerReferences"]
    metadata = {"name": "foreign", "namespace": "default", "ownerReferences": [{**reference, "kind": "Something"}]}
    rig.server.create(CONFIGMAPS, {"metadata": metadata})

    async def look(context: Context[PartialObject]) -> None:
        found = await claim(context, CONFIGMAPS, Selector())
        claimed.extend(each.metadata.name for each in found.children)

    async with rig.shard(look):
        await clock.sleep(5)
    assert claimed == ["mine"]


@in_virtual_time
async def test_an_owner_without_a_namespace_has_its_children_in_any_though_its_program_says_it_has_one(
    clock: VirtualClock,
) -> None:
    """By what is declared alone it would have none, and make them at each reconcile."""
    declared = Resource("example.com", "v1", "widgets", "Widget")
    rig, found = Rig(clock), list[list[str]]()
    labels = {"labels": {RING.shard: "shard-1"}}
    owner = rig.server.create(replace(declared, namespaced=False), {"metadata": {"name": "mine", **labels}})
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "mine", "uid": owner["metadata"]["uid"]}
    references = {"ownerReferences": [{**reference, "controller": True}]}
    child = {"metadata": {"name": "child", "namespace": "default", **references}}
    rig.server.create(CONFIGMAPS, child)

    async def look(context: Context[PartialObject]) -> None:
        found.append([each.metadata.name for each in context.children(CONFIGMAPS)])

    async with rig.shard(look, of=declared, listed=True):
        await clock.sleep(5)
        assert found == [], "one of them has not followed it yet"
        rig.relabel(CONFIGMAPS, "child", shard="shard-1")
        await clock.sleep(5)
    assert found == [["child"]]


@in_virtual_time
async def test_an_owner_without_a_namespace_is_reconciled_when_its_children_change_though_its_program_says_it_has_one(
    clock: VirtualClock,
) -> None:
    declared = Resource("example.com", "v1", "widgets", "Widget")
    rig, found = Rig(clock), list[int]()
    labels = {"labels": {RING.shard: "shard-1"}}
    owner = rig.server.create(replace(declared, namespaced=False), {"metadata": {"name": "mine", **labels}})
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "mine", "uid": owner["metadata"]["uid"]}
    references = {"ownerReferences": [{**reference, "controller": True}]}
    rig.server.create(CONFIGMAPS, {"metadata": {"name": "child", "namespace": "default", **references, **labels}})

    async def look(context: Context[PartialObject]) -> None:
        found.append(len(context.children(CONFIGMAPS)))

    async with rig.shard(look, of=declared):
        await clock.sleep(5)
        rig.server.delete(CONFIGMAPS, "child", "default")
        await clock.sleep(5)
    assert found == [1, 0]


@in_virtual_time
async def test_an_owner_waits_for_no_label_of_what_says_more_of_it_than_there_is_of_any(clock: VirtualClock) -> None:
    """The sharder takes it for nobody's child, so it never gets one."""
    rig = Rig(clock)
    rig.secret("owner")
    child = rig.child("owner", "mine")
    rig.server.delete(CONFIGMAPS, "mine", "default")
    [reference] = child["metadata"]["ownerReferences"]
    padded = {**reference, "apiVersion": "v" * MAX_REFERENCE}
    metadata = {"name": "mine", "namespace": "default", "labels": {}, "ownerReferences": [padded]}
    rig.server.create(CONFIGMAPS, {"metadata": metadata})
    async with rig.shard(listed=True):
        await clock.sleep(60)
    assert rig.reconciled == ["owner"]
