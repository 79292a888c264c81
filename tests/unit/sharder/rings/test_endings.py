"""A ring that is gone leaves nothing running, also where the lead ends while it does."""

from __future__ import annotations

import asyncio

from sharder.rings.ring_controller import RingController
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.sharder.placement.stage import ALONE, leading, make_stage, ring


@in_virtual_time
async def test_that_is_cancelled_while_one_of_its_parts_takes_its_time_to_end(clock: VirtualClock) -> None:
    stage = make_stage(clock)
    stage.set_up(ring(ALONE), "one")
    async with leading(stage) as replica:
        await stage.until_settled()
        assert replica._leader is not None
        controller, ends, before = (
            RingController("gone", replica._leader._deps, replica.cache),
            [0.0],
            asyncio.all_tasks(),
        )

        async def run() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ends.append(clock.monotonic())
                await clock.sleep(1)

        controller.takeover.run = run  # type: ignore[method-assign]
        running = asyncio.create_task(controller.run())
        await stage.until(lambda: len(ends) > 1)
        running.cancel()
        await asyncio.wait((running,))
        await stage.pass_time(5)
        left = {task.get_coro().__qualname__ for task in asyncio.all_tasks() - before}  # type: ignore[union-attr]
        assert not [name for name in left if name.startswith(("RingController", "RemovedResources", "LabelAssignment"))]
