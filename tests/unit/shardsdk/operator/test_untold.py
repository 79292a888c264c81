"""What failed for good, and whose status cannot say so: because it may not, or not now."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shardsdk import Conflict, Context, Operator, Permanent
from shardsdk.errors import ApiError, BadRequest, Forbidden, Invalid, MethodNotAllowed, NotFound, ServerError
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.test_giving_up import GAVE_UP, MARS, counts, refusing, themed
from tests.unit.shardsdk.operator.websites import Website, site


def refuses(rig: Rig, refusal: ApiError, *, until: float = 10_000) -> None:
    """Have the API server refuse each status so, until a moment."""

    end = rig.clock.monotonic() + until

    def admit(verb: str, resource: Any, old: Any, new: Any) -> Any:
        if old is not None and new.get("status") != old.get("status") and rig.clock.monotonic() < end:
            raise refusal
        return new

    rig.server.admit = admit


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


def test_so_it_has_after_a_clean_up() -> None:
    operator, begun = Operator("websites"), list[str]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        pass

    @function.finalize
    async def clean_up(ctx: Context[Website]) -> None:
        begun.append(ctx.request.name)
        raise Permanent("the bucket is locked")

    async def story(rig: Rig) -> None:
        await rig.settle()
        refuses(rig, Forbidden("not now"), until=300)
        rig.delete(Website, "home")
        await rig.clock.sleep(290)
        assert begun == ["home"]

    drive(operator, [site()], story, raises=False)


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
