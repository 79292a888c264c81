"""What failed for good, and whose status cannot say so: because it may not, or not now."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from shardsdk import Conflict, Context, Operator, Permanent
from shardsdk.errors import ApiError, BadRequest, Forbidden, Invalid, MethodNotAllowed, NotFound, ServerError
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.test_giving_up import GAVE_UP, MARS, counts, refusing, themed
from tests.unit.shardsdk.operator.websites import ConfigMap, Website, site


def refuses(rig: Rig, refusal: ApiError, *, until: float = 10_000) -> None:
    """Have the API server refuse each status so, until a moment."""

    end = rig.clock.monotonic() + until

    def admit(verb: str, resource: Any, old: Any, new: Any) -> Any:
        if old is not None and new.get("status") != old.get("status") and rig.clock.monotonic() < end:
            raise refusal
        return new

    rig.server.admit = admit


def gone_by(clean_up: Callable[[Context[Website]], Any], **options: Any) -> Operator:
    """Websites with nothing but a clean-up."""
    operator = Operator("websites")

    @operator.reconcile(Website, **options)
    async def function(ctx: Context[Website]) -> None:
        """Nothing to do."""

    function.finalize(clean_up)
    operator.needs(ConfigMap, "create")
    return operator


@pytest.mark.parametrize("refusal", [Invalid, MethodNotAllowed, NotFound])
def test_that_its_status_cannot_be_written_does_not_hide_it(
    refusal: type[ApiError], caplog: pytest.LogCaptureFixture
) -> None:
    operator, themes = refusing()

    async def story(rig: Rig) -> None:
        refuses(rig, refusal("not this status"))
        rig.create(MARS)
        await rig.clock.sleep(3600)
        assert rig.explain(Website, "home") == GAVE_UP
        assert counts(rig) == (1, 1, 0)

    rig = drive(operator, [], story)
    assert themes == ["mars"]
    assert rig.events == [("home", "UnknownRegion", "no such region")]
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [("not this status" in each, "UnknownRegion: no such region" in each) for each in told] == [
        (True, True), (False, True)
    ]  # fmt: skip


@pytest.mark.parametrize("refusal", [Forbidden, BadRequest, ServerError])
def test_a_refusal_that_may_pass_has_its_status_written_later_without_the_function(
    refusal: type[ApiError], caplog: pytest.LogCaptureFixture
) -> None:
    operator, themes = refusing()

    async def story(rig: Rig) -> None:
        refuses(rig, refusal("not now"), until=300)
        rig.create(MARS)
        await rig.clock.sleep(290)
        await rig.clock.sleep(1200)
        assert rig.explain(Website, "home") == GAVE_UP
        assert [each.reason for each in rig.get(Website, "home").status.conditions] == ["UnknownRegion"]

    rig = drive(operator, [], story, raises=False)
    assert themes == ["mars"]
    assert rig.events == [("home", "UnknownRegion", "no such region")]
    told = [each.getMessage() for each in caplog.records if "not now" in each.getMessage()]
    assert ["UnknownRegion: no such region" in each for each in told] == [True, *([False] * (len(told) - 1))]


def test_a_clean_up_is_tried_again_whether_its_status_can_be_written_or_not() -> None:
    locked = [True]

    async def clean_up(ctx: Context[Website]) -> None:
        if locked[0]:
            raise Permanent("the bucket is locked")

    async def story(rig: Rig) -> None:
        await rig.settle()
        refuses(rig, Forbidden("may not patch websites/status"))
        rig.delete(Website, "home")
        await rig.clock.sleep(600)
        assert len(rig.events) == 1
        locked[0] = False
        await rig.clock.sleep(600)
        assert rig.find(Website, "home") is None

    drive(gone_by(clean_up), [site()], story, raises=False)


@pytest.mark.parametrize("max_writes", [1, 2])
def test_what_has_sent_all_that_it_may_is_not_called_again_for_its_status(max_writes: int) -> None:
    operator, called = Operator("websites"), list[str]()

    @operator.reconcile(Website, max_writes=max_writes)
    async def function(ctx: Context[Website]) -> None:
        called.append(ctx.name)
        body = {"metadata": {"annotations": {"seen": str(len(called))}}}
        await ctx.api.patch(Website.resource, ctx.name, ctx.namespace, body)
        raise Permanent("no such region", reason="UnknownRegion")

    async def story(rig: Rig) -> None:
        rig.create(MARS)
        await rig.clock.sleep(3600)
        assert rig.explain(Website, "home") == GAVE_UP
        assert [each.reason for each in rig.get(Website, "home").status.conditions] == ["UnknownRegion"]

    rig = drive(operator, [], story, raises=False)
    assert called == ["home"]
    assert rig.events == [("home", "UnknownRegion", "no such region")]


def test_a_clean_up_that_has_sent_all_that_it_may_is_told_and_called_by_the_next_event() -> None:
    calls = list[int]()

    async def clean_up(ctx: Context[Website]) -> None:
        calls.append(len(calls))
        if len(calls) < 3:
            await ctx.api.create(ConfigMap.resource, {"metadata": {"generateName": "left-"}}, ctx.namespace)
        raise Permanent("the bucket is locked")

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.clock.sleep(3600)
        assert "waits for its next event" in rig.explain(Website, "home")

    drive(gone_by(clean_up, max_writes=1), [site()], story, raises=False)
    assert calls == [0]


def test_one_failure_for_all_says_of_each_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    locked, operator = Permanent("locked"), Operator("websites")

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        if ctx.name == "other":
            raise locked

    @function.finalize
    async def clean_up(ctx: Context[Website]) -> None:
        raise locked

    async def story(rig: Rig) -> None:
        rig.create(site("other"))
        await rig.settle()
        rig.delete(Website, "home")
        await rig.settle()

    drive(operator, [site()], story, raises=False)
    told = {each.__dict__["object"]: each.__dict__["waits_for"] for each in caplog.records if "waits_for" in vars(each)}
    assert told == {"other": "a change of its spec, or another process", "home": "its next event"}


def test_what_fails_once_between_two_failures_for_good_fails_for_the_first_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    down = list[bool]()

    async def clean_up(ctx: Context[Website]) -> None:
        if down:
            down.clear()
            raise ServerError("bad gateway")
        raise Permanent("the bucket is locked")

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        for beat in range(5):
            await rig.clock.sleep(3600)
            down.append(True)
            rig.patch(Website, "home", {"metadata": {"annotations": {"beat": str(beat)}}})
        await rig.clock.sleep(3600)

    drive(gone_by(clean_up), [site()], story, raises=False)
    assert [each.__dict__["attempts"] for each in caplog.records if "attempts" in vars(each)] == [1] * 5


def test_a_clean_up_that_wakes_itself_is_heard_each_time(caplog: pytest.LogCaptureFixture) -> None:
    calls = list[int]()

    async def clean_up(ctx: Context[Website]) -> None:
        calls.append(len(calls))
        if len(calls) < 4:
            tried = {"metadata": {"annotations": {"tried": str(len(calls))}}}
            await ctx.api.patch(Website.resource, ctx.name, ctx.namespace, tried)
        raise Permanent("the bucket is locked")

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    drive(gone_by(clean_up), [site()], story, raises=False)
    assert len([each for each in caplog.records if each.levelno >= logging.ERROR]) >= 3


def test_a_spec_that_is_mended_before_that_is_reconciled() -> None:
    operator, themes = refusing()

    async def story(rig: Rig) -> None:
        refuses(rig, Forbidden("not now"), until=300)
        rig.create(MARS)
        await rig.clock.sleep(290)
        themed(rig, "dark")
        await rig.clock.sleep(600)
        assert [each.reason for each in rig.get(Website, "home").status.conditions] == ["Done"]

    drive(operator, [], story, raises=False)
    assert themes.count("mars") == 1


def test_a_conflict_has_it_said_at_the_next_attempt() -> None:
    operator, themes = refusing()

    async def story(rig: Rig) -> None:
        def admit(verb: str, resource: Any, old: Any, new: Any) -> Any:
            if resource == Website.resource and old is not None and len(themes) < 3:
                raise Conflict("the object has been modified", status=409)
            return new

        rig.server.admit = admit
        rig.create(MARS)
        await rig.clock.sleep(60)
        assert rig.explain(Website, "home") == GAVE_UP

    rig = drive(operator, [], story)
    assert themes == ["mars"] * 3
    assert [each.reason for each in rig.get(Website, "home").status.conditions] == ["UnknownRegion"]
