"""`Context.apply`: what is filled in, what is refused, and when nothing is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from shardsdk import (
    AlreadyOwned,
    ConfigurationError,
    Context,
    ObjectMeta,
    Operator,
    Resource,
    server_side_apply,
)
from shardsdk.kinds import CustomResource, Kind
from shardsdk.testing import Change, Rig, drive
from tests.unit.shardsdk.operator.websites import (
    ConfigMap,
    Deployment,
    Secret,
    Website,
    Workers,
    site,
    websites,
)


def operator_with(function: Any, *, owns: Any = (ConfigMap, Deployment), sharded: bool = False) -> Operator:
    operator = Operator("websites", sharded=sharded)
    operator.reconcile(Website, owns=owns)(function)
    return operator


def applies(rig: Rig) -> list[str]:
    return [each.name for each in rig.sent if each.kind.name == "APPLY"]


def test_name_namespace_owner_and_field_owner_are_filled_in() -> None:
    rig = drive(websites(), [site()])

    page = rig.get(ConfigMap, "home").metadata
    owner = rig.get(Website, "home").metadata
    assert page.namespace == owner.namespace == "default"
    assert page.controller is not None
    assert (page.controller.kind, page.controller.name, page.controller.uid) == ("Website", "home", owner.uid)
    assert [(each.field_manager, each.force) for each in rig.sent[:2]] == [("websites", True)] * 2


def test_what_is_applied_comes_back_typed_and_as_the_server_has_it() -> None:
    seen: list[ConfigMap] = []

    async def function(ctx: Context[Website]) -> None:
        seen.append(await ctx.apply(ConfigMap("other", data={"a": "b"})))

    rig = drive(operator_with(function), [site()])
    assert seen[0].metadata.resource_version == rig.get(ConfigMap, "other").metadata.resource_version
    assert type(seen[-1]) is ConfigMap


def test_the_same_again_is_not_sent() -> None:
    async def story(rig: Rig) -> None:
        for number in range(3):
            rig.patch(Website, "home", {"metadata": {"annotations": {"number": str(number)}}})
            await rig.settle()

    rig = drive(websites(), [site()], story)
    assert len(rig.outcomes) >= 4
    assert applies(rig) == ["home", "home"]


def test_a_change_of_status_alone_is_no_reason_to_apply() -> None:
    async def story(rig: Rig) -> None:
        rig.server.patch(Deployment.resource, "home", "default", {"status": {"readyReplicas": 1}}, subresource="status")
        await rig.settle()

    rig = drive(websites(), [site()], story)
    assert rig.get(Website, "home").status.ready_replicas == 1
    assert applies(rig) == ["home", "home"]


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"index.html": "mine"}},
        {"data": None},
        {"metadata": {"ownerReferences": None}},
        {"metadata": {"labels": {"by": "somebody"}}},
    ],
)
def test_what_somebody_else_changed_is_applied_again(change: dict[str, Any]) -> None:
    async def story(rig: Rig) -> None:
        rig.patch(ConfigMap, "home", change)
        await rig.settle()

    rig = drive(websites(), [site()], story)
    page = rig.get(ConfigMap, "home")
    assert page.data == {"index.html": "<h1>hi</h1>"}
    assert page.metadata.controller is not None


@pytest.mark.parametrize("sharded", [False, True])
def test_a_child_that_was_deleted_is_made_again(sharded: bool) -> None:
    async def story(rig: Rig) -> None:
        rig.delete(ConfigMap, "home")
        await rig.settle()

    rig = drive(websites(sharded=sharded), [site()], story)
    assert rig.get(ConfigMap, "home").data == {"index.html": "<h1>hi</h1>"}


def test_another_object_of_the_same_name_and_content_is_applied() -> None:
    async def story(rig: Rig) -> None:
        made = rig.get(ConfigMap.resource, "home")
        rig.delete(ConfigMap, "home")
        rig.create(ConfigMap.resource, {**made, "metadata": {**made["metadata"], "managedFields": None}})
        await rig.settle()

    rig = drive(websites(), [site()], story)
    assert rig.get(ConfigMap.resource, "home")["metadata"]["managedFields"][0]["manager"] == "websites"


def test_a_field_that_is_no_longer_applied_goes_away() -> None:
    async def function(ctx: Context[Website]) -> None:
        theme = {"theme": ctx.object.spec.theme} if ctx.object.spec.theme else {}
        await ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html, **theme}))

    async def story(rig: Rig) -> None:
        assert rig.get(ConfigMap, "home").data == {"index.html": "<h1>hi</h1>", "theme": "dark"}
        rig.patch(ConfigMap, "home", {"data": {"theirs": "stays"}})
        rig.patch(Website, "home", {"spec": {"theme": None}})
        await rig.settle()

    rig = drive(operator_with(function), [site(theme="dark")], story)
    assert rig.get(ConfigMap, "home").data == {"index.html": "<h1>hi</h1>", "theirs": "stays"}


def test_a_child_that_was_read_and_changed_can_be_applied() -> None:
    async def function(ctx: Context[Website]) -> None:
        page = ctx.child(ConfigMap) or await ctx.apply(ConfigMap(data={"a": "b"}))
        await ctx.apply(replace(page, data={"a": "c"}))

    rig = drive(operator_with(function), [site()])
    assert rig.get(ConfigMap, "home").data == {"a": "c"}


@pytest.mark.parametrize("function", ["patch", "delete"])
def test_what_the_reconcile_itself_changed_is_applied_again(function: str) -> None:
    """Though the cache still shows what was applied."""
    changed: list[bool] = []

    async def reconcile(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data={"a": "b"}))
        if ctx.object.spec.theme and not changed:
            changed.append(True)
            if function == "patch":
                await ctx.patch(ConfigMap, "home", {"data": {"a": "c"}})
            else:
                await ctx.delete(ConfigMap, "home")
            made = await ctx.apply(ConfigMap(data={"a": "b"}))
            assert made.data == {"a": "b"}

    async def story(rig: Rig) -> None:
        rig.patch(Website, "home", {"spec": {"theme": "dark"}})
        await rig.settle()

    rig = drive(operator_with(reconcile), [site()], story)
    assert changed
    assert rig.get(ConfigMap, "home").data == {"a": "b"}


def test_an_owner_that_comes_back_to_a_shard_has_its_children_applied() -> None:
    """Meanwhile another shard may have applied, under the same field owner."""

    async def story(rig: Rig) -> None:
        label = rig.labels_of_ring.shard
        for shard in ("shard-2", "shard-1"):
            for kind in (Website, ConfigMap, Deployment):
                rig.patch(kind, "home", {"metadata": {"labels": {label: shard}}})
            await rig.settle()

    rig = drive(websites(sharded=True), [site()], story)
    assert applies(rig) == ["home"] * 4


def test_what_was_applied_is_forgotten_as_soon_as_the_object_is_to_leave() -> None:
    """Also by a reconcile that runs on meanwhile: that the object has left, and is back, no event need tell."""
    begun, may_end, remembered = asyncio.Event(), asyncio.Event(), list[int]()

    async def function(ctx: Context[Website]) -> None:
        if ctx.object.spec.theme:
            begun.set()
            await may_end.wait()
        await ctx.apply(ConfigMap(data={"a": "b"}))

    async def story(rig: Rig) -> None:
        assert rig._manager._workload is not None
        (controller,) = rig._manager._workload._controllers

        def note(change: Change) -> None:
            if change.resource == Website.resource.group_resource:
                remembered.append(len(controller._applied))

        remembered.append(len(controller._applied))
        rig.patch(Website, "home", {"spec": {"theme": "dark"}})
        await begun.wait()
        rig.drain(Website, "home")
        await asyncio.sleep(0.1)
        remembered.append(len(controller._applied))
        # The acknowledgement, of which the cache knows nothing yet.
        rig.server.listeners.append(note)
        may_end.set()
        await rig.settle()

    rig = drive(operator_with(function, sharded=True), [site()], story)
    assert not rig.labels(Website, "home")
    assert remembered == [1, 0, 0]


def refusal(thing: Kind, *, owns: Any = (ConfigMap,), main: Kind | None = None) -> Exception:
    async def function(ctx: Context[Any]) -> None:
        await ctx.apply(thing)

    operator = Operator("websites")
    operator.reconcile(type(main or site()), owns=owns)(function)
    rig = drive(operator, [main or site()], raises=False)
    assert not rig.writes
    return rig.failures[0]


def test_a_kind_that_is_not_owned_is_refused() -> None:
    error = refusal(Secret("a"))
    assert isinstance(error, ConfigurationError)
    assert "applies Secret objects" in str(error)
    assert "owns=[Secret]" in str(error)


class Zone(Kind):
    """Something cluster-scoped."""

    resource = Resource("example.com", "v1", "zones", "Zone", namespaced=False)


def test_a_cluster_scoped_child_of_a_namespaced_owner_is_refused() -> None:
    assert "is cluster-scoped" in str(refusal(Zone("a"), owns=[Zone]))


def test_a_child_in_another_namespace_is_refused() -> None:
    error = refusal(ConfigMap(ObjectMeta(name="a", namespace="elsewhere")))
    assert "do not reach across namespaces" in str(error)


def test_a_child_that_another_object_controls_is_refused() -> None:
    async def function(ctx: Context[Website]) -> None:
        other = await ctx.get(ConfigMap, "theirs")
        assert other is not None
        await ctx.apply(other)

    reference = {"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": "uid-a", "controller": True}
    theirs = (ConfigMap.resource, {"metadata": {"name": "theirs", "ownerReferences": [reference]}})
    rig = drive(operator_with(function), [site(), theirs], raises=False)
    assert isinstance(rig.failures[0], AlreadyOwned)


def the_same_page(*, raw: bool = False, sharded: bool = False) -> Operator:
    """Each website applies one ConfigMap."""

    async def function(ctx: Context[Website]) -> None:
        if raw:
            metadata = {"name": "shared", "ownerReferences": [ctx.controller_reference()]}
            await server_side_apply(ctx, ConfigMap.resource, {"metadata": metadata, "data": {"of": ctx.name}})
        else:
            await ctx.apply(ConfigMap("shared", data={"of": ctx.name}))

    return operator_with(function, owns=[ConfigMap], sharded=sharded)


@pytest.mark.parametrize("raw", [False, True], ids=["apply", "server_side_apply"])
@pytest.mark.parametrize("sharded", [False, True])
def test_of_two_that_apply_one_child_the_second_is_told_and_neither_undoes_the_other(raw: bool, sharded: bool) -> None:
    rig = drive(the_same_page(raw=raw, sharded=sharded), [site("first"), site("second")], raises=False)
    assert rig.get(ConfigMap, "shared").data == {"of": "first"}
    assert {type(each) for each in rig.failures} == {AlreadyOwned}
    (event,) = {(name, reason, message) for name, reason, message in rig.events}
    assert event[:2] == ("second", "ReconcileFailed")
    assert "ConfigMap shared cannot be controlled by Website second: Website first controls it already" in event[2]


def test_a_child_that_another_shards_object_controls_is_refused() -> None:
    """It is in no cache of this one's."""
    reference = {"apiVersion": "example.com/v1", "kind": "Blog", "name": "far", "uid": "uid-far", "controller": True}
    label = {"shard.alpha.sharding.timebertt.dev/clusterring-test": "another"}
    there = {"metadata": {"name": "shared", "labels": label, "ownerReferences": [reference]}, "data": {"of": "far"}}
    rig = drive(the_same_page(sharded=True), [(ConfigMap.resource, there), site()], raises=False)
    assert "Blog far controls it already" in str(rig.failures[0])
    assert rig.get(ConfigMap.resource, "shared")["metadata"]["labels"] == label


def test_a_child_is_taken_over_from_an_owner_that_was_made_anew() -> None:
    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        rig.create(site())
        await rig.settle()
        controller = rig.get(ConfigMap, "shared").metadata.controller
        assert controller is not None
        assert controller.uid == rig.get(Website, "home").metadata.uid

    drive(the_same_page(), [site()], story)


def test_a_child_may_go_from_one_owner_to_the_other() -> None:
    async def story(rig: Rig) -> None:
        await rig.clock.sleep(3600)  # for so long the other is refused
        rig.delete(Website, "first")
        rig.delete(ConfigMap, "shared")  # as the garbage collector does
        await rig.clock.sleep(AlreadyOwned.longest_pause_seconds + 1)
        assert rig.get(ConfigMap, "shared").data == {"of": "second"}

    rig = drive(the_same_page(), [site("first"), site("second")], story, raises=False)
    assert AlreadyOwned.longest_pause_seconds == 30
    assert {type(each) for each in rig.failures} == {AlreadyOwned}


def test_a_generated_name_is_refused() -> None:
    assert "generateName" in str(refusal(ConfigMap(ObjectMeta(generate_name="page-"))))


class Region(CustomResource[Workers, None], group="example.com", version="v1", scope="Cluster"):
    """Something that is in no namespace."""


def test_a_cluster_scoped_owner_has_children_in_the_namespaces_that_they_name() -> None:
    async def function(ctx: Context[Region]) -> None:
        assert ctx.namespace == ""
        await ctx.apply(ConfigMap(ObjectMeta(namespace="team"), data={"a": "b"}))

    operator = Operator("regions")
    operator.reconcile(Region, owns=[ConfigMap])(function)
    rig = drive(operator, [Region("north", Workers())])
    assert rig.get(ConfigMap, "north", "team").data == {"a": "b"}
    assert applies(rig) == ["north"]


@pytest.mark.parametrize("verb", ["get", "patch", "delete", "apply"])
def test_without_a_namespace_nothing_is_taken_for_gone(verb: str) -> None:
    async def function(ctx: Context[Region]) -> None:
        match verb:
            case "get":
                assert await ctx.get(ConfigMap, "page") is not None
            case "patch":
                await ctx.patch(ConfigMap, "page", {"data": {"a": "b"}})
            case "delete":
                assert await ctx.delete(ConfigMap, "page")
            case _:
                await ctx.apply(ConfigMap("page", data={"a": "b"}))

    operator = Operator("regions")
    operator.reconcile(Region, owns=[ConfigMap])(function)
    rig = drive(operator, [Region("north", Workers()), ConfigMap("page")], raises=False)
    assert isinstance(rig.failures[0], ConfigurationError)
    assert "ConfigMap objects are in namespaces and Region north is in none" in str(rig.failures[0])
    assert rig.writes == []


def test_children_are_read_as_the_class_that_was_declared() -> None:
    class Other(Kind):
        resource = ConfigMap.resource

    async def function(ctx: Context[Website]) -> None:
        assert ctx.child(ConfigMap) is None
        ctx.children(Other)

    with pytest.raises(ConfigurationError, match="cached as ConfigMap"):
        drive(operator_with(function), [site()])
