"""What has left this shard and is back, though no event showed that: the last that was seen of it was its drain."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from shardsdk import Context, CustomResource, Operator, Permanent
from shardsdk.protocol.objects import PartialObject
from shardsdk.testing import Rig as Driven
from shardsdk.testing import drive
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, SECRETS, Lag, Rig, come_back_unseen
from tests.unit.shardsdk.operator.websites import WebsiteSpec


class Plain(CustomResource[WebsiteSpec, None], group="example.com", version="v1"):
    """It has no status."""


@in_virtual_time
async def test_its_children_are_listed_anew_though_a_write_in_doubt_had_them_listed_while_it_was_drained(
    clock: VirtualClock,
) -> None:
    rig = Rig(clock)
    rig.secret("owner")
    rig.child("owner", "old")
    seen: list[list[str]] = []
    drained = asyncio.Event()

    async def look(context: Context[PartialObject]) -> None:
        seen.append([child.metadata.name for child in context.children(CONFIGMAPS)])
        if len(seen) > 1:
            return
        await drained.wait()
        rig.api.delay = lambda: 2.0
        metadata = {"name": "old", "ownerReferences": [context.controller_reference()]}
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await context.api.create(CONFIGMAPS, {"metadata": metadata}, "default")
        rig.api.delay = lambda: 0.001

    async with rig.shard(look):
        await clock.sleep(5)
        children, owners = Lag(rig, CONFIGMAPS, 0), Lag(rig, SECRETS, 0)
        rig.drain("owner")
        await clock.sleep(0.01)
        owners.seconds = 1000
        drained.set()
        await clock.sleep(30)
        assert rig.labels("owner") == {}
        await come_back_unseen(rig, "owner", children, old="old", new="new")
    assert seen == [["old"], ["new"]]


def test_what_failed_for_good_after_its_drain_was_seen_is_tried_again() -> None:
    operator, calls, drained = Operator("plains", sharded=True), list[str](), asyncio.Event()

    @operator.reconcile(Plain)
    async def function(ctx: Context[Any]) -> None:
        calls.append(ctx.name)
        if len(calls) == 1:
            await drained.wait()
            raise Permanent("never")

    async def story(rig: Driven) -> None:
        rig.create(Plain("home", WebsiteSpec("")))
        await rig.clock.sleep(1)
        labels = rig.labels(Plain, "home")
        rig.drain(Plain, "home")
        await rig.clock.sleep(1)
        rig.api.lag = lambda: 1000.0
        drained.set()
        await rig.settle()
        assert rig.labels(Plain, "home") == {}
        rig.patch(Plain, "home", {"metadata": {"labels": labels}})
        rig.api.lag = lambda: 0.001
        assert rig._manager._workload is not None
        (main,) = rig._manager._workload._resources.values()
        main.cache._reflectors[None].restart()
        await rig.settle()
        assert rig.explain(Plain, "home") == "default/home: waits for its next event"

    drive(operator, [], story)
    assert calls == ["home", "home"]
