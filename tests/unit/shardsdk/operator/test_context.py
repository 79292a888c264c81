"""What else a context has for an operator's functions: log, events, reads, plain functions."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest

from shardsdk import ConfigurationError, Conflict, Context, EventType, Operator
from shardsdk.errors import NotServed
from shardsdk.events.recorder import EVENTS
from shardsdk.logs import JsonFormatter
from shardsdk.testing import Rig, drive
from shardsdk.testing.memory import MemoryServer
from tests.unit.shardsdk.operator.websites import ConfigMap, Secret, Website, WebsiteStatus, site


def driven(function: Any, *objects: Any, sharded: bool = False, story: Any = None) -> Rig:
    operator = Operator("websites", sharded=sharded)
    operator.reconcile(Website, owns=[ConfigMap])(function)
    operator.needs(Secret, "get", "patch", "delete")
    return drive(operator, [site(), *objects], story)


@pytest.mark.parametrize("sharded", [False, True])
def test_lines_name_the_object_and_show_their_facts(caplog: pytest.LogCaptureFixture, sharded: bool) -> None:
    async def function(ctx: Context[Website]) -> None:
        ctx.log.info("applied", replicas=3, name="a name", args=[1])

    with caplog.at_level(logging.INFO, "websites.example.com"):
        driven(function, sharded=sharded)
    (record,) = [each for each in caplog.records if each.name == "websites.example.com"]
    shard = " shard=shard-1" if sharded else ""
    assert record.getMessage() == (
        f"applied controller=websites.example.com namespace=default object=home{shard} replicas=3"
        ' name="a name" args=[1]'
    )
    assert '"message":"applied"' in JsonFormatter().format(record)
    assert '"field_name":"a name"' in JsonFormatter().format(record)


def test_a_line_may_have_places_for_values_and_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def function(ctx: Context[Website]) -> None:
        try:
            raise ValueError("boom")
        except ValueError:
            ctx.log.exception("no %s of %d%%", "page", 5, extra={"size": 3}, colour="red")

    with caplog.at_level(logging.INFO, "websites.example.com"):
        driven(function)
    (record,) = [each for each in caplog.records if each.name == "websites.example.com"]
    assert record.getMessage().startswith("no page of 5% controller=")
    assert record.getMessage().endswith("size=3 colour=red")
    assert record.exc_info is not None


def test_what_no_api_server_serves_is_not_taken_for_an_object_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its definition may be installed later, and be full of them.  There is nothing to delete of it."""
    caplog.set_level(logging.INFO, "websites.example.com")
    raised: list[str] = []

    def unserved(*_: Any, **__: Any) -> Any:
        raise NotServed("get secrets: 404: install its CustomResourceDefinition", status=404)

    async def function(ctx: Context[Website]) -> None:
        assert not await ctx.delete(Secret, "a")
        try:
            assert await ctx.get(Secret, "a") is None
        except NotServed as error:
            raised.append(str(error))

    with monkeypatch.context() as patched:
        for verb in ("get", "delete"):
            patched.setattr(MemoryServer, verb, unserved)
        driven(function)
    assert len(raised) == 1
    assert [each.getMessage().startswith("Nothing deleted: ") for each in caplog.records].count(True) == 1
    driven(function)
    assert len(raised) == 1
    assert [each.getMessage().startswith("Nothing deleted: ") for each in caplog.records].count(True) == 1


def test_events_are_about_the_object_or_another() -> None:
    async def function(ctx: Context[Website]) -> None:
        page = await ctx.apply(ConfigMap(data={"a": "b"}))
        ctx.event(EventType.NORMAL, "Applied", "the page is there")
        ctx.event(EventType.WARNING, "Stale", "the page is old", about=page)

    rig = driven(function)
    told = {each["reason"]: each["involvedObject"] for each in rig.objects(EVENTS)}
    assert (told["Applied"]["kind"], told["Applied"]["name"]) == ("Website", "home")
    assert (told["Stale"]["kind"], told["Stale"]["apiVersion"]) == ("ConfigMap", "v1")
    assert told["Stale"]["uid"] == rig.get(ConfigMap, "home").metadata.uid


def test_any_object_can_be_read_changed_and_deleted() -> None:
    seen: dict[str, Any] = {}

    async def function(ctx: Context[Website]) -> None:
        if seen:
            return
        seen["before"] = await ctx.get(Secret, "token")
        seen["none"] = await ctx.get(Secret)
        seen["patched"] = await ctx.patch(Secret, "token", {"data": {"a": "c"}})
        seen["deleted"] = await ctx.delete(seen["patched"])
        seen["again"] = await ctx.delete(Secret, "token")

    rig = driven(function, Secret("token", data={"a": "b"}))
    assert seen["before"].data == {"a": "b"}
    assert seen["none"] is None
    assert seen["patched"].data == {"a": "c"}
    assert (seen["deleted"], seen["again"]) == (True, False)
    assert rig.find(Secret, "token") is None


def test_a_deletion_of_what_was_read_spares_its_successor() -> None:
    async def function(ctx: Context[Website]) -> None:
        old = Secret("token")
        found = await ctx.get(Secret, "token")
        assert found is not None
        gone = Secret(found.metadata.__class__(name="token", namespace="default", uid="another"))
        with pytest.raises(Conflict):
            await ctx.delete(gone)
        assert old.metadata.name == "token"

    assert driven(function, Secret("token")).find(Secret, "token") is not None


def test_plain_functions_have_the_same_context() -> None:
    operator, ended = Operator("websites"), list[str]()

    @operator.reconcile(Website, owns=[ConfigMap], prune=True)
    def website(ctx: Context[Website]) -> WebsiteStatus:
        ctx.run(ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html})))
        ctx.log.info("applied", by="a thread")
        ctx.event(EventType.NORMAL, "Applied", "the page is there")
        return WebsiteStatus(len(ctx.children(ConfigMap)), conditions=[ctx.condition("Ready", True, "Applied")])

    @website.finalize
    def gone(ctx: Context[Website]) -> None:
        ended.append(ctx.name)

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    rig = drive(operator, [site()], story)
    assert ended == ["home"]
    assert rig.get(ConfigMap, "home").data == {"index.html": "<h1>hi</h1>"}
    assert ("home", "Applied", "the page is there") in rig.events


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """As decorators of tracing and metrics are written."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


def in_its_own_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return asyncio.run(function(*arguments))

    return call


@pytest.mark.parametrize("decorated", [traced, in_its_own_loop])
def test_a_plain_decorator_may_return_what_is_to_be_awaited_or_await_it_itself(
    decorated: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    operator, called = Operator("websites"), list[str]()

    @operator.reconcile(Website)
    @decorated
    async def website(ctx: Context[Website]) -> WebsiteStatus:
        await asyncio.sleep(0)
        called.append(f"reconcile {ctx.name}")
        return WebsiteStatus(3)

    @website.finalize
    @decorated
    async def gone(ctx: Context[Website]) -> None:
        await asyncio.sleep(0)
        called.append(f"clean up {ctx.name}")

    async def story(rig: Rig) -> None:
        assert rig.get(Website, "home").status.ready_replicas == 3
        rig.delete(Website, "home")
        await rig.settle()
        assert rig.find(Website, "home") is None

    drive(operator, [site()], story)
    assert set(called) == {"reconcile home", "clean up home"}


def test_what_is_asked_for_without_being_declared_is_said() -> None:
    async def function(ctx: Context[Website]) -> None:
        ctx.child(Secret, "a")

    with pytest.raises(ConfigurationError, match=r"reads Secret objects, but was not told of them.*owns=\[Secret\]"):
        driven(function)


def test_children_and_child_are_of_their_kind() -> None:
    found: list[Any] = []

    async def function(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data={"a": "b"}))
        await ctx.apply(ConfigMap("other"))
        found[:] = [ctx.child(ConfigMap), ctx.child(ConfigMap, "other"), ctx.child(ConfigMap, "none")]
        found.append(ctx.children(ConfigMap))

    driven(function)
    first, other, none, all_of_them = found
    assert (first.data, other.metadata.name, none) == ({"a": "b"}, "other", None)
    assert [each.metadata.name for each in all_of_them] == ["home", "other"]
