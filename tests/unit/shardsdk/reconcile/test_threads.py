"""Plain functions as reconciles: real threads, a real event loop."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from random import Random
from typing import Any

import pytest
import pytest_asyncio

from shardsdk.cache.cache import Cache
from shardsdk.cache.objects import Request
from shardsdk.errors import ConfigurationError, LeaseLost
from shardsdk.kube.clock import SystemClock
from shardsdk.protocol.objects import ObjectMeta, PartialObject, Resource
from shardsdk.queueing.functions import is_async
from shardsdk.queueing.queue import WorkQueue
from shardsdk.queueing.workers import WorkerPool
from shardsdk.reconcile.applied import Applied, AppliedFor
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


async def test_what_a_plain_function_reads_of_a_cache_is_read_on_the_loop_which_changes_it(
    context: Ctx, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[threading.Thread] = []
    by_index = Cache.by_index

    def note(cache: Cache[Any], index: str, value: str, *, namespace: str | None = None) -> list[Any]:
        asked.append(threading.current_thread())
        return by_index(cache, index, value, namespace=namespace)

    monkeypatch.setattr(Cache, "by_index", note)

    def work(context: Ctx) -> tuple[int, bool]:
        cache = context.cache(SECRETS)
        context.run(cache.wait_synced())
        body = {"metadata": {"name": "child", "ownerReferences": [context.controller_reference()]}}
        context.run(context.api.create(SECRETS, body, "default"))
        while not len(cache):
            pass
        with pytest.raises(KeyError):
            cache.by_index("none", "")
        return len(cache.by_index("controller", "u", namespace="default")), cache.synced

    assert await Threads(1).wrap(work)(context) == (1, True)
    assert set(asked) == {threading.main_thread()}
    cache = context.cache(SECRETS)
    assert isinstance(cache, Cache), "on the loop it is the cache itself"


async def test_what_a_plain_function_says_that_it_applies_is_noted_on_the_loop_which_notes_the_rest(
    context: Ctx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two records of what one reconcile has applied, the children in the lost one would be pruned."""
    made: list[threading.Thread] = []
    of = Applied.of

    def note(applied: Applied, uid: str) -> AppliedFor:
        made.append(threading.current_thread())
        return of(applied, uid)

    monkeypatch.setattr(Applied, "of", note)
    await Threads(1).wrap(lambda context: context.note_applied(SECRETS, "child", "default"))(context)
    assert context.applied is not None
    assert context.applied.names == {(SECRETS.group_resource, Request("default", "child"))}
    assert made == [threading.main_thread()]


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


async def test_a_function_that_is_cancelled_before_there_is_a_thread_for_it_never_begins(context: Ctx) -> None:
    may_end, called, threads = threading.Event(), list[Ctx](), Threads(1)
    running = asyncio.ensure_future(threads.wrap(lambda _: may_end.wait(10))(context))
    waiting = asyncio.ensure_future(threads.wrap(called.append)(context))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not may_end.is_set()
    may_end.set()
    assert await running
    assert await threads.wrap(lambda _: "next")(context) == "next"
    assert called == []


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_function_for_which_no_thread_can_be_started_never_begins(
    context: Ctx, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    """As at a pod's limit of processes; the thread of another one would begin it `meanwhile`, or once it is free."""
    may_end, called, threads = threading.Event(), list[Ctx](), Threads(2)
    running = asyncio.ensure_future(threads.wrap(lambda _: may_end.wait(10))(context))
    await asyncio.sleep(0)

    def fail(thread: threading.Thread) -> None:
        if meanwhile:
            may_end.set()
            time.sleep(0.1)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await threads.wrap(called.append)(context)
    assert threads.running == 1
    may_end.set()
    assert await running
    assert await threads.wrap(lambda _: "next")(context) == "next"
    assert await threads.wrap(lambda _: "and another")(context) == "and another"
    assert called == []


async def test_in_a_process_that_was_forked_a_context_refuses(context: Ctx, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the event loop, whose answer it would wait for, never takes a turn."""
    assert context.remaining_seconds > 0
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ConfigurationError, match="forked"):
        context.run(context.api.delete(SECRETS, "x", "default"))
    with pytest.raises(ConfigurationError, match="forked"):
        context.read(lambda: 1)
    assert context.remaining_seconds < 0


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


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """As decorators of tracing and metrics are written."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


class Called:
    async def __call__(self, context: Ctx) -> None: ...


async def awaited(context: Ctx) -> None: ...


def plain(context: Ctx) -> None: ...


@functools.wraps(plain)
async def made_async(context: Ctx) -> None: ...


@pytest.mark.parametrize("function", [awaited, functools.partial(awaited), Called(), made_async])
def test_an_async_function_is_async(function: Callable[..., Any]) -> None:
    assert is_async(function)


@pytest.mark.parametrize("function", [plain, traced(plain), functools.partial(plain), traced(awaited)])
def test_a_plain_function_is_plain_whatever_it_decorates(function: Callable[..., Any]) -> None:
    """It may have a loop of its own, and so needs a thread."""
    assert not is_async(function)


def in_its_own_loop(function: Callable[[Ctx], Coroutine[Any, Any, Any]]) -> Callable[[Ctx], Any]:
    @functools.wraps(function)
    def call(context: Ctx) -> Any:
        return asyncio.run(function(context))

    return call


@pytest.mark.parametrize(
    ("decorated", "where"), [(traced, "main"), (lambda each: traced(traced(each)), "main"), (in_its_own_loop, "thread")]
)
async def test_what_a_plain_function_returns_is_awaited_on_the_loop_if_it_has_to_be(
    context: Ctx, decorated: Callable[[Any], Callable[..., Any]], where: str
) -> None:
    async def work(context: Ctx) -> str:
        await asyncio.sleep(0)
        return "main" if threading.current_thread() is threading.main_thread() else "thread"

    threads = Threads(1)
    assert await threads.wrap(decorated(work))(context) == where
    assert threads.running == 0


async def test_a_plain_function_has_the_context_variables_of_whoever_calls_it(context: Ctx) -> None:
    region = contextvars.ContextVar("region", default="none")
    region.set("north")

    def work(context: Ctx) -> str:
        found = region.get()
        region.set("the thread's own")
        return found

    assert await Threads(1).wrap(work)(context) == "north"
    assert region.get() == "north"
