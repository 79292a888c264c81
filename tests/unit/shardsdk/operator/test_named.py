"""Which object a verb of the context means, where it is given an object and a name, or an object for a class."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shardsdk import ConfigurationError, Context, ObjectMeta, Operator
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Website, site

Call = Callable[[Context[Website]], Awaitable[object]]
#: Two of one name; the first where the Website is.
PAGES = [ConfigMap(ObjectMeta(name="page", namespace=each)) for each in ("default", "other")]
OTHERS = ConfigMap(ObjectMeta(name="page", namespace="other"))


def driven(call: Call) -> Rig:
    operator = Operator("websites")
    operator.needs(ConfigMap, "get", "patch", "delete")

    @operator.reconcile(Website)
    async def website(ctx: Context[Website]) -> None:
        await call(ctx)

    return drive(operator, [site(), *PAGES])


def namespaces(rig: Rig) -> list[str]:
    return [each.metadata.namespace for each in rig.objects(ConfigMap)]


@pytest.mark.parametrize(
    ("call", "left"),
    [
        (lambda ctx: ctx.delete(ConfigMap("page"), namespace="other"), ["default"]),
        (lambda ctx: ctx.delete(ConfigMap(), "page", "other"), ["default"]),
        (lambda ctx: ctx.delete(OTHERS), ["default"]),
        (lambda ctx: ctx.delete(OTHERS, "page", "other"), ["default"]),
        (lambda ctx: ctx.delete(ConfigMap("page")), ["other"]),
    ],
)
def test_what_an_object_does_not_say_may_be_said_besides(call: Call, left: list[str]) -> None:
    assert namespaces(driven(call)) == left


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda ctx: ctx.delete(OTHERS, namespace="default"), "whose namespace is 'other', and namespace 'default'"),
        (lambda ctx: ctx.delete(ConfigMap("page"), "cache"), "whose name is 'page', and name 'cache': leave out"),
        (lambda ctx: ctx.get(OTHERS), r"ctx.get\(…\) was given a ConfigMap: name its class, ctx.get\(ConfigMap, name"),
        (lambda ctx: ctx.patch(OTHERS, "page", {}), r"ctx.patch\(…\) was given a ConfigMap: name its class"),
    ],
)
def test_what_is_said_of_an_object_against_itself_is_refused(call: Any, says: str) -> None:
    """Else another object would be deleted, or one that is there would look as if it were gone."""
    with pytest.raises(ConfigurationError, match=says):
        driven(call)
