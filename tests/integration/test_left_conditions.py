"""What `Permanent` has left in a status, on a real API server: whose it is stands in `managedFields`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest

from localcluster import AdminClient, ControlPlane
from shardsdk import Condition, Context, CustomResource, Model, Operator, Permanent
from shardsdk.errors import NotServed
from shardsdk.kinds import Kind, body_of, crd_of
from shardsdk.process.process import ExitCode
from shardsdk.protocol.objects import Resource
from tests.integration.served import served

FLAGS: Final = "left.example.com/v1/flags"
SINCE: Final = "2020-01-01T00:00:00Z"
THEIRS: Final = {"type": "Theirs", "status": "False", "reason": "None", "message": "no", "lastTransitionTime": SINCE}


class FlagSpec(Model):
    colour: str = ""


class FlagStatus(Model):
    conditions: list[Condition] = msgspec.field(default_factory=list)


class Flag(CustomResource[FlagSpec, FlagStatus], group="left.example.com", version="v1"):
    """Of which one colour cannot be."""


class Unserved(Kind):
    """Of a group that is served."""

    resource = Resource("left.example.com", "v1", "banners", "Banner")


class Nowhere(Kind):
    """Of a group that is not."""

    resource = Resource("nowhere.example.com", "v1", "banners", "Banner")


def flags(seen: list[Any]) -> Operator:
    operator = Operator("flags")

    @operator.reconcile(Flag)
    async def function(ctx: Context[Flag]) -> None:
        for kind in (Unserved, Nowhere):
            seen.append(await ctx.delete(kind, "a"))
            try:
                seen.append(await ctx.get(kind, "a"))
            except NotServed as error:
                seen.append(type(error))
        if ctx.object.spec.colour == "none":
            raise Permanent("no such colour", reason="NoColour")

    return operator


@asynccontextmanager
async def running(operator: Operator, plane: ControlPlane, namespace: str) -> AsyncIterator[None]:
    manager = operator.manager(
        namespace=namespace, watch_namespace=namespace, kubeconfig=str(plane.admin_kubeconfig)
    )  # fmt: skip
    process = asyncio.create_task(manager.run_async())
    try:
        yield
    finally:
        manager.stopping.set()
        assert await process is ExitCode.OK


@pytest.mark.parametrize("before", [(), (THEIRS,)])
async def test_the_next_process_takes_back_what_the_last_one_has_said(
    control_plane: ControlPlane, admin: AdminClient, namespace: str, before: tuple[Any, ...]
) -> None:
    def says(*types: str) -> Any:
        def look(objects: list[dict[str, Any]]) -> Any:
            return [each["type"] for each in objects[0].get("status", {}).get("conditions", ())] == list(types)

        return look

    theirs = [each["type"] for each in before]
    async with served(control_plane, crd_of(Flag)):
        await admin.create(FLAGS, body_of(Flag("a", FlagSpec("none"))), namespace)
        if before:
            await admin.patch(FLAGS, "a", {"status": {"conditions": list(before)}}, namespace, subresource="status")
        async with running(flags([]), control_plane, namespace):
            await admin.eventually(FLAGS, says(*theirs, "Ready"), namespace)
        await admin.patch(FLAGS, "a", {"spec": {"colour": "red"}}, namespace)
        seen: list[Any] = []
        async with running(flags(seen), control_plane, namespace):
            await admin.eventually(FLAGS, says(*theirs), namespace)
        assert set(seen) == {False, NotServed}
