"""What a ring has listed is remembered until nothing of it carries a label, whatever the watch shows meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from sharder.core.ringspec import ResolvedRing, default_namespaces, parse_ring, resolve
from sharder.rings.removed_resources import RemovedResources
from shardsdk.errors import ConnectionFailed
from shardsdk.protocol.objects import GroupResource
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import CHILDREN, OWNERS, RING, make_stage

NAMES: Final = {"owners": OWNERS.group_resource, "configmaps": CHILDREN.group_resource}


def resolved(*resources: str, uid: str = "first") -> ResolvedRing:
    """The ring as it lists `resources`."""
    listed = [{"group": NAMES[each].group, "resource": each} for each in resources]
    spec = parse_ring({"metadata": {"name": RING, "uid": uid, "generation": 1}, "spec": {"resources": listed}})
    served = {OWNERS.group_resource: OWNERS, CHILDREN.group_resource: CHILDREN}
    return resolve(spec, served, default_namespaces("sharding-system"))[0]


class Status:
    """A status that takes what is written, or fails."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.fails = False

    async def write(self, status: Mapping[str, Any]) -> None:
        if self.fails:
            raise ConnectionFailed("no answer")
        self.value |= status

    @property
    def names(self) -> set[str]:
        return {each["resource"] for each in self.value["placedResources"]}


def make(clock: VirtualClock) -> tuple[RemovedResources, Status]:
    status = Status()
    return RemovedResources(RING, make_stage(clock).api, status.write), status


async def names(
    removed: RemovedResources, shown: Mapping[str, Any], ring: ResolvedRing, *clean: GroupResource
) -> set[str]:
    return {each.subject.resource.plural for each in await removed.record(shown, ring, frozenset(clean))}


@in_virtual_time
async def test_what_was_written_before_the_edit_is_remembered_although_the_edited_ring_does_not_show_it(
    clock: VirtualClock,
) -> None:
    removed, status = make(clock)
    await removed.record({}, resolved("owners", "configmaps"), frozenset())
    assert await names(removed, {}, resolved("owners")) == {"configmaps"}
    assert status.names == {"owners", "configmaps"}


@in_virtual_time
async def test_what_may_have_been_written_is_remembered(clock: VirtualClock) -> None:
    removed, status = make(clock)
    status.fails = True
    with pytest.raises(ConnectionFailed):
        await removed.record({}, resolved("owners", "configmaps"), frozenset())
    status.fails = False
    assert await names(removed, {}, resolved("owners")) == {"configmaps"}


@in_virtual_time
async def test_what_is_clean_is_forgotten_although_the_watch_shows_it_still(clock: VirtualClock) -> None:
    removed, status = make(clock)
    await removed.record({}, resolved("owners", "configmaps"), frozenset())
    before = dict(status.value)
    assert await names(removed, before, resolved("owners"), CHILDREN.group_resource) == set()
    assert status.names == {"owners"}
    assert await names(removed, status.value, resolved("owners")) == set()


@in_virtual_time
async def test_another_ring_of_that_name_has_not_listed_what_the_one_before_did(clock: VirtualClock) -> None:
    removed, status = make(clock)
    await removed.record({}, resolved("owners", "configmaps"), frozenset())
    assert await names(removed, {}, resolved("owners", uid="second")) == set()
    assert status.names == {"owners"}
