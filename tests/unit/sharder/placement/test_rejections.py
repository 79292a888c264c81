"""Objects whose labels the API server lets nobody change: people are told which, and what they can do."""

from __future__ import annotations

import logging
from typing import Any, Final

import pytest

from sharder.core.summary import Refused
from sharder.rings.status import REFUSED
from shardsdk.errors import Conflict, Forbidden, Invalid, ShardingError
from shardsdk.kube.answers import Status, StatusDetails, Target, explain_status
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family
from tests.unit.sharder.placement.stage import (
    ALONE,
    CHILDREN,
    OWNERS,
    RING,
    Stage,
    leading,
    make_stage,
    names_on,
    ring,
    scrape,
    thing,
)

MANY: Final = 20


class Refusing(MemoryApi):
    """Some objects cannot be written: by name, how often still, and what the answer is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.refused: dict[str, ShardingError] = {}
        self.denied: set[GroupResource] = set()
        self.unreadable: set[GroupResource] = set()
        self.refusals = 0

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if name in self.refused:
            self.refusals += 1
            raise self.refused[name]
        return await super().patch(resource, name, namespace, body, **more)

    async def find(self, resource: Any, name: str, namespace: str | None = None, **more: Any) -> Any:
        if resource.group_resource in self.unreadable:
            raise Forbidden(f"{resource.group_resource} {name}: no right to read", status=403)
        return await super().find(resource, name, namespace, **more)

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        return verb != "patch" or resource not in self.denied


def refusing_stage(clock: VirtualClock, *resources: Any) -> tuple[Stage, Refusing]:
    stage = make_stage(clock, api=Refusing)
    assert isinstance(stage.api, Refusing)
    stage.set_up(ring(*resources), "one")
    return stage, stage.api


@in_virtual_time
async def test_the_event_names_object_shard_answer_and_remedy(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock)
    api.refused["stuck-0"] = Invalid("configmaps stuck-0 is invalid: a policy says no", status=422)
    create_family(stage, "stuck", shard=None, children=(None,))
    async with leading(stage):
        await stage.until(lambda: bool(stage.events.of(REFUSED)))
        [message] = stage.events.of(REFUSED)
    assert message.startswith("configmaps default/stuck-0 cannot be given to shard one: ")
    assert "a policy says no" in message
    assert "policy, webhook or validation" in message


def answered(code: int, reason: str, message: str, details: StatusDetails | None = None) -> ShardingError:
    target = Target("patch", "rbac.authorization.k8s.io", "rolebindings", "default", "stuck-0")
    return explain_status(target, Status(code, reason, message, details))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (answered(404, "NotFound", 'roles "reader" not found', StatusDetails("reader", "roles")), "create that"),
        (answered(500, "", "etcdserver: request is too large"), "make it smaller"),
    ],
)
@in_virtual_time
async def test_a_child_that_is_there_and_cannot_be_written_is_told_and_moves_with_its_owner(
    clock: VirtualClock, error: ShardingError, told: str
) -> None:
    """Whatever the code of the answer makes of it: that the child is gone, or that it will pass."""
    stage, api = refusing_stage(clock)
    api.refused["stuck-0"] = error
    create_family(stage, "stuck", shard=None, children=(None,))
    async with leading(stage):
        await stage.until(lambda: bool(stage.events.of(REFUSED)))
        assert told in stage.events.of(REFUSED)[0]
        await stage.pass_time(60)
        assert stage.label(OWNERS, "stuck") is None
        api.refused.clear()
        await stage.until(lambda: stage.label(OWNERS, "stuck") == "one", seconds=61)
        assert stage.label(CHILDREN, "stuck-0") == "one"


def test_of_what_grants_rights_the_remedy_names_the_right() -> None:
    roles = GroupResource("rbac.authorization.k8s.io", "roles")
    role = Refused(roles, "n", "r", "given to shard one", "no", 0).render()
    assert "or escalate roles.rbac.authorization.k8s.io (`sharder rbac RING` prints that rule" in role
    assert role.endswith("; it is tried again by itself")


@in_virtual_time
async def test_many_refused_objects_are_one_event_a_minute(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        for number in range(30):
            api.refused[f"it-{number}"] = Forbidden(f"owners it-{number}: a webhook says no", status=403)
            stage.create(OWNERS, thing(f"it-{number}"))
        await stage.pass_time(179)
        told = stage.events.of(REFUSED)
        assert len(told) == 3
        assert "(29 more objects likewise)" in told[-1]
        api.refused.clear()
        await stage.until(lambda: stage.label(OWNERS, "it-0") == "one", seconds=15)
        await stage.pass_time(120)
        assert len(stage.events.of(REFUSED)) <= 4, "what is mended is told no more"


@in_virtual_time
async def test_a_refused_drain_is_told(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock)
    [name] = names_on("two", "one", "two")
    async with leading(stage):
        stage.create(OWNERS, thing(name))
        await stage.until(lambda: stage.label(OWNERS, name) == "one" and stage.condition("Settled") == "True")
        api.refused[name] = Invalid("a policy says no", status=422)
        stage.start("two")
        await stage.until(lambda: bool(stage.events.of(REFUSED)))
        assert stage.events.of(REFUSED)[0].startswith(
            f"owners.example.org default/{name} cannot be asked back from shard one: "
        )


def test_many_refused_drains_are_told_of_together(caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def refused(clock: VirtualClock) -> None:
        stage, api = refusing_stage(clock)
        async with leading(stage):
            names = names_on("two", "one", "two", count=MANY)
            for name in names:
                stage.create(OWNERS, thing(name, shard="one"))
            await stage.until(lambda: stage.condition("Settled") == "True")
            api.refused = dict.fromkeys(names, Invalid("a policy says no", status=422))
            stage.start("two")
            await stage.pass_time(120)
            assert api.refusals >= MANY

    refused()
    told = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert set(told) == {"object cannot be placed"}
    assert len(told) <= 3


@in_virtual_time
async def test_missing_permissions_are_told_by_the_rings_condition_alone(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock)
    api.denied.add(OWNERS.group_resource)
    api.refused["it"] = Forbidden("patch owners: RBAC says no", status=403)
    async with leading(stage):
        await stage.until(lambda: stage.condition("PermissionsGranted") == "False")
        stage.create(OWNERS, thing("it"))
        await stage.pass_time(20)
        assert not stage.events.of(REFUSED)
        assert stage.events.of("Forbidden")


@in_virtual_time
async def test_a_conflict_is_no_refusal(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock)
    api.refused["it"] = Conflict("owners it has changed", status=409)
    async with leading(stage):
        stage.create(OWNERS, thing("it"))
        await stage.pass_time(20)
        assert not stage.events.of(REFUSED)


@in_virtual_time
async def test_what_leaves_the_ring_is_counted_no_longer(clock: VirtualClock) -> None:
    """An alert about objects without a shard would go on for ever."""
    stage, api = refusing_stage(clock)
    api.refused["stuck-0"] = Invalid("configmaps stuck-0 is invalid: a policy says no", status=422)
    create_family(stage, "stuck", shard=None, children=(None,))
    async with leading(stage) as replica:

        def unassigned() -> list[float]:
            return scrape(replica, replica._metrics.unassigned)

        await stage.until(lambda: sum(unassigned()) > 0)
        stage.server.patch(CLUSTERRINGS, RING, None, {"spec": {"resources": []}})
        await stage.until(lambda: not sum(unassigned()), seconds=60)


def refuse_many(stage: Stage, api: Refusing, error: ShardingError) -> list[str]:
    names = [f"it-{number}" for number in range(MANY)]
    for name in names:
        api.refused[name] = error
        stage.create(OWNERS, thing(name))
    return names


@pytest.mark.parametrize("error", [Invalid("a policy says no", status=422), Forbidden("a webhook says no", status=403)])
def test_what_is_refused_for_long_is_tried_once_a_minute_and_told_of_together(
    error: ShardingError, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def refused(clock: VirtualClock) -> None:
        stage, api = refusing_stage(clock, ALONE)
        async with leading(stage):
            names = refuse_many(stage, api, error)
            await stage.pass_time(300)
            caplog.clear()
            api.refusals = 0
            await stage.pass_time(600)
            assert 9 * MANY <= api.refusals <= 11 * MANY
            told = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
            assert set(told) == {"object cannot be placed"}
            assert len(told) <= 11
            api.refused.clear()
            await stage.until(lambda: {stage.label(OWNERS, name) for name in names} == {"one"}, seconds=61)

    refused()


@pytest.mark.parametrize("error", [Invalid("a policy says no", status=422), Forbidden("no such right", status=403)])
@in_virtual_time
async def test_what_was_refused_for_long_is_tried_at_once_when_it_changes(
    clock: VirtualClock, error: ShardingError
) -> None:
    stage, api = refusing_stage(clock, ALONE)
    async with leading(stage):
        names = refuse_many(stage, api, error)
        await stage.pass_time(300)
        api.refused.clear()
        for name in names:
            stage.server.patch(OWNERS, name, "default", {"metadata": {"annotations": {"mended": "yes"}}})
        await stage.until(lambda: {stage.label(OWNERS, name) for name in names} == {"one"}, seconds=2)


@in_virtual_time
async def test_once_something_goes_through_that_was_refused_the_rest_is_tried_as_well(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock, ALONE)
    async with leading(stage):
        names = refuse_many(stage, api, Invalid("a policy says no", status=422))
        await stage.pass_time(300)
        api.refused.clear()
        stage.server.patch(OWNERS, names[0], "default", {"metadata": {"annotations": {"mended": "yes"}}})
        await stage.until(lambda: {stage.label(OWNERS, name) for name in names} == {"one"}, seconds=3)


@in_virtual_time
async def test_what_stays_refused_is_tried_no_more_often_for_each_that_goes_through(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock, ALONE)
    async with leading(stage):
        names = refuse_many(stage, api, Invalid("a policy says no", status=422))
        await stage.pass_time(300)
        api.refusals = 0
        for name in names[:10]:
            del api.refused[name]
            stage.server.patch(OWNERS, name, "default", {"metadata": {"annotations": {"mended": "yes"}}})
            await stage.pass_time(2)
        assert api.refusals <= 3 * MANY


@in_virtual_time
async def test_a_refusal_that_is_soon_mended_costs_seconds(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock, ALONE)
    async with leading(stage):
        names = refuse_many(stage, api, Invalid("a policy says no", status=422))
        await stage.pass_time(20)
        api.refused.clear()
        await stage.until(lambda: {stage.label(OWNERS, name) for name in names} == {"one"}, seconds=20)


@in_virtual_time
async def test_a_family_whose_child_was_refused_for_long_is_together_within_a_minute(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refused["stuck-0"] = Invalid("a policy says no", status=422)
        create_family(stage, "stuck", shard=None, children=(None,))
        await stage.pass_time(300)
        api.refused.clear()
        await stage.until(lambda: stage.label(CHILDREN, "stuck-0") == stage.label(OWNERS, "stuck") == "one", seconds=61)


@in_virtual_time
async def test_what_was_refused_and_is_placed_by_now_is_not_told(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock, ALONE)
    async with leading(stage):
        refuse_many(stage, api, Invalid("a policy says no", status=422))
        await stage.until(lambda: bool(stage.events.of(REFUSED)))
        await stage.pass_time(20)
        told = len(stage.events.of(REFUSED))
        api.refused.clear()
        await stage.until(lambda: stage.condition("Settled") == "True")
        await stage.pass_time(300)
        assert len(stage.events.of(REFUSED)) == told


@in_virtual_time
async def test_of_many_that_were_refused_one_is_named_that_still_is(clock: VirtualClock) -> None:
    stage, api = refusing_stage(clock, ALONE)
    async with leading(stage):
        names = refuse_many(stage, api, Invalid("a policy says no", status=422))
        await stage.until(lambda: bool(stage.events.of(REFUSED)))
        await stage.pass_time(20)
        told = len(stage.events.of(REFUSED))
        for name in names[:-1]:
            del api.refused[name]
        await stage.until(lambda: len(stage.events.of(REFUSED)) > told)
        assert f"default/{names[-1]} " in stage.events.of(REFUSED)[-1]
        assert "likewise" not in stage.events.of(REFUSED)[-1]


@in_virtual_time
async def test_an_owner_that_cannot_be_read_is_told_with_each_object_and_tried_soon(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage, api = refusing_stage(clock)
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.unreadable.add(OWNERS.group_resource)
        create_family(stage, "fam", shard="one", children=(None,))
        await stage.pass_time(300)
        assert "object not placed, will retry" in {each.message for each in caplog.records}
        assert not stage.events.of(REFUSED)
        api.unreadable.clear()
        await stage.until(lambda: stage.label(CHILDREN, "fam-0") == "one", seconds=11)


@in_virtual_time
async def test_a_family_on_a_shard_that_is_gone_is_tried_once_a_minute_and_told_with_others(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage, api = refusing_stage(clock)
    stage.start("two")
    [owner] = names_on("two", "one", "two")
    create_family(stage, owner, shard="two", children=("two",))
    async with leading(stage):
        await stage.until(lambda: stage.condition("Settled") == "True")
        api.refused[f"{owner}-0"] = Invalid("a policy says no", status=422)
        stage.crash("two")
        await stage.pass_time(400)
        caplog.clear()
        api.refusals = 0
        await stage.pass_time(600)
        assert 1 <= api.refusals <= 22
        told = {each.message for each in caplog.records if each.levelno >= logging.WARNING}
        assert "object cannot be placed" in told
        assert "family not moved, will retry" not in told
        api.refused.clear()
        await stage.until(
            lambda: stage.label(CHILDREN, f"{owner}-0") == stage.label(OWNERS, owner) == "one", seconds=120
        )
