"""A definition that says less than the one on the cluster is installed, and what that costs is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shardsdk import CustomResource, Model
from shardsdk.errors import NotFound
from shardsdk.kinds import crd_of
from shardsdk.kube.api import RawRequest
from shardsdk.kube.definitions import CRDS, apply_crds, lost_fields
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
    more["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] |= {"kind": {}, "metadata": {}}
    more["spec"]["versions"].append({**copy.deepcopy(NEW["spec"]["versions"][0]), "name": "v2"})
    assert list(lost_fields(more, NEW)) == []


@in_virtual_time
async def test_what_an_older_program_takes_away_is_told(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    class Listing(MemoryApi):
        async def exchange(self, request: RawRequest) -> bytes:
            if request.path == "/apis/example.com/v1":
                return b'{"resources": [{"name": "shelfs"}]}'
            raise NotFound(request.path, status=404)

    api = Listing(MemoryServer(), clock)
    api.server.create(CRDS, NEW)
    established = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
    api.server.patch(CRDS, "shelfs.example.com", None, established, subresource="status")
    for given in (NEW, without(f"{SPEC}/height")):
        await apply_crds(api, [given], clock, field_manager="test")
    (line,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert line.msg == "The definition lacks fields that the one on the cluster has; what objects hold there is lost"
    assert line.__dict__["object"] == "shelfs.example.com"
    assert line.__dict__["fields"] == "v1: spec.height"
