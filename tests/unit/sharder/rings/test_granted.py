"""What is new on a ring's list comes into force once the sharder may label it, and not before."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import pytest

from sharder.core.granted import granted_part, unwritten
from sharder.core.ringspec import ResolvedRing, parse_ring, placed_resources, resolve
from sharder.core.webhookconfig import WEBHOOK_CONFIGURATIONS, go_webhook_name
from sharder.rings.deps import WebhookSettings
from sharder.rings.granted import find_in_force
from sharder.rings.permissions import DENIED_SECONDS
from shardsdk.errors import Forbidden
from shardsdk.protocol.labels import parse_ring_name
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource, Resource
from shardsdk.testing.memory import Change
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    LABELS,
    OWNERS,
    RING,
    Stage,
    leading,
    make_stage,
    ring,
    thing,
)

WEBHOOK: Final = WebhookSettings({"url": "https://sharder.example"}, {}, lambda: None)
MISTAKE: Final = {"resource": CHILDREN.plural}


class Refusing(MemoryApi):
    """Some things the sharder may not do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.refused: set[tuple[str, GroupResource]] = set()

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        return (verb, resource) not in self.refused


def refusing(clock: VirtualClock, *verbs: str) -> tuple[Stage, Refusing]:
    """A ring of owners alone and a shard, where the sharder may not do `verbs` to their would-be children."""
    stage = make_stage(clock, api=Refusing)
    assert isinstance(stage.api, Refusing)
    stage.api.refused = {(verb, CHILDREN.group_resource) for verb in verbs}
    stage.set_up(ring(ALONE), "one")
    return stage, stage.api


def edit(stage: Stage, *resources: Any) -> None:
    stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": list(resources)}})


def written(stage: Stage) -> set[GroupResource]:
    return {name for name, _ in placed_resources(stage.server.get(CLUSTERRINGS, RING, None).get("status", {}))}


def reason(stage: Stage, kind: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    conditions = stage.server.get(CLUSTERRINGS, RING, None)["status"]["conditions"]
    return next((each["status"], each["reason"]) for each in conditions if each["type"] == kind)


def called_for(stage: Stage) -> set[str]:
    """The resources for which the webhook is called."""
    configuration = stage.server.find(WEBHOOK_CONFIGURATIONS, f"clusterring-{RING}")
    [webhook] = (configuration or {}).get("webhooks") or [{}]
    return {name.partition("/")[0] for rule in webhook.get("rules", ()) for name in rule["resources"]}


@pytest.mark.parametrize("verb", ["list", "patch"])
@in_virtual_time
async def test_of_a_resource_that_was_listed_by_mistake_and_without_rights_nothing_is_left(
    clock: VirtualClock, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sharder.rings.ring_controller")
    stage, _ = refusing(clock, verb)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.until(lambda: "ring settled" in caplog.messages)
        caplog.clear()
        edit(stage, ALONE, MISTAKE)
        await stage.until(lambda: stage.condition("Ready") == "False")
        stage.create(CHILDREN, thing("not-ours"))
        await stage.pass_time(60)
        assert stage.condition("PermissionsGranted") == "False"
        assert reason(stage, "Settled") == ("Unknown", "WaitsForRights")
        assert "ring settled" not in caplog.messages
        assert (written(stage), called_for(stage)) == ({OWNERS.group_resource}, {OWNERS.plural})
        assert stage.label(CHILDREN, "not-ours") is None
        stage.create(OWNERS, thing("it"))
        await stage.until(lambda: stage.label(OWNERS, "it") == "one", seconds=2)
        edit(stage, ALONE)
        await stage.until(lambda: stage.condition("Ready") == "True", seconds=5)
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.until(lambda: "ring settled" in caplog.messages)


@in_virtual_time
async def test_objects_that_come_are_no_news_of_a_settled_ring(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sharder.rings.ring_controller")
    stage, _ = refusing(clock)
    async with leading(stage):
        await stage.until(lambda: "ring settled" in caplog.messages)
        caplog.clear()
        stage.start("two")
        await stage.until(lambda: "ring settled" in caplog.messages)
        await stage.pass_time(5)
        caplog.clear()
        for number in range(10):
            stage.create(OWNERS, thing(f"it-{number}"))
            await stage.pass_time(3.3 + 0.1 * number)
        assert "ring settled" not in caplog.messages


@in_virtual_time
async def test_once_rights_are_granted_it_is_written_down_and_then_labelled_by_whoever_leads(
    clock: VirtualClock,
) -> None:
    stage, api = refusing(clock, "patch")
    unwritten_before: list[bool] = []

    def judge(change: Change) -> None:
        labels = ((change.new or {}).get("metadata") or {}).get("labels") or {}
        if change.resource == CHILDREN.group_resource and LABELS.shard in labels:
            unwritten_before.append(CHILDREN.group_resource not in written(stage))

    stage.server.listeners.append(judge)
    stage.create(CHILDREN, thing("it"))
    edit(stage, ALONE, MISTAKE)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("PermissionsGranted") == "False")
        await stage.pass_time(10)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: written(stage) == {OWNERS.group_resource})
        api.refused.clear()
        await stage.until(lambda: stage.label(CHILDREN, "it") == "one", seconds=DENIED_SECONDS + 2)
        await stage.until(lambda: stage.condition("Settled") == "True", seconds=20)
        assert unwritten_before == [False]
        assert called_for(stage) == {OWNERS.plural, CHILDREN.plural}


@in_virtual_time
async def test_what_was_in_force_before_its_rights_were_taken_away_stays_in_force(clock: VirtualClock) -> None:
    stage, api = refusing(clock)
    edit(stage, ALONE, MISTAKE)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refused.add(("patch", CHILDREN.group_resource))
        await stage.until(lambda: stage.condition("PermissionsGranted") == "False")
        both = {OWNERS.group_resource, CHILDREN.group_resource}
        assert (written(stage), called_for(stage)) == (both, {OWNERS.plural, CHILDREN.plural})


# -- families ------------------------------------------------------------------

KINDS: Final = {name: Resource("", "v1", name, name) for name in ("owners", "children", "others")}


def resolved(**mains: Iterable[str]) -> ResolvedRing:
    listed = [
        {"resource": main, "controlledResources": [{"resource": each} for each in controlled]}
        for main, controlled in mains.items()
    ]
    spec = parse_ring({"metadata": {"name": RING, "uid": "1", "generation": 1}, "spec": {"resources": listed}})
    return resolve(spec, {each.group_resource: each for each in KINDS.values()})[0]


def named(*names: str) -> set[GroupResource]:
    return {KINDS[name].group_resource for name in names}


@pytest.mark.parametrize(
    ("written", "denied", "in_force"),
    [
        ((), (), {"owners", "children", "others"}),
        ((), ("children",), {"others"}),
        ((), ("owners",), {"others"}),
        (("owners",), ("children",), {"owners", "others"}),
        (("owners", "children"), ("others",), {"owners", "children"}),
        (("children",), ("owners",), {"owners", "children", "others"}),
    ],
)
def test_a_new_owner_waits_for_its_children_and_one_in_force_goes_on_without(
    written: tuple[str, ...], denied: tuple[str, ...], in_force: set[str]
) -> None:
    whole = resolved(owners=["children"], others=[])
    part = granted_part(whole, named(*written), named(*denied))
    assert {each.resource.plural for each in part.subjects()} == in_force
    assert (part == whole) is (in_force == {"owners", "children", "others"})
    assert set(unwritten(whole, named(*written))) == named("owners", "children", "others") - named(*written)


# -- a status that does not say what was in force --------------------------------


@pytest.mark.parametrize("verb", ["list", "patch"])
@in_virtual_time
async def test_a_ring_whose_status_says_nothing_stays_in_force_where_objects_are_labelled(
    clock: VirtualClock, verb: str
) -> None:
    """As one that is taken over from the Go sharder, or deleted and created again."""
    stage = make_stage(clock, api=Refusing)
    assert isinstance(stage.api, Refusing)
    stage.api.refused = {(verb, CHILDREN.group_resource)}
    stage.set_up(ring(), "one", "two")
    names = [f"on-one-{number}" for number in range(5)]
    for name in names:
        stage.create(OWNERS, thing(name, shard="one"))
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("PermissionsGranted") == "False")
        assert written(stage) == {OWNERS.group_resource, CHILDREN.group_resource}
        assert OWNERS.plural in called_for(stage)
        stage.create(OWNERS, thing("new"))
        stage.crash("one")
        await stage.until(lambda: {stage.label(OWNERS, name) for name in (*names, "new")} == {"two"}, seconds=300)


@in_virtual_time
async def test_another_sharders_configuration_stays_while_ours_does_not_cover_the_ring(clock: VirtualClock) -> None:
    stage, api = refusing(clock, "patch")
    edit(stage, ALONE, MISTAKE)
    uid = stage.server.get(CLUSTERRINGS, RING, None)["metadata"]["uid"]
    owner = {
        "apiVersion": CLUSTERRINGS.api_version, "kind": CLUSTERRINGS.kind, "name": RING, "uid": uid, "controller": True,
    }  # fmt: skip
    name = go_webhook_name(parse_ring_name(RING))
    metadata = {"name": name, "ownerReferences": [owner]}
    stage.create(WEBHOOK_CONFIGURATIONS, {"metadata": metadata, "webhooks": [{"name": "go"}]}, None)
    async with leading(stage, webhook=WEBHOOK):
        await stage.until(lambda: stage.condition("PermissionsGranted") == "False")
        await stage.pass_time(60)
        assert stage.server.find(WEBHOOK_CONFIGURATIONS, name) is not None
        api.refused.clear()
        await stage.until(lambda: stage.server.find(WEBHOOK_CONFIGURATIONS, name) is None, seconds=120)


class Unreadable(Refusing):
    """Nothing may be listed."""

    async def pages(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise Forbidden("no")
        yield  # type: ignore[unreachable]  # what makes it a generator


@in_virtual_time
async def test_where_nothing_can_be_read_only_what_a_status_leaves_out_is_new(clock: VirtualClock) -> None:
    api = make_stage(clock, api=Unreadable).api
    whole, everything = resolved(owners=["children"], others=[]), named("owners", "children", "others")
    assert await find_in_force(api, whole, set(), everything) == everything
    assert await find_in_force(api, whole, named("owners"), everything) == named("owners")
    assert await find_in_force(api, whole, set(), named("others")) == named("others")
