"""What a ShardLease takes for its body: the task that has entered it, and functions in threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.kube.clock import SystemClock
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.lease_rig import NAMESPACE, RING, SHARD, Rig, connecting, lease_in

ROOT = Path(__file__).parents[4]
TIMINGS = LeaseTimings(lease_duration=2, renew_deadline=1.4, retry_period=0.2)


class Stage:
    """A lease in real time, of which `told` says that its deadline was told, and a function that works until `done`."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.api = MemoryApi(self.server, SystemClock())
        self.told, self.begun, self.done = threading.Event(), threading.Event(), threading.Event()
        self.lease = ShardLease(
            connecting(self.api), RING, SHARD, NAMESPACE,
            instance="uid-1", timings=TIMINGS, on_deadline=self.told.set,
        )  # fmt: skip

    def work(self) -> str:
        self.begun.set()
        self.done.wait(40)
        return "done"

    @property
    def holder(self) -> str:
        found = lease_in(self.server, SHARD)
        assert found is not None
        return found.holder


async def soon(event: threading.Event) -> None:
    """Wait for it without a thread."""
    async with asyncio.timeout(40):
        while not event.is_set():
            await asyncio.sleep(0.02)


async def test_it_gives_what_a_function_returns_or_raises() -> None:
    stage = Stage()
    async with stage.lease as lease:
        assert await lease.to_thread(int, "10", base=16) == 16
        with pytest.raises(ValueError, match="invalid literal"):
            await lease.to_thread(int, "x")
        with pytest.raises(RuntimeError, match="StopIteration"):
            await lease.to_thread(next, iter(()))


async def test_without_the_lease_nothing_is_begun_in_a_thread() -> None:
    stage = Stage()
    with pytest.raises(LeaseLost, match="nothing is begun in a thread"):
        await stage.lease.to_thread(stage.work)
    async with stage.lease:
        pass
    with pytest.raises(LeaseLost, match="nothing is begun in a thread"):
        await stage.lease.to_thread(stage.work)
    assert not stage.begun.is_set()


async def test_of_a_lost_lease_the_deadline_is_told_while_a_function_still_works() -> None:
    stage = Stage()

    async def work() -> None:
        async with stage.lease as lease:
            working = asyncio.create_task(lease.to_thread(stage.work))
            await soon(stage.begun)
            stage.api.fault = Fault.LOST
            await working

    task = asyncio.create_task(work())
    await soon(stage.told)
    assert stage.lease.fence.remaining() <= 0
    assert not task.done()
    stage.done.set()
    with pytest.raises(LeaseLost, match="not renewed"):
        await task


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_body_that_is_cancelled_keeps_its_lease_until_its_functions_have_returned(awaited: bool) -> None:
    stage = Stage()

    async def work() -> None:
        async with stage.lease as lease:
            working = asyncio.create_task(lease.to_thread(stage.work))
            if awaited:
                await working
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await soon(stage.begun)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.8)
        assert (stage.holder, task.done()) == (SHARD, False)
    stage.done.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stage.holder == ""
    assert not stage.told.is_set()


async def test_a_body_that_has_ended_keeps_its_lease_until_its_functions_have_returned() -> None:
    stage = Stage()

    async def work() -> None:
        async with stage.lease as lease:
            working.append(asyncio.create_task(lease.to_thread(stage.work)))
            await soon(stage.begun)

    working = list[asyncio.Task[str]]()
    task = asyncio.create_task(work())
    await soon(stage.begun)
    await asyncio.sleep(2.5)
    assert (stage.holder, task.done()) == (SHARD, False)
    task.cancel()  # whoever asks for it is heard, afterwards
    await asyncio.sleep(0.1)
    stage.done.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stage.holder, await working[0]) == ("", "done")


async def test_a_lease_that_is_lost_while_only_functions_work_is_told_too() -> None:
    stage = Stage()

    async def work() -> None:
        async with stage.lease as lease:
            working.append(asyncio.create_task(lease.to_thread(stage.work)))
            await soon(stage.begun)

    working = list[asyncio.Task[str]]()
    task = asyncio.create_task(work())
    await soon(stage.begun)
    stage.api.fault = Fault.LOST
    await soon(stage.told)
    stage.done.set()
    with pytest.raises(LeaseLost, match="not renewed"):
        await task
    assert await working[0] == "done"


# -- what the body has left in threads that the lease was not told of ----------

#: A program that loses its lease, in whose default executor something goes on; it tells what becomes of it.
LEFT = """
import asyncio, os, threading, time
from shardsdk import LeaseLost, LeaseTimings, ShardLease
from shardsdk.kube.clock import SystemClock
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from tests.lease_rig import connecting

def die():
    os.write(1, b"deadline %d" % (lease.fence.remaining() <= 0))
    os._exit(3)

api = MemoryApi(MemoryServer(), SystemClock())
lease = ShardLease(
    connecting(api), "example", "shard-a", "default", instance="uid-1", on_deadline=die,
    timings=LeaseTimings(lease_duration=2, renew_deadline=1.4, retry_period=0.2),
)

def work():
    time.sleep({seconds})

async def main():
    try:
        async with lease:
            api.fault = Fault.LOST
            {body}
    except LeaseLost:
        {after}

asyncio.run(main())
os.write(1, b"ended")
os._exit(0)
"""


def ends(*, body: str, after: str, seconds: float) -> tuple[str, int]:
    program = LEFT.format(body=body, after=after, seconds=seconds)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    return done.stdout, done.returncode


@pytest.mark.parametrize("after", ["pass", "await asyncio.sleep(3)"], ids=["at once", "later"])
def test_a_program_that_ends_and_waits_for_threads_is_told_the_deadline(after: str) -> None:
    assert ends(body="await asyncio.to_thread(work)", after=after, seconds=60) == ("deadline 1", 3)


def test_a_program_that_goes_on_is_told_nothing_and_ends_by_itself() -> None:
    """Whether it had threads or not: it answers for them."""
    body, after = "await asyncio.to_thread(work)", "await asyncio.sleep(4)"
    assert ends(body=body, after=after, seconds=3) == ("ended", 0)


def test_a_program_that_has_gone_on_for_long_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its loop waits for then is something else."""
    after = "import shardsdk.lease.hold as hold; hold._GONE_ON_SECONDS = 1; await asyncio.sleep(3)"
    later = f"{after}; asyncio.get_running_loop().run_in_executor(None, time.sleep, 3)"
    assert ends(body="await asyncio.sleep(60)", after=later, seconds=0) == ("ended", 0)


# -- a body that nobody can cancel ----------------------------------------------


async def entered_alone(lease: ShardLease) -> None:
    await asyncio.create_task(lease.__aenter__())


async def entered_on_a_stack(lease: ShardLease) -> None:
    async with AsyncExitStack() as stack:
        await asyncio.create_task(stack.enter_async_context(lease))


@pytest.mark.parametrize("enter", [entered_alone, entered_on_a_stack])
@in_virtual_time
async def test_a_task_that_only_enters_is_refused(
    clock: VirtualClock, enter: Callable[[ShardLease], Awaitable[None]]
) -> None:
    """Such as `asyncio.wait_for` makes before Python 3.12."""
    rig = Rig(clock)
    with pytest.raises(ConfigurationError, match=r"asyncio\.timeout"):
        await enter(rig.shard())
    assert rig.lease() is None


@in_virtual_time
async def test_with_a_deadline_it_is_not_for_the_process_is_ended(clock: VirtualClock) -> None:
    rig, told = Rig(clock), list[int]()
    api = rig.api()
    async with AsyncExitStack() as stack:
        lease = await asyncio.create_task(stack.enter_async_context(rig.shard(api, on_deadline=lambda: told.append(1))))
        api.fault = Fault.REFUSED
        await asyncio.wait_for(lease.lost.wait(), 60)
        await asyncio.sleep(30)
        assert told
        with pytest.raises(LeaseLost):
            await stack.aclose()


@in_virtual_time
async def test_an_entering_task_that_has_ended_is_told_of_at_once_and_at_the_loss(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig, stack = Rig(clock), AsyncExitStack()
    api = rig.api()

    async def start() -> ShardLease:
        return await stack.enter_async_context(rig.shard(api))

    lease = await asyncio.create_task(start())
    await asyncio.sleep(0)
    assert "The lease's body cannot be cancelled" in caplog.text
    assert "asyncio.timeout" in caplog.text
    api.fault = Fault.REFUSED
    await asyncio.wait_for(lease.lost.wait(), 60)
    assert "The lease is lost, and its body is not cancelled" in caplog.text
    with pytest.raises(LeaseLost):
        await stack.aclose()


@in_virtual_time
async def test_of_a_body_that_ends_with_its_task_nothing_is_told(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(clock)

    async def work() -> None:
        async with rig.shard():
            await asyncio.sleep(5)

    await asyncio.create_task(work())
    assert "cancelled" not in caplog.text
