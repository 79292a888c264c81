"""Objects whose labels the API server lets nobody change: people are told which, and what they can do."""

from __future__ import annotations

from typing import Any

from sharder.rings.status import REFUSED
from shardsdk.errors import Conflict, Forbidden, Invalid, ShardingError
from shardsdk.protocol.objects import CLUSTERRINGS, GroupResource
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.families import create_family
from tests.unit.sharder.placement.stage import OWNERS, RING, Stage, leading, make_stage, names_on, ring, scrape, thing


class Refusing(MemoryApi):
    """Some objects cannot be written: by name, how often still, and what the answer is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.refused: dict[str, ShardingError] = {}
        self.denied: set[GroupResource] = set()

    async def patch(self, resource: Any, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if name in self.refused:
            raise self.refused[name]
        return await super().patch(resource, name, namespace, body, **more)

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        return verb != "patch" or resource not in self.denied


def refusing_stage(clock: VirtualClock) -> tuple[Stage, Refusing]:
    stage = make_stage(clock, api=Refusing)
    assert isinstance(stage.api, Refusing)
    stage.create(CLUSTERRINGS, ring(), None)
    stage.start("one")
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
