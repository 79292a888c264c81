"""Children of owners that have no namespace: such owners are the ring's always, the children's namespaces not all."""

from __future__ import annotations

from typing import Any, Final

import pytest

from shardsdk.protocol.objects import NAMESPACES, Resource
from shardsdk.testing.memory import MemoryServer, Object
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import CHILDREN, LABELS, SHARDS, Stage, leading, names_on, ring, thing

PROJECTS: Final = Resource("example.org", "v1", "projects", "Project", namespaced=False)
FAMILY: Final = {
    "group": PROJECTS.group, "resource": PROJECTS.plural, "controlledResources": [{"resource": CHILDREN.plural}]
}  # fmt: skip
OURS: Final = {"matchLabels": {"team": "ours"}}
#: Whoever is on shard one while that is alone goes to shard two when it comes.
[NAME] = names_on("two", "one", "two", resource=PROJECTS, namespace="")


def make_projects(clock: VirtualClock, *, shard: str | None = None, **spec: Any) -> tuple[Stage, Object]:
    """A ring of projects and what they control in namespace `inside`; `outside` is not the ring's.  And one project."""
    server = MemoryServer()
    for name, team in (("inside", "ours"), ("outside", "theirs"), (SHARDS, ""), ("sharding-system", "")):
        labels = {"kubernetes.io/metadata.name": name, "team": team}
        server.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    stage = Stage(clock, server, MemoryApi(server, clock, served=(PROJECTS, CHILDREN)))
    stage.set_up(ring(FAMILY, namespaceSelector=OURS, **spec), "one")
    return stage, stage.create(PROJECTS, thing(NAME, shard=shard), None)


def create_child(stage: Stage, owner: Object, name: str, namespace: str, shard: str | None = None) -> None:
    body = thing(name, shard=shard, owner=owner)
    body["metadata"]["ownerReferences"][0] |= {"apiVersion": PROJECTS.api_version, "kind": PROJECTS.kind}
    stage.create(CHILDREN, body, namespace)


def labels_of(stage: Stage) -> Object:
    """The labels of the project."""
    labels: Object = stage.server.get(PROJECTS, NAME, None)["metadata"].get("labels") or {}
    return labels


async def move(stage: Stage) -> None:
    """Have the project go from shard one to shard two, and wait until the ring is settled."""
    stage.start("two")
    await stage.until(lambda: LABELS.drain in labels_of(stage))
    stage.server.patch(PROJECTS, NAME, None, {"metadata": {"labels": {LABELS.shard: None, LABELS.drain: None}}})
    await stage.until(lambda: labels_of(stage).get(LABELS.shard) == "two")
    await stage.until_settled()


@in_virtual_time
async def test_children_are_with_their_owner_when_it_has_moved_wherever_they_are(clock: VirtualClock) -> None:
    stage, owner = make_projects(clock)
    create_child(stage, owner, "inside", "inside")
    create_child(stage, owner, "outside", "outside")
    async with leading(stage):
        await stage.until(lambda: labels_of(stage).get(LABELS.shard) == "one")
        assert stage.label(CHILDREN, "inside", "inside") == stage.label(CHILDREN, "outside", "outside") == "one"
        await stage.until_settled()
        await move(stage)
        assert stage.label(CHILDREN, "inside", "inside") == stage.label(CHILDREN, "outside", "outside") == "two"


@in_virtual_time
async def test_a_child_that_its_owners_shard_sees_stays_with_the_owner_wherever_it_is(clock: VirtualClock) -> None:
    stage, owner = make_projects(clock, shard="one")
    # As a shard makes it, which labels what it makes.
    create_child(stage, owner, "outside", "outside", shard="one")
    async with leading(stage):
        await stage.until_settled()
        assert stage.label(CHILDREN, "outside", "outside") == "one"
        await move(stage)
        assert stage.label(CHILDREN, "outside", "outside") == "two"


@in_virtual_time
async def test_the_ring_settles_when_the_namespace_of_a_child_leaves_it(clock: VirtualClock) -> None:
    stage, owner = make_projects(clock, shard="one")
    create_child(stage, owner, "inside", "inside", shard="one")
    async with leading(stage):
        await stage.until_settled()
        stage.server.patch(NAMESPACES, "inside", None, {"metadata": {"labels": {"team": "theirs"}}})
        # More than the longest pause between two passes that find something.
        await stage.pass_time(150)
        assert stage.condition("Settled") == "True"
        assert stage.label(CHILDREN, "inside", "inside") == "one"


@in_virtual_time
@pytest.mark.parametrize("watched", [True, False])
async def test_a_child_without_a_shard_gets_its_owners_wherever_it_is(clock: VirtualClock, watched: bool) -> None:
    stage, owner = make_projects(clock, shard="one", watchUnassignedControlled=watched)
    create_child(stage, owner, "before", "outside")
    async with leading(stage):
        await stage.until_settled()
        assert stage.label(CHILDREN, "before", "outside") == "one"
        stage.server.patch(NAMESPACES, "inside", None, {"metadata": {"labels": {"team": "theirs"}}})
        for namespace in ("inside", "outside"):
            create_child(stage, owner, f"later-{namespace}", namespace)
            await stage.until(
                lambda namespace=namespace: stage.label(CHILDREN, f"later-{namespace}", namespace) == "one",  # type: ignore[misc]
                seconds=10 if watched else 400,
            )
