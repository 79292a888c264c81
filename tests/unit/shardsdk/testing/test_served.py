"""Which types a driven operator's API server serves, and what becomes of requests for others."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk import Context, CustomResource, Model, Operator, Resource
from shardsdk.errors import NotServed
from shardsdk.kinds import ConfigMap, Secret, crd_of
from shardsdk.kube import answers
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.definitions import CRDS
from shardsdk.testing import MemoryApi, MemoryServer, Rig, drive


class Spec(Model):
    size: int = 1


class Gate(CustomResource[Spec], group="example.com", version="v1"):
    """Somebody else's."""


CERTIFICATES = Resource("cert-manager.io", "v1", "certificates", "Certificate")


def looking(operator: Operator) -> list[Any]:
    """What its reconcile got of a gate."""
    operator.needs(Gate, "get")
    got: list[Any] = []

    @operator.reconcile(ConfigMap)
    async def look(ctx: Context[ConfigMap]) -> None:
        try:
            got.append(await ctx.get(Gate, "a"))
        except NotServed as error:
            got.append(str(error).partition(" — ")[2])
        await ctx.get(Secret, "a")

    operator.needs(Secret, "get")
    return got


UNSERVED = answers.UNSERVED.removeprefix(" — ")


@pytest.mark.parametrize(
    ("served", "found"),
    [(None, None), ([], UNSERVED), ([CERTIFICATES], UNSERVED), ([Gate], None), ([Gate.resource], None)],
)
def test_it_is_said_which_custom_resources_are_served(served: Any, found: Any) -> None:
    operator = Operator("gates")
    got = looking(operator)
    drive(operator, [ConfigMap("a")], served=served)
    assert got == [found]


def test_what_there_is_an_object_of_is_served() -> None:
    operator = Operator("gates")
    got = looking(operator)
    drive(operator, [ConfigMap("a"), Gate("a", Spec())], served=())
    assert [each.spec.size for each in got] == [1]


def test_a_definition_is_installed_later() -> None:
    operator = Operator("gates")
    got = looking(operator)

    async def story(rig: Rig) -> None:
        rig.create(CRDS, crd_of(Gate))
        rig.patch(ConfigMap, "a", {"data": {"a": "b"}})

    drive(operator, [ConfigMap("a")], story, served=())
    assert got == [UNSERVED, None]


async def test_lists_watches_and_writes_are_refused_alike() -> None:
    api = MemoryApi(MemoryServer(serves=lambda resource: resource != Gate.resource), SystemClock())
    with pytest.raises(NotServed):
        await api.create(Gate.resource, {"metadata": {"name": "a"}}, "default")
    with pytest.raises(NotServed):
        [page async for page in api.pages(Gate.resource, "default")]
    for since in ("1", None):
        with pytest.raises(NotServed):
            [
                each
                async for each in api.watch(Gate.resource, "default", resource_version=since, initial_events=not since)
            ]
