"""What a drain waits for, and what may begin meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientResponseError
from kopf._cogs.aiokits import aiotime
from kopf._cogs.clients import auth
from kopf._cogs.structs.patches import Patch

from shardsdk.contrib import kopf_drains
from shardsdk.contrib.kopf_drains import PATIENCE_SECONDS
from shardsdk.errors import FenceClosed
from shardsdk.testing.memoryapi import Fault
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, RING, SECRETS
from tests.unit.shardsdk.contrib.test_kopf_families import change_child, child_of, end, go
from tests.unit.shardsdk.contrib.test_kopf_gate import CHILDREN, Rig

TOUCH = "kopf.zalando.org/touch-dummy"


class Handlers(Rig):
    """What is done for an object, by its name; nothing for the others."""

    def __init__(self, clock: VirtualClock, **handlers: Callable[[Any], Awaitable[Any]]) -> None:
        super().__init__(clock)
        self.handlers = handlers

    async def process(self, **event: Any) -> str | None:
        await super().process(**event)
        handler = self.handlers.get(event["raw_event"]["object"]["metadata"]["name"])
        if handler is not None:
            await handler(event)
        return None

    @property
    def begun(self) -> list[str]:
        return [name for _, name in self.processed]


def named(line: logging.LogRecord) -> str:
    """What a line says that a drain waits for."""
    start, _, rest = line.getMessage().partition(": ")
    assert start == "A drain waits for what still runs"
    return rest.partition(" ring=")[0]


async def retry_later(event: Any) -> None:
    """As kopf does after a handler that is to be called again in ten minutes."""
    await aiotime.sleep(600, wakeup=event["stream_pressure"])


@in_virtual_time
async def test_a_drain_does_not_wait_for_pauses_before_a_retry(clock: VirtualClock) -> None:
    rig = Handlers(clock, child=retry_later)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    working = go(rig.event("ADDED", child_of(rig, owner), CHILDREN, stream_pressure=asyncio.Event()))
    await clock.sleep(1)
    before = clock.monotonic()
    await rig.event("MODIFIED", rig.change(drain="true"))
    assert clock.monotonic() - before < PATIENCE_SECONDS
    assert rig.labels() == {}
    await working


@in_virtual_time
async def test_a_retry_whose_pause_was_ended_is_made_should_the_object_stay(clock: VirtualClock) -> None:
    rig = Handlers(clock, child=retry_later)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    working = go(rig.event("ADDED", child_of(rig, owner), CHILDREN, stream_pressure=asyncio.Event()))
    await clock.sleep(1)
    daemon = await rig.daemon(owner, lasts=10.0)
    news = asyncio.Event()
    giving = go(rig.event("MODIFIED", rig.change(drain="true"), stream_pressure=news))
    await working
    kept = rig.change(drain=None)
    news.set()
    await asyncio.gather(giving, daemon)
    await rig.event("MODIFIED", kept)
    assert TOUCH in rig.server.get(CONFIGMAPS, "child", "default")["metadata"]["annotations"]


@in_virtual_time
async def test_a_child_that_waits_for_its_owner_keeps_its_event(clock: VirtualClock) -> None:
    rig = Handlers(clock)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    daemon = await rig.daemon(owner, lasts=10.0)
    news = asyncio.Event()
    giving = go(rig.event("MODIFIED", rig.change(drain="true"), stream_pressure=news))
    await clock.sleep(1)
    waiting = go(rig.event("ADDED", child_of(rig, owner), CHILDREN, stream_pressure=asyncio.Event()))
    await clock.sleep(1)
    kept = rig.change(drain=None)
    news.set()
    await asyncio.gather(giving, daemon)
    await rig.event("MODIFIED", kept)
    await waiting
    assert sorted(rig.begun) == ["child", "mine", "mine"]


@in_virtual_time
async def test_a_drain_does_not_wait_for_a_handler_that_waits_for_a_sibling(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    ready = asyncio.Event()

    async def set_up(_: Any) -> None:
        ready.set()

    rig = Handlers(clock, a=lambda _: ready.wait(), b=set_up)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    tasks = [go(rig.event("ADDED", child_of(rig, owner, "a"), CHILDREN))]
    await clock.sleep(1)
    tasks.append(go(rig.event("MODIFIED", rig.change(drain="true"))))
    tasks.append(go(rig.event("ADDED", child_of(rig, owner, "b"), CHILDREN)))
    await clock.sleep(PATIENCE_SECONDS - 1)
    assert rig.begun == ["mine", "a"]
    await asyncio.gather(*tasks)
    assert rig.begun == ["mine", "a", "b"]
    assert rig.labels() == {}
    assert [named(line) for line in caplog.records] == ["handlers of configmaps a"]
    assert vars(caplog.records[0])["object"] == "mine"


@in_virtual_time
async def test_a_sibling_that_is_waited_for_makes_its_retry(clock: VirtualClock) -> None:
    ready = asyncio.Event()
    tries: list[Any] = []

    async def fail_once(event: Any) -> None:
        tries.append(event)
        if len(tries) == 1:
            await retry_later(event)
        else:
            ready.set()

    rig = Handlers(clock, a=lambda _: ready.wait(), b=fail_once)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    child = child_of(rig, owner, "b")
    tasks = [go(rig.event("ADDED", child_of(rig, owner, "a"), CHILDREN))]
    tasks.append(go(rig.event("ADDED", child, CHILDREN, stream_pressure=asyncio.Event())))
    await clock.sleep(1)
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await tasks[1]
    while TOUCH not in (touched := rig.server.get(CONFIGMAPS, "b", "default"))["metadata"].get("annotations", {}):
        await clock.sleep(1)
    await rig.event("MODIFIED", touched, CHILDREN, stream_pressure=asyncio.Event())
    await asyncio.gather(giving, *tasks)
    assert rig.labels() == {}


@in_virtual_time
async def test_children_that_always_have_something_to_do_do_not_keep_their_owner(clock: VirtualClock) -> None:
    rig = Handlers(clock)
    owner = rig.secret()
    await rig.event("ADDED", owner)
    rig.busy_seconds = 4 * PATIENCE_SECONDS

    async def keep_busy(name: str) -> None:
        body = child_of(rig, owner, name)
        for number in range(1000):
            await rig.event("MODIFIED", body, CHILDREN, stream_pressure=asyncio.Event())
            body = change_child(rig, name, annotations={"number": str(number)})

    working = []
    for name in ("a", "b", "c"):
        working.append(go(keep_busy(name)))
        await clock.sleep(PATIENCE_SECONDS)
    async with asyncio.timeout(40 * PATIENCE_SECONDS):
        await rig.event("MODIFIED", rig.change(drain="true"))
    assert rig.labels() == {}
    await end(*working)


@in_virtual_time
async def test_nothing_begins_once_the_last_handler_has_ended(clock: VirtualClock) -> None:
    finish = asyncio.Event()
    rig = Handlers(clock, a=lambda _: finish.wait())
    owner = rig.secret()
    await rig.event("ADDED", owner)
    working = go(rig.event("ADDED", child_of(rig, owner, "a"), CHILDREN))
    await clock.sleep(1)
    settle, written = rig.gate._drains._settle, asyncio.Event()

    async def settle_late() -> None:
        await written.wait()
        await settle()

    rig.gate._drains._settle = settle_late
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(1.5 * PATIENCE_SECONDS)  # the children have their turn
    finish.set()
    await working
    late = go(rig.event("ADDED", child_of(rig, owner, "b"), CHILDREN))
    await clock.sleep(100)
    assert RING.drain in rig.labels()
    written.set()
    await giving
    assert rig.labels() == {}
    assert rig.begun == ["mine", "a"]
    await end(late)


@in_virtual_time
async def test_what_a_drain_waits_for_is_named(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    forever = asyncio.Event()
    names = [f"child-{number}" for number in range(7)]
    rig = Handlers(clock, mine=lambda _: forever.wait(), **dict.fromkeys(names, lambda _: forever.wait()))
    owner = rig.secret()
    working = [go(rig.event("ADDED", owner))]
    await clock.sleep(1)
    working += [go(rig.event("ADDED", child_of(rig, owner, name), CHILDREN)) for name in names]
    await clock.sleep(1)
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(PATIENCE_SECONDS + 1)
    assert [named(line) for line in caplog.records] == [
        "handlers of secrets mine, configmaps child-0, configmaps child-1, configmaps child-2, configmaps child-3, "
        "3 more"
    ]
    await end(giving, *working)
    daemon = await rig.daemon(owner, lasts=1000.0)
    giving = go(rig.event("MODIFIED", rig.change(drain="true")))
    await clock.sleep(PATIENCE_SECONDS + 1)
    assert [named(line) for line in caplog.records[1:]] == ["daemons or timers"]
    await end(giving, daemon)


async def drained_with(rig: Rig, kept: Callable[[Any], Any]) -> tuple[Any, Any]:
    """An object with kopf's finalizer that drains while this is kept of a patch, and what kopf remembers of it."""
    await rig.event("ADDED", rig.secret(finalizers=["example.com/kopf"]))
    drained: Any = rig.change(drain="true")
    memory = await rig.memories.recall(drained)
    memory.remaining_patch = Patch(fns=[kept])
    return drained, memory


@pytest.mark.parametrize("failure", [None, FenceClosed("the lease has run out")])
@in_virtual_time
async def test_what_kopf_has_kept_of_a_patch_is_applied_before_the_object_is_given_away(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, failure: Exception | None
) -> None:
    rig = Rig(clock)
    drained, _ = await drained_with(rig, lambda body: body["metadata"].pop("finalizers"))

    async def apply(*, body: Any, patch: Patch, **_: Any) -> tuple[str, None]:
        if failure is not None:
            raise failure
        assert [each["path"] for each in patch.as_json_patch(body)] == ["/metadata/finalizers"]
        done = rig.server.patch(SECRETS, "mine", "default", {"metadata": {"finalizers": None}})
        return done["metadata"]["resourceVersion"], None

    monkeypatch.setattr(kopf_drains, "patch_and_check", apply)
    await rig.event("MODIFIED", drained)
    if failure is None:
        assert RING.drain in rig.labels()
        await rig.event("MODIFIED", rig.server.get(SECRETS, "mine", "default"))
        assert not rig.server.get(SECRETS, "mine", "default")["metadata"].get("finalizers")
    assert rig.labels() == {}


def annotate(body: Any) -> None:
    """What a handler has put into `patch.fns`."""
    body["metadata"]["annotations"] = {"done": "true"}


@pytest.mark.parametrize("refused", [True, False])
@in_virtual_time
async def test_what_no_api_server_takes_of_a_patch_holds_up_no_drain(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """As where a policy is against it (422), or where all of it is pruned: no newer object is to come then."""
    rig = Rig(clock)
    drained, _ = await drained_with(rig, annotate)

    async def apply(*, body: Any, patch: Patch, **_: Any) -> tuple[str | None, Patch | None]:
        return (None, Patch(fns=patch.fns)) if refused else (body["metadata"]["resourceVersion"], None)

    monkeypatch.setattr(kopf_drains, "patch_and_check", apply)
    await rig.event("MODIFIED", drained)
    assert rig.labels() == {}


@in_virtual_time
async def test_what_met_a_newer_object_again_is_kept_for_that_one(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(clock)
    drained, memory = await drained_with(rig, annotate)
    rig.server.patch(SECRETS, "mine", "default", {"metadata": {"annotations": {"a": "b"}}})

    async def refuse(*, patch: Patch, **_: Any) -> tuple[None, Patch]:
        return None, Patch(fns=patch.fns)

    monkeypatch.setattr(kopf_drains, "patch_and_check", refuse)
    await rig.event("MODIFIED", drained)
    assert RING.drain in rig.labels()
    assert memory.remaining_patch


@in_virtual_time
async def test_what_fails_in_a_handlers_own_patch_ends_no_operator(clock: VirtualClock) -> None:
    rig = Rig(clock)
    drained, _ = await drained_with(
        rig, lambda body: body["metadata"]["finalizers"].remove("of somebody who has removed it")
    )
    await rig.event("MODIFIED", drained)
    assert rig.labels() == {}


@in_virtual_time
async def test_what_kopf_has_kept_of_a_patch_outlasts_an_outage(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(clock)
    drained, _ = await drained_with(rig, lambda body: body["metadata"].pop("finalizers"))

    async def apply(**_: Any) -> tuple[str, None]:
        if rig.api.fault is Fault.REFUSED:
            raise ConnectionError("nobody listens")
        done = rig.server.patch(SECRETS, "mine", "default", {"metadata": {"finalizers": None}})
        return done["metadata"]["resourceVersion"], None

    monkeypatch.setattr(kopf_drains, "patch_and_check", apply)
    rig.api.fault = Fault.REFUSED
    giving = go(rig.event("MODIFIED", drained, stream_pressure=asyncio.Event()))
    await clock.sleep(3)
    rig.api.fault = Fault.NONE
    await giving
    assert "finalizers" not in rig.server.get(SECRETS, "mine", "default")["metadata"]
    await rig.event("MODIFIED", rig.server.get(SECRETS, "mine", "default"))
    assert rig.labels() == {}


class Refusing:
    """A session of kopf's whose writes are answered by this status; how many there were."""

    def __init__(self, status: int) -> None:
        self.status, self.writes, self.closed, self.headers = status, 0, False, dict[str, str]()

    async def request(self, **_: Any) -> Any:
        self.writes += 1
        return self

    async def json(self) -> object:
        return {"kind": "Status", "code": self.status}

    def raise_for_status(self) -> None:
        raise ClientResponseError(None, (), status=self.status)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [403, 500])
@in_virtual_time
async def test_what_an_admission_webhook_denies_of_a_patch_holds_up_no_drain(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Kopf asks nine times within a minute whatever is said, and would sleep through any news of the object."""
    rig, session = Rig(clock), Refusing(status)
    context = SimpleNamespace(server="https://example.com", session=session)

    class Vault:
        async def extended(self, *_: object) -> AsyncIterator[tuple[str, None, Any]]:
            yield "shardsdk", None, context

    token = auth.vault_var.set(Vault())  # type: ignore[arg-type]
    drained, _ = await drained_with(rig, annotate)
    before = clock.monotonic()
    await rig.event("MODIFIED", drained)
    auth.vault_var.reset(token)
    assert session.writes == 2
    assert clock.monotonic() - before < 5
    assert rig.labels() == {}
