"""An operator goes from elected to sharded and back, on a real API server: its forms take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from localcluster import AdminClient, ControlPlane
from shardsdk import Context, LeaseTimings, Operator
from shardsdk.kinds import Secret
from shardsdk.process.process import ExitCode
from shardsdk.process.world import load_world
from shardsdk.protocol.labels import parse_ring_name

TIMEOUT_SECONDS: Final = 60.0
#: Longer than a form that may begin takes to do so.
QUIET_SECONDS: Final = 5.0


class Form:
    """One of the two, and whether it works."""

    def __init__(self, name: str, namespace: str, *, sharded: bool) -> None:
        self.reconciles = 0
        operator = Operator(name, sharded=sharded, watch_namespace=namespace, timings=LeaseTimings(15, 10, 1))

        @operator.reconcile(Secret)
        async def note(ctx: Context[Secret]) -> None:
            self.reconciles += 1
            ctx.requeue(after=0.2)

        self.manager = operator.manager(namespace=namespace, shard="one" if sharded else None)

    async def until_it_works(self) -> None:
        before = self.reconciles
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self.reconciles == before:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running(form: Form, plane: ControlPlane) -> AsyncIterator[Callable[[], object]]:
    """It runs until the block ends, or what is given is called and the process has ended."""
    manager = form.manager
    world = replace(await load_world(str(plane.admin_kubeconfig), None, manager.metrics), signals=False, serve=False)
    process = asyncio.create_task(manager.run_async(world))
    try:
        yield manager.stopping.set
    finally:
        manager.stopping.set()
        assert await process is ExitCode.OK


async def test_the_form_that_comes_begins_when_the_other_has_ended(
    control_plane: ControlPlane, admin: AdminClient, namespace: str
) -> None:
    name = f"pages-{namespace}"[:40].rstrip("-")
    metadata = {"name": "home", "labels": {parse_ring_name(name).shard: "one"}}
    await admin.create("v1/secrets", {"metadata": metadata}, namespace)
    elected, sharded, again = (Form(name, namespace, sharded=each) for each in (False, True, False))
    async with running(elected, control_plane) as stop_elected:
        await elected.until_it_works()
        async with running(sharded, control_plane) as stop_sharded:
            await asyncio.sleep(QUIET_SECONDS)
            assert sharded.reconciles == 0
            stop_elected()
            await sharded.until_it_works()
            async with running(again, control_plane):
                await asyncio.sleep(QUIET_SECONDS)
                assert again.reconciles == 0
                stop_sharded()
                await again.until_it_works()
