"""Reconciles that are told each time that there is a newer object: no look at it helps, and `drive` says so."""

from __future__ import annotations

import pytest

from shardsdk import Context, Operator
from shardsdk.errors import AlreadyExists, ApiError, Conflict
from shardsdk.kinds import ConfigMap
from shardsdk.testing import Rig, drive
from shardsdk.testing.noted import FOR_GOOD


def raising(error: type[ApiError], times: float) -> Operator:
    """An operator whose reconcile raises so often, for an object called `one`."""
    operator, calls = Operator("test"), list[str]()

    @operator.reconcile(ConfigMap)
    async def reconcile(ctx: Context[ConfigMap]) -> None:
        calls.append(ctx.name)
        if calls.count("one") <= times and ctx.name == "one":
            raise error("of another", status=409)

    return operator


OBJECTS = (ConfigMap("one"), ConfigMap("two"))


@pytest.mark.parametrize("error", [AlreadyExists, Conflict])
def test_what_never_passes_comes_out(error: type[ApiError]) -> None:
    with pytest.raises(error, match="of another"):
        drive(raising(error, float("inf")), OBJECTS)
    rig = drive(raising(error, float("inf")), OBJECTS, raises=False)
    assert [str(each) for each in rig.failures] == ["of another"]


def test_what_an_object_met_that_is_gone_does_not_come_out() -> None:
    async def story(rig: Rig) -> None:
        await rig.clock.sleep(60)
        rig.delete(ConfigMap, "one")

    rig = drive(raising(AlreadyExists, float("inf")), OBJECTS, story)
    assert len([name for name, outcome in rig.outcomes if outcome is not None]) > FOR_GOOD


@pytest.mark.parametrize("times", [1, FOR_GOOD + 1])
def test_what_passes_at_last_does_not(times: int) -> None:
    rig = drive(raising(AlreadyExists, times), OBJECTS)
    assert [name for name, outcome in rig.outcomes if outcome is not None] == ["one"] * times
