"""What a reconcile means that raises inside a TaskGroup, or would end the process."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable

import pytest

from shardsdk import Conflict, Context, FenceClosed, LeaseLost, Operator, Permanent, Retry
from shardsdk.kube.doubts import FenceDoubted
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import Website, WebsiteStatus, site

HOUR = 3600.0


def raising(*errors: Callable[[], object]) -> tuple[Operator, list[float]]:
    """Each call raises by all of these at once; when it was called."""
    operator, called = Operator("websites"), list[float]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        called.append(ctx.clock.monotonic())

        async def fail(error: Callable[[], object]) -> None:
            error()

        async with asyncio.TaskGroup() as group:
            for each in errors:
                group.create_task(fail(each))
        raise AssertionError("one of them was to raise")

    return operator, called


def raises(error: Exception) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


async def an_hour(rig: Rig) -> None:
    await rig.clock.sleep(HOUR)


def test_permanent_is_permanent() -> None:
    operator, called = raising(raises(Permanent("no such region", reason="UnknownRegion")))

    async def story(rig: Rig) -> None:
        await an_hour(rig)
        assert rig.explain(Website, "home").endswith("ended with Permanent: UnknownRegion: no such region")

    rig = drive(operator, [site()], story)
    assert len(called) == 1
    assert rig.events == [("home", "UnknownRegion", "no such region")]
    (condition,) = rig.get(Website, "home").status.conditions
    assert (condition.status, condition.reason) == ("False", "UnknownRegion")


def test_of_several_that_ask_for_a_retry_the_soonest_counts() -> None:
    later, soon = Retry("no certificate yet", after=3000), Retry("no address yet", after=1000)
    operator, called = raising(raises(later), raises(soon))
    rig = drive(operator, [site()], an_hour)
    assert [round(each - called[0]) for each in called] == [0, 1000, 2000, 3000]
    assert rig.events == []


QUIET = [Conflict("stale"), LeaseLost("the lease is gone"), FenceClosed("the lease has run out"), FenceDoubted("wait")]


@pytest.mark.parametrize("quiet", QUIET)
@pytest.mark.parametrize("order", [1, -1])
def test_a_retry_is_heeded_beside_what_says_nothing_of_the_object(quiet: Exception, order: int) -> None:
    retries = [raises(Retry("no certificate yet", after=3000)), raises(Retry("no address yet", after=1000))]
    operator, called = raising(*[raises(quiet), *retries][::order])
    rig = drive(operator, [site()], an_hour)
    assert [round(each - called[0]) for each in called] == [0, 1000, 2000, 3000]
    assert rig.events == []


@pytest.mark.parametrize("errors", list(itertools.permutations(QUIET, 2)))
def test_a_group_of_which_no_error_alone_alarms_anybody_does_not_either(errors: list[Exception]) -> None:
    operator, called = Operator("websites"), list[str]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        called.append(ctx.name)
        if len(called) == 1:
            raise ExceptionGroup("both", errors)

    rig = drive(operator, [site()], an_hour, raises=False)
    assert rig.events == []


def test_an_error_after_a_conflict_is_told() -> None:
    errors = [Conflict("stale")]

    def fail() -> object:
        raise errors.pop() if errors else ValueError("the name is too long")

    async def story(rig: Rig) -> None:
        await an_hour(rig)
        assert "the last time with ValueError: the name is too long" in rig.explain(Website, "home")

    operator, _ = raising(fail)
    rig = drive(operator, [site()], story, raises=False)
    assert rig.events == [("home", "ReconcileFailed", "ValueError: the name is too long")]


def test_what_would_end_the_process_is_told_of_as_any_error_and_comes_out_of_drive() -> None:
    operator, called = Operator("websites"), list[str]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        called.append(ctx.name)
        if len(called) == 1:
            sys.exit("the licence has run out")

    rig = drive(operator, [site()], an_hour, raises=False)
    assert called == ["home", "home"]
    assert rig.events == [("home", "ReconcileFailed", "SystemExit: the licence has run out")]
    called.clear()
    with pytest.raises(RuntimeError, match="SystemExit: the licence has run out"):
        drive(operator, [site()], an_hour)
