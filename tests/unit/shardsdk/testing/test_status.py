"""The status subresource of the server in memory: what tests arrange, and what the code that they test may do."""

from __future__ import annotations

import pytest

from shardsdk import Context, CustomResource, Model, Operator
from shardsdk.errors import NotFound, ServerError
from shardsdk.kinds import Kind, Secret
from shardsdk.protocol.objects import Resource
from shardsdk.testing import MemoryServer, Rig, drive


class Spec(Model):
    size: int = 1


class Status(Model):
    ready: int = 0


class Site(CustomResource[Spec, Status], group="example.com", version="v1"):
    """With a status."""


class Door(Kind):
    """As somebody else's class has it."""

    resource = Resource("example.com", "v1", "doors", "Door")
    port: int = 0


def test_a_test_begins_with_objects_that_have_a_status_and_changes_it() -> None:
    operator, seen = Operator("sites"), list[tuple[int, int, int]]()

    @operator.reconcile(Site)
    async def site(ctx: Context[Site]) -> None:
        seen.append((ctx.object.spec.size, ctx.object.status.ready, ctx.object.metadata.generation))

    async def story(rig: Rig) -> None:
        assert rig.patch(Site, "a", {"spec": {"size": 2}, "status": {"ready": 5}})["status"] == {"ready": 5}
        await rig.settle()
        assert rig.patch(Site, "a", {"status": {"ready": 6}})["metadata"]["generation"] == 2

    rig = drive(operator, [Site("a", Spec(), Status(3))], story)
    assert (seen[0], seen[-1]) == ((1, 3, 1), (2, 6, 2))
    assert (2, 5, 2) in seen
    assert rig.get(Site, "a").status == Status(6)


def test_what_an_operator_writes_of_a_status_beside_it_is_lost_as_in_a_cluster() -> None:
    operator = Operator("sites")

    @operator.reconcile(Site)
    async def site(ctx: Context[Site]) -> None:
        await ctx.api.patch(Site.resource, "a", ctx.namespace, {"spec": {"size": 2}, "status": {"ready": 5}})

    operator.needs(Site, "patch")
    rig = drive(operator, [Site("a", Spec(), Status(3))])
    assert (rig.get(Site, "a").spec, rig.get(Site, "a").status) == (Spec(2), Status(3))


def test_a_kind_without_a_status_has_none_to_write() -> None:
    server = MemoryServer()
    made = server.arrange(Secret.resource, {"metadata": {"name": "a"}, "status": {"x": 1}}, "default")
    assert ("status" in made, "generation" in made["metadata"]) == (False, False)
    with pytest.raises(NotFound):
        server.patch(Secret.resource, "a", "default", {"status": {"x": 1}}, subresource="status")


def test_an_object_is_read_as_a_client_reads_it() -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(ServerError, match="Expected `int`, got `str`"):
            await rig.api.get(Door.resource, "a", "default", model=Door)
        assert [each async for page in rig.api.pages(Door.resource, model=Door) for each in page] == []

    operator = Operator("doors")

    @operator.reconcile(Site)
    async def site(ctx: Context[Site]) -> None:
        """Does nothing."""

    drive(operator, [(Door.resource, {"metadata": {"name": "a"}, "port": "8080"})], story, rights=False)
