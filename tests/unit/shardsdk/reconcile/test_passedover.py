"""Writes of which nothing would come are refused; what may be meant is not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec
import pytest
from msgspec import field

from shardsdk import ConfigurationError, Context, CustomResource, Model, ObjectMeta, Operator, Resource
from shardsdk.kinds import ConfigMap, Deployment, Kind, Service
from shardsdk.reconcile.passedover import check_patch
from shardsdk.testing import Rig, drive


class PartStatus(Model):
    ready_since: str = ""


class HomeSpec(Model):
    page_title: str = ""
    home_owners: list[PartStatus] | None = None
    by_room: dict[str, PartStatus] = {}


class HomeStatus(Model):
    ready_replicas: int = 0
    phase: str = "New"


class Home(CustomResource[HomeSpec, HomeStatus], group="example.com", version="v1"):
    """It has a status."""


class Shed(CustomResource[HomeSpec, None], group="example.com", version="v1"):
    """It has none."""


@dataclass
class Heat:
    degrees: int = 20


class Stove(CustomResource[HomeSpec, Heat], group="example.com", version="v1"):
    """Of its status the defaults are sent, too."""


class Widget(Kind):
    """Nobody says whether its status has a subresource."""

    resource = Resource("example.com", "v1", "widgets", "Widget")
    spec: HomeSpec = field(default_factory=HomeSpec)
    status: HomeStatus = field(default_factory=HomeStatus)


@pytest.mark.parametrize("kind", [Home, Deployment, Service])
def test_a_status_is_patched_by_its_subresource(kind: type[Kind]) -> None:
    with pytest.raises(ConfigurationError, match=rf'ctx.patch\({kind.__name__}, .* pass subresource="status"'):
        check_patch(kind, {"status": {}}, "")
    check_patch(kind, {"status": {}}, "status")


@pytest.mark.parametrize("kind", [Widget, Shed, ConfigMap])
def test_a_status_that_may_have_no_subresource_is_sent_as_it_is(kind: type[Kind]) -> None:
    check_patch(kind, {"status": {}}, "")


@pytest.mark.parametrize(
    ("changes", "place", "name"),
    [
        ({"status": {"ready_replicas": 1}}, "status.ready_replicas", "readyReplicas"),
        ({"spec": {"home_owners": [{}, {"ready_since": "now"}]}}, "spec.home_owners", "homeOwners"),
        ({"spec": {"homeOwners": [{}, {"ready_since": "now"}]}}, r"spec.homeOwners\[\].ready_since", "readySince"),
        ({"spec": {"byRoom": {"my_room": {"ready_since": ""}}}}, "spec.byRoom.my_room.ready_since", "readySince"),
        ({"metadata": {"owner_references": []}}, "metadata.owner_references", "ownerReferences"),
    ],
)
def test_a_field_has_its_name_on_the_wire(changes: dict[str, Any], place: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"by {place}: a patch has the names of the wire, so write {name}"):
        check_patch(Home, changes, "status")


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (Home, {"metadata": {"labels": {"ready_replicas": "1", "owner_references": "x"}}}),
        (Home, {"spec": {"byRoom": {"page_title": None, "ready_since": {"readySince": "x"}}}}),
        (Home, {"spec": {"not_declared": 1, "pageTitle": None}, "page_title": 1}),
        (Home, {"spec": None}),
        (ConfigMap, {"data": {"api_version": "x", "binary_data": "y"}}),
    ],
)
def test_names_that_are_free_are_sent_as_they_are(kind: type[Kind], changes: dict[str, Any]) -> None:
    check_patch(kind, changes, "")


def applied_by(function: Any, *owned: type[Kind]) -> Rig:
    operator = Operator("homes")
    operator.reconcile(Shed, owns=owned)(function)
    operator.needs(Resource("example.com", "v1", "homes/status", "Home"), "patch")
    return drive(operator, [Shed("mine", HomeSpec())])


def test_a_patch_that_would_be_passed_over_ends_the_reconcile() -> None:
    async def reconcile(ctx: Context[Shed]) -> None:
        await ctx.patch(Home, "mine", {"status": {"readyReplicas": 1}})

    with pytest.raises(ConfigurationError, match=r'pass subresource="status"'):
        applied_by(reconcile)


def test_a_status_that_is_made_is_not_applied() -> None:
    async def reconcile(ctx: Context[Shed]) -> None:
        await ctx.apply(Home("mine", HomeSpec(), HomeStatus(3)))

    with pytest.raises(ConfigurationError, match=r"ctx.apply\(Home\(…\)\) does not apply a status: leave it out"):
        applied_by(reconcile, Home)


class Dated(Model):
    since: float = field(default_factory=count(1.0).__next__)


class Cake(CustomResource[HomeSpec, Dated], group="example.com", version="v1"):
    """Its status is never the same, though nobody has made it."""


def test_a_status_that_says_nothing_is_left_out() -> None:
    printed = {  # by kubectl create service clusterip web --tcp=80 --dry-run=client -o yaml
        "metadata": {"creationTimestamp": None, "name": "web"},
        "spec": {"ports": [{"name": "80", "port": 80}], "selector": {"app": "web"}, "type": "ClusterIP"},
        "status": {"loadBalancer": {}},
    }

    async def reconcile(ctx: Context[Shed]) -> None:
        await ctx.apply(msgspec.convert(printed, Service))
        await ctx.apply(Home("mine", HomeSpec(), HomeStatus(phase="")))
        await ctx.apply(Cake("birthday", HomeSpec()))

    rig = applied_by(reconcile, Service, Home, Cake)
    assert [name for _, _, name in rig.writes] == ["web", "mine", "birthday"]


def test_an_object_that_was_read_is_applied_with_its_status() -> None:
    async def reconcile(ctx: Context[Shed]) -> None:
        if ctx.child(Home) is not None:
            return
        await ctx.apply(Home(ObjectMeta(name="mine"), HomeSpec(), HomeStatus()))
        await ctx.apply(Stove())
        await ctx.patch(Home, "mine", {"status": {"readyReplicas": 3}}, subresource="status")
        read = await ctx.get(Home, "mine")
        assert read is not None
        assert read.status.ready_replicas == 3
        read.spec.page_title = "Mine"
        await ctx.apply(read)

    rig = applied_by(reconcile, Home, Stove)
    assert rig.get(Home, "mine").spec.page_title == "Mine"
    assert rig.get(Home, "mine").status.ready_replicas == 3
