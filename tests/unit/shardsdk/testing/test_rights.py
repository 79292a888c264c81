"""An operator that is driven may do what its rights allow, as `shardsdk manifests` grants them, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk import Context, CustomResource, EventType, Model, Operator
from shardsdk.kinds import ConfigMap, Namespace, Secret
from shardsdk.kube.api import PatchKind
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.testing import Rig, RightsLack, drive

CERTIFICATES = Resource("cert-manager.io", "v1", "certificates", "Certificate")


class PageSpec(Model):
    """What is wanted."""

    html: str = ""


class PageStatus(Model):
    """What there is."""

    shown: bool = False


class Page(CustomResource[PageSpec, PageStatus], group="example.com", version="v1"):
    """A page."""


def driven(function: Any, *, rights: bool = True, prepare: Any = None, **options: Any) -> Rig:
    operator = Operator("pages", **options)
    operator.reconcile(Page, owns=[ConfigMap])(function)
    if prepare:
        prepare(operator)
    return drive(operator, [Page("home", PageSpec("hi")), Secret("token"), Secret("other")], rights=rights)


async def applies(ctx: Context[Page]) -> PageStatus:
    await ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html}))
    ctx.event(EventType.NORMAL, "Applied", "it is there")
    return PageStatus(shown=True)


async def reads_secrets(ctx: Context[Page]) -> None:
    for name in ("token", "other"):
        await ctx.get(Secret, name)


@pytest.mark.parametrize("options", [{}, {"sharded": True}, {"watch_namespace": "default"}], ids=str)
def test_what_the_library_does_by_itself_is_granted(options: dict[str, Any]) -> None:
    rig = driven(applies, **options)
    assert rig.get(Page, "home").status == PageStatus(shown=True)
    assert rig.events


@pytest.mark.parametrize("sharded", [False, True])
def test_what_is_not_granted_fails_the_test_with_what_to_write(sharded: bool) -> None:
    with pytest.raises(RightsLack) as raised:
        driven(reads_secrets, sharded=sharded)
    assert str(raised.value).splitlines() == [
        "on a cluster pages would be refused what it did here; say that it needs this:",
        'operator.needs(Secret, "get")',
        "or, where its role is written by hand:",
        '- {apiGroups: [""], resources: [secrets], verbs: [get]}',
    ]
    assert [(each.verb, each.part) for each in raised.value.rights] == [("get", "secrets")]


def test_what_it_says_to_write_is_all_that_lacked() -> None:
    async def much(ctx: Context[Page]) -> None:
        body = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "a"}}
        api = ctx.api
        await api.patch(CERTIFICATES, "a", "default", body, kind=PatchKind.APPLY, field_manager="pages", subresource="")
        await api.patch(CERTIFICATES, "a", "default", {"status": {"ready": True}}, subresource="status")
        await api.delete(Secret.resource, "other", "default")

    with pytest.raises(RightsLack) as raised:
        driven(much)
    remedies = [line for line in str(raised.value).splitlines() if line.startswith("operator.needs")]
    assert remedies == [
        'operator.needs(GroupResource("cert-manager.io", "certificates"), "patch", "create")',
        'operator.needs(GroupResource("cert-manager.io", "certificates/status"), "patch")',
        'operator.needs(Secret, "delete")',
    ]

    def prepare(operator: Operator) -> None:
        for each in remedies:
            exec(each, {"operator": operator, "Secret": Secret, "GroupResource": GroupResource})

    driven(much, prepare=prepare)


def test_rights_in_namespaces_reach_nothing_outside_of_them() -> None:
    async def reads_elsewhere(ctx: Context[Page]) -> None:
        await ctx.api.find(Secret.resource, "a", "elsewhere")

    def prepare(operator: Operator) -> None:
        operator.needs(Secret, "list")

    driven(reads_elsewhere, prepare=prepare)
    with pytest.raises(RightsLack, match="resources: \\[secrets\\], verbs: \\[list\\]"):
        driven(reads_elsewhere, prepare=prepare, watch_namespace="default")


def test_rights_to_what_is_in_no_namespace_hold_beside_those_in_namespaces() -> None:
    async def reads_namespace(ctx: Context[Page]) -> None:
        await ctx.api.find(Namespace.resource, "default")

    driven(reads_namespace, prepare=lambda operator: operator.needs(Namespace, "list"), watch_namespace="default")


def test_a_test_of_something_else_may_leave_rights_out() -> None:
    assert driven(reads_secrets, rights=False).outcomes
