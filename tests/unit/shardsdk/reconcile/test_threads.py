"""Plain functions as reconciles: real threads, a real event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource
from shardsdk.queueing.queue import WorkQueue
from shardsdk.queueing.workers import WorkerPool
from shardsdk.reconcile.context import Context
from shardsdk.reconcile.threads import Threads
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi

SECRETS = Resource("", "v1", "secrets", "Secret")
Ctx = Context[PartialObject]
WHO = Request("default", "x")


@pytest_asyncio.fixture
async def context() -> AsyncIterator[Ctx]:
    clock = SystemClock()
    api = MemoryApi(MemoryServer(), clock)
    cache: Cache[PartialObject] = Cache(api, SECRETS, clock=clock, rng=Random(1))
    running = asyncio.create_task(cache.run())
    await cache.wait_synced()
    metadata = ObjectMeta(name="x", namespace="default", uid="u")
    yield Context(WHO, PartialObject(metadata), metadata, SECRETS, api, {SECRETS.group_resource: cache})
    running.cancel()
    await asyncio.wait([running])


async def test_a_plain_function_writes_and_reads_through_the_loop(context: Ctx) -> None:
    def work(context: Ctx) -> str:
        assert threading.current_thread() is not threading.main_thread()
        body = {"metadata": {"name": "child", "ownerReferences": [context.controller_reference()]}}
        context.run(context.api.create(SECRETS, body, "default"))
        while not context.children(SECRETS):
            pass
        child = context.child(SECRETS, "child")
        assert child is not None
        return str(child.metadata.name)

    assert await Threads(1).wrap(work)(context) == "child"


async def test_run_is_refused_on_the_event_loop_which_would_wait_for_itself(context: Ctx) -> None:
    with pytest.raises(ConfigurationError, match="await the call"):
        context.run(context.api.get(SECRETS, "child", "default"))


async def test_what_a_plain_function_raises_comes_out(context: Ctx) -> None:
    def work(context: Ctx) -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await Threads(1).wrap(work)(context)


async def test_reading_what_is_not_owned_is_an_error_in_a_thread_too(context: Ctx) -> None:
    def work(context: Ctx) -> None:
        context.children(Resource("", "v1", "pods", "Pod"))

    with pytest.raises(ConfigurationError):
        await Threads(1).wrap(work)(context)


async def test_a_cancelled_function_is_told_and_may_not_write_and_is_waited_for(context: Ctx) -> None:
    begun, told, may_end = threading.Event(), threading.Event(), threading.Event()
    refused: list[BaseException] = []

    def work(context: Ctx) -> None:
        begun.set()
        while not context.cancelled:
            pass
        told.set()
        try:
            context.run(context.api.delete(SECRETS, "x", "default"))
        except LeaseLost as error:
            refused.append(error)
        may_end.wait(10)

    threads = Threads(1)
    running = asyncio.ensure_future(threads.wrap(work)(context))
    await asyncio.to_thread(begun.wait, 10)
    running.cancel()
    await asyncio.to_thread(told.wait, 10)
    assert not running.done()
    assert threads.running == 1
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert refused


async def test_a_function_is_waited_for_however_often_it_is_cancelled(context: Ctx) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work(context: Ctx) -> None:
        begun.set()
        may_end.wait(10)

    running = asyncio.ensure_future(Threads(1).wrap(work)(context))
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(3):
        running.cancel()
        await asyncio.wait([running], timeout=0.01)
        assert not running.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_item_stays_busy_beyond_its_limit_until_the_function_returns(context: Ctx) -> None:
    may_end, calls = threading.Event(), []

    def stuck(context: Ctx) -> None:
        calls.append(threading.get_ident())
        may_end.wait(10)

    call = Threads(4).wrap(stuck)
    queue: WorkQueue[Request] = WorkQueue(SystemClock())
    controller = WorkerPool(
        "test", lambda _: call(context), queue, clock=SystemClock(), concurrency=4, timeout_seconds=0.05
    )
    running = asyncio.create_task(controller.run())
    queue.add(WHO)
    while not calls:
        await asyncio.sleep(0.01)
    queue.add(WHO)
    await asyncio.sleep(0.2)  # four times its limit
    assert len(calls) == 1
    assert controller.running == 1
    may_end.set()
    while len(calls) < 2:
        await asyncio.sleep(0.01)
    await queue.shut_down()
    await running


async def test_a_function_that_raises_stop_iteration_has_failed(context: Ctx) -> None:
    threads = Threads(1)

    def work(context: Ctx) -> None:
        next(iter(list[str]()))

    async with asyncio.timeout(60):
        with pytest.raises(RuntimeError, match="the function raised StopIteration") as raised:
            await threads.wrap(work)(context)
    assert isinstance(raised.value.__cause__, StopIteration)
    assert threads.running == 0
