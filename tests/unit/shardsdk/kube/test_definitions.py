"""A definition that is older than the one on the cluster: left out by its number, else told with what it takes away."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shardsdk import CustomResource, Model
from shardsdk.errors import NotFound
from shardsdk.kinds import crd_of
from shardsdk.kube.api import RawRequest
from shardsdk.kube.definitions import CRDS, VERSION_ANNOTATION, NotInstalled, apply_crds, lost_fields
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time


class Board(Model):
    wood: str = ""
    screws: int = 0


class ShelfSpec(Model):
    boards: list[Board] = []
    labels: dict[str, Board] = {}
    height: int = 0


class ShelfStatus(Model):
    loaded: int = 0


class Shelf(CustomResource[ShelfSpec, ShelfStatus], group="example.com", version="v1"):
    """What the cluster has."""


NEW = crd_of(Shelf)


def without(*paths: str, **more: Any) -> dict[str, Any]:
    """The definition without these, of which each part is a step in its schema."""
    made = copy.deepcopy(NEW)
    for path in paths:
        *steps, last = path.split("/")
        inner = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for step in steps:
            inner = inner[step]
        del inner[last]
        inner.update(more)
    return made


SPEC = "properties/spec/properties"


@pytest.mark.parametrize(
    ("given", "lost"),
    [
        (NEW, []),
        (without(f"{SPEC}/height"), ["v1: spec.height"]),
        (without(f"{SPEC}/boards"), ["v1: spec.boards"]),
        (without(f"{SPEC}/boards/items/properties/wood"), ["v1: spec.boards[].wood"]),
        (without(f"{SPEC}/labels/additionalProperties/properties/wood"), ["v1: spec.labels.*.wood"]),
        (without("properties/status"), ["v1: status"]),
        (without("properties/spec/properties", **{"x-kubernetes-preserve-unknown-fields": True}), []),
        (without("properties/spec/properties", additionalProperties={"type": "integer"}), []),
    ],
)
def test_lost_are_the_fields_that_only_the_cluster_has(given: dict[str, Any], lost: list[str]) -> None:
    assert list(lost_fields(NEW, given)) == lost


def test_what_every_object_has_is_not_lost_nor_is_another_version() -> None:
    more = copy.deepcopy(NEW)
    metadata: dict[str, Any] = {"properties": {"name": {}}}
    more["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] |= {"kind": {}, "metadata": metadata}
    more["spec"]["versions"].append({**copy.deepcopy(NEW["spec"]["versions"][0]), "name": "v2"})
    assert list(lost_fields(more, NEW)) == []


class Listing(MemoryApi):
    """Discovery as well: the kind is served."""

    async def exchange(self, request: RawRequest) -> bytes:
        if request.path == "/apis/example.com/v1":
            return b'{"resources": [{"name": "shelfs"}]}'
        raise NotFound(request.path, status=404)


def numbered(definition: dict[str, Any], number: str | None) -> dict[str, Any]:
    """The definition as a version of that number."""
    made = copy.deepcopy(definition)
    if number is not None:
        made["metadata"]["annotations"] = {VERSION_ANNOTATION: number}
    return made


def cluster(
    clock: VirtualClock, number: str | None = None, *, definition: dict[str, Any] = NEW, stored: tuple[str, ...] = ()
) -> Listing:
    """An API server that has the definition, with objects stored in these versions."""
    api = Listing(MemoryServer(), clock)
    api.server.create(CRDS, numbered(definition, number))
    conditions = [{"type": "Established", "status": "True"}]
    status = {"status": {"conditions": conditions, "storedVersions": list(stored)}}
    api.server.patch(CRDS, "shelfs.example.com", None, status, subresource="status")
    return api


async def height(api: Listing) -> Any:
    """What the cluster's definition says of a field."""
    crd: dict[str, Any] = await api.get(CRDS, "shelfs.example.com", model=dict)
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].get("height")


LESS = without(f"{SPEC}/height", width={"type": "integer"})


@in_virtual_time
async def test_a_definition_of_a_higher_number_stays(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    api = cluster(clock, "10")
    await apply_crds(api, [numbered(LESS, "9")], clock, field_manager="test")
    assert await height(api)
    (line,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert line.msg == "The definition on the cluster is newer than this program's; it stays as it is"
    assert {name: line.__dict__[name] for name in ("object", "version", "own")} == {
        "object": "shelfs.example.com", "version": 10, "own": 9,
    }  # fmt: skip
    await apply_crds(api, [numbered(LESS, "9")], clock, field_manager="test", allow_less=True)
    assert await height(api) is None


@in_virtual_time
@pytest.mark.parametrize(
    ("there", "given"),
    [(None, None), (None, "1"), ("1", None), ("1", "1"), ("9", "10"), ("new", "1"), ("9" * 5000, "1")],
)
async def test_any_other_definition_is_replaced_and_what_is_lost_by_it_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, there: str | None, given: str | None
) -> None:
    """Also one to which somebody has added a field: it would stay at an old version for ever."""
    api = cluster(clock, there)
    for definition in (NEW, LESS):
        await apply_crds(api, [numbered(definition, given)], clock, field_manager="test")
    assert await height(api) is None
    (line,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert line.msg == "The definition lacks fields that the one on the cluster has; what objects hold there is lost"
    assert line.__dict__["object"] == "shelfs.example.com"
    assert line.__dict__["fields"] == "v1: spec.height"


def older(*, served: bool = True) -> dict[str, Any]:
    """The definition with the version before as well."""
    made = copy.deepcopy(NEW)
    made["spec"]["versions"].append(
        {**copy.deepcopy(NEW["spec"]["versions"][0]), "name": "v1alpha1", "storage": False, "served": served}
    )
    return made


async def versions(api: Listing) -> list[str]:
    crd: dict[str, Any] = await api.get(CRDS, "shelfs.example.com", model=dict)
    return [each["name"] for each in crd["spec"]["versions"]]


@in_virtual_time
@pytest.mark.parametrize(("served", "told"), [(True, ["v1alpha1"]), (False, [])])
async def test_a_version_that_is_served_no_more_is_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, served: bool, told: list[str]
) -> None:
    """No object is lost by that: it is stored in another version."""
    api = cluster(clock, definition=older(served=served), stored=("v1",))
    await apply_crds(api, [NEW], clock, field_manager="test")
    assert await versions(api) == ["v1"]
    lines = [each for each in caplog.records if each.levelname == "WARNING"]
    assert [line.__dict__["versions"] for line in lines] == told
    said = "The definition lacks versions that the one on the cluster serves; whoever uses them gets 404"
    assert all((line.msg, line.__dict__["object"]) == (said, "shelfs.example.com") for line in lines)


@in_virtual_time
async def test_a_version_in_which_objects_are_stored_has_to_be_kept(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The API server would refuse it, with a 422 about the status."""
    api = cluster(clock, definition=older(), stored=("v1alpha1", "v1"))
    with pytest.raises(NotInstalled, match=r"lacks v1alpha1, in which .* `operator\.defines\(…\)`"):
        await apply_crds(api, [NEW], clock, field_manager="test")
    assert await versions(api) == ["v1", "v1alpha1"]
    assert caplog.records == []
