"""A loop of one's own whose body is cancelled: its lease stays as long as anything is worked on."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.protocol.namespaces import CoveredNamespaces
from shardsdk.protocol.ranges import EVERYWHERE
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import NAMESPACE, lease_in
from tests.ranges_rig import RangesWorld
from tests.unit.shardsdk.process.test_share import COVERED, Loop, work_until


@pytest.mark.parametrize("covered", [COVERED, None], ids=["by ranges", "by labels"])
@in_virtual_time
async def test_the_lease_is_kept_under_a_block_however_often_its_body_is_cancelled(
    clock: VirtualClock, covered: CoveredNamespaces | None
) -> None:
    loop = Loop(RangesWorld(clock), "a", covered)
    ended = asyncio.Event()

    async def body() -> None:
        async with loop.working(EVERYWHERE) as share:
            blocks.append(asyncio.create_task(work_until(share, ended)))
            await asyncio.sleep(600)

    blocks: list[asyncio.Task[None]] = []
    running = asyncio.create_task(body())
    await loop.world.until(lambda: bool(blocks))
    for _ in range(3):
        await asyncio.sleep(1)
        running.cancel()
    await asyncio.sleep(30)
    kept = lease_in(loop.world.server, "a", NAMESPACE)
    assert kept is not None
    assert kept.holder == "a"
    assert not running.done()
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    left = lease_in(loop.world.server, "a", NAMESPACE)
    assert left is not None
    assert left.holder == ""
