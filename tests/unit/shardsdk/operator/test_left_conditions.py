"""Conditions of `Permanent` that another process has left: before a restart, or on another shard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import NoneType
from typing import Any

import pytest

from shardsdk import Context, Operator, Permanent, RequeueAfter
from shardsdk.cache.cache import Cache
from shardsdk.errors import StreamInterrupted
from shardsdk.operator.leftovers import PAUSE_SECONDS
from shardsdk.protocol.objects import PartialObject, Resource
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import Website, WebsiteStatus, owe

SINCE = "2020-01-01T00:00:00Z"
READY = {"type": "Ready", "status": "False", "reason": "UnknownRegion", "message": "no", "lastTransitionTime": SINCE}
THEIRS = {**READY, "type": "Theirs"}
#: As an API server has it of a condition that was written whole.
WHOLE: dict[str, dict[str, Any]] = {".": {}, **{f"f:{name}": {} for name in READY}}


def owned(fields: Any, manager: str = "websites/permanent", key: str = 'k:{"type":"Ready"}') -> dict[str, Any]:
    conditions = {key: fields} if key else fields
    tree = {"f:status": {"f:conditions": conditions, "f:observedGeneration": {}}}
    entry = {"manager": manager, "operation": "Update", "subresource": "status", "fieldsType": "FieldsV1"}
    return {**entry, "fieldsV1": tree}


def left(*managed: dict[str, Any], conditions: Any = (READY, THEIRS)) -> tuple[Resource, dict[str, Any]]:
    metadata = {"name": "home", "managedFields": list(managed)}
    status = {"conditions": list(conditions), "observedGeneration": 1}
    return Website.resource, {"metadata": metadata, "spec": {"html": ""}, "status": status}


def silent(*, says: str = "", sharded: bool = False) -> Operator:
    """Succeeds, and says nothing of how it is, or just this."""
    operator = Operator("websites", sharded=sharded)

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus | None:
        return WebsiteStatus(1, conditions=[ctx.condition(says, False, "Counted")]) if says else None

    return operator


def looks(rig: Rig) -> int:
    """How often objects were listed, besides what its cache asks for: of no shard, a list before its watch as well."""
    return rig.api.lists.count("websites") - (1 if rig.labels(Website, "home") else 2)


def types(rig: Rig, name: str = "home") -> list[str]:
    return [each["type"] for each in rig.get(Website.resource, name)["status"]["conditions"]]


def test_what_another_process_has_left_is_taken_back_by_the_first_success() -> None:
    rig = drive(silent(), [left(owned(WHOLE))])
    assert types(rig) == ["Theirs"]
    assert [each.subresource for each in rig.sent] == ["status"]


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [owned(WHOLE, manager="another/permanent")],
        [owned(WHOLE, key='k:{"type":"Theirs2"}')],
        [owned({name: {} for name in WHOLE if name != "f:message"})],  # somebody has written another message
        [owned({}, key="")],  # the schema has the list as one field
        [{"manager": "websites/permanent", "operation": "Update", "subresource": "status"}],
    ],
)
def test_what_it_has_not_written_so_stays(entries: list[dict[str, Any]]) -> None:
    rig = drive(silent(), [left(*entries)])
    assert types(rig) == ["Ready", "Theirs"]
    assert rig.sent == []


def test_a_condition_that_the_function_returns_is_its_own() -> None:
    assert types(drive(silent(says="Ready"), [left(owned(WHOLE))])) == ["Ready", "Theirs"]


def test_it_is_enough_to_have_signed_the_message() -> None:
    """The reason of a condition that was written over may be as an earlier version of the library has signed it."""
    fields: dict[str, Any] = {name: {} for name in WHOLE if name != "f:reason"}
    assert types(drive(silent(), [left(owned(fields))])) == ["Theirs"]
    # One without a message may be anybody's.
    empty = {**READY, "message": ""}
    assert types(drive(silent(), [left(owned(fields), conditions=[empty])])) == ["Ready"]
    assert types(drive(silent(), [left(owned(WHOLE), conditions=[empty])])) == []


def named(name: str, thing: tuple[Resource, dict[str, Any]]) -> tuple[Resource, dict[str, Any]]:
    return thing[0], {**thing[1], "metadata": {**thing[1]["metadata"], "name": name}}


@pytest.mark.parametrize(("conditions", "expected"), [([READY], 1), ([{**READY, "status": "True"}], 0), ([], 0)])
def test_all_objects_are_looked_at_by_one_list_where_any_shows_such_a_condition(conditions: Any, expected: int) -> None:
    async def story(rig: Rig) -> None:
        for value in range(5):
            rig.patch(Website, "home", {"metadata": {"annotations": {"a": str(value)}}})
            rig.create(*named(f"new-{value}", left(conditions=conditions)))
            await rig.settle()

    theirs = [named(name, left(conditions=conditions)) for name in "abc"]
    rig = drive(silent(), [left(conditions=conditions), *theirs], story)
    assert looks(rig) == expected
    assert rig.sent == []


def test_what_is_taken_back_is_read_once() -> None:
    rig = drive(silent(), [left(owned(WHOLE)), *(named(name, left()) for name in "abc")])
    assert types(rig) == ["Theirs"]
    assert looks(rig) == 2  # all of them, and the one


def before_each_list(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Have something happen to each list by which conditions are looked for."""
    streamed = Cache.stream

    async def stream(cache: Cache[Any], *arguments: Any) -> Any:
        if cache.resource == Website.resource and arguments[0] is not PartialObject:
            await act()
        async for batch in streamed(cache, *arguments):
            yield batch

    monkeypatch.setattr(Cache, "stream", stream)


async def cut_off() -> None:
    raise StreamInterrupted("cut off")


def test_a_list_that_fails_fails_no_reconcile(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = [True]

    async def fail() -> None:
        if fails[0]:
            raise StreamInterrupted("cut off")

    before_each_list(monkeypatch, fail)

    async def story(rig: Rig) -> None:
        fails[0] = False
        rig.create(*named("too-soon", left(owned(WHOLE))))
        await rig.settle()
        assert types(rig) == ["Ready", "Theirs"]
        await rig.clock.sleep(PAUSE_SECONDS + 1)  # nothing changes meanwhile
        await rig.settle()

    rig = drive(silent(), [left(owned(WHOLE)), named("another", left(owned(WHOLE)))], story)
    assert {type(outcome) for _, outcome in rig.outcomes} == {NoneType, RequeueAfter}
    assert (types(rig), types(rig, "another")) == (["Theirs"], ["Theirs"])
    told = "What another process has said of a failure for good may still be in the status"
    assert [each.getMessage().startswith(told) for each in caplog.records].count(True) == 1


def test_a_list_that_takes_longer_than_a_reconcile_may_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, clocks, lists = Operator("websites"), list[Any](), list[str]()

    @operator.reconcile(Website, timeout_seconds=1.0)
    async def function(ctx: Context[Website]) -> None: ...

    async def slow() -> None:
        lists.append("begun")
        await clocks[0].sleep(15.0)

    before_each_list(monkeypatch, slow)

    async def story(rig: Rig) -> None:
        clocks.append(rig.clock)
        for name in ("home", "another"):
            rig.create(*named(name, left(owned(WHOLE))))
        await rig.clock.sleep(2 * PAUSE_SECONDS)
        await rig.settle()
        assert (types(rig), types(rig, "another")) == (["Theirs"], ["Theirs"])

    rig = drive(operator, [], story, raises=False)
    assert {type(each) for each in rig.failures} == {TimeoutError}
    assert lists == ["begun"]


@pytest.mark.parametrize(("after", "expected"), [(5.0, 22), (3600.0, 1), (None, 2)])
def test_when_to_come_back_is_the_functions_to_say(
    monkeypatch: pytest.MonkeyPatch, after: float | None, expected: int
) -> None:
    before_each_list(monkeypatch, cut_off)
    operator, calls = Operator("websites"), list[str]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        calls.append(ctx.name)
        if after is not None:
            ctx.requeue(after=after)

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(1.75 * PAUSE_SECONDS)

    drive(operator, [left(owned(WHOLE))], story)
    assert len(calls) == expected


def test_a_timer_keeps_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before_each_list(monkeypatch, cut_off)
    operator, calls, days = silent(), list[str](), 24 * 3600.0

    @operator.reconcile(Website, name="timed")
    async def function(ctx: Context[Website]) -> None: ...

    @function.timer(every=days)
    async def daily(ctx: Context[Website]) -> None:
        calls.append(ctx.name)

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(1.5 * days)

    drive(operator, [left(owned(WHOLE))], story)
    assert calls == ["home"]


def test_it_is_asked_again_once_the_object_was_another_shards() -> None:
    """Which may have failed meanwhile."""

    async def story(rig: Rig) -> None:
        assert types(rig) == ["Ready"]
        labels = rig.labels(Website, "home")
        rig.drain(Website, "home")
        await rig.settle()
        rig.patch(Website, "home", {"metadata": {"labels": labels, "managedFields": [owned(WHOLE)]}})
        await rig.settle()

    rig = drive(silent(sharded=True), [left(conditions=[READY])], story)
    assert types(rig) == []
    assert looks(rig) == 2


def test_it_is_not_asked_again_while_it_is_drained_and_cannot_be_given_away_yet() -> None:
    async def story(rig: Rig) -> None:
        owe(rig)
        rig.drain(Website, "home")
        await rig.settle()
        rig.patch(Website, "home", {"metadata": {"managedFields": [owned(WHOLE)]}})
        await rig.settle()

    assert types(drive(silent(sharded=True), [left(conditions=[READY])], story)) == ["Ready"]


def test_what_another_shard_has_said_after_this_one_is_taken_back() -> None:
    operator = Operator("websites", sharded=True)

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        if not ctx.object.spec.html:
            raise Permanent("it says this", reason="UnknownRegion")

    async def story(rig: Rig) -> None:
        labels = rig.labels(Website, "home")
        rig.drain(Website, "home")
        await rig.settle()
        rig.patch(Website, "home", {"status": {"conditions": [{**READY, "message": "and this"}]}})
        metadata = {"labels": labels, "managedFields": [owned(WHOLE)]}
        rig.patch(Website, "home", {"metadata": metadata, "spec": {"html": "a"}})
        await rig.settle()

    assert types(drive(operator, [left(conditions=[])], story)) == []


def test_its_condition_is_signed_by_a_name_of_its_own() -> None:
    operator = Operator("websites")

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        raise Permanent("no", reason="UnknownRegion")

    rig = drive(operator, [left(conditions=[])])
    assert [(each.subresource, each.field_manager) for each in rig.sent] == [("status", "websites/permanent")]
