"""An object whose namespace is being deleted can create nothing there any more, and is about to go itself."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from shardsdk import Conflict, Context, Operator
from shardsdk.errors import Forbidden
from shardsdk.queueing.raised import ENDING_ATTEMPTS
from shardsdk.testing import Rig, drive
from tests.kube_fakes import ending
from tests.unit.shardsdk.operator.websites import Website, site


async def pass_time(rig: Rig, seconds: float) -> None:
    await rig.clock.sleep(seconds)


def refused(*errors: Exception, seconds: float) -> tuple[Rig, int]:
    """A website whose reconcile raises these, one after the other and the last again and again; how often."""
    operator, calls = Operator("websites"), list[int]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        calls.append(1)
        raise errors[min(len(calls), len(errors)) - 1]

    return drive(operator, [site()], partial(pass_time, seconds=seconds), raises=False), len(calls)


def count(rig: Rig, name: str, **labels: str) -> float | None:
    labels["controller"] = "websites.example.com"
    return rig._manager.metrics.registry.get_sample_value(f"controller_runtime_{name}_total", labels)


@pytest.mark.parametrize("error", [ending("default"), ExceptionGroup("both", [Conflict("stale"), ending("default")])])
def test_that_it_cannot_is_no_failure(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig, calls = refused(error, seconds=1)
    assert 5 < calls <= ENDING_ATTEMPTS
    assert rig.events == []
    assert count(rig, "reconcile_errors") == count(rig, "reconcile", result="error") == 0
    assert count(rig, "reconcile", result="requeue") == calls
    lines = [each for each in caplog.records if "end of its namespace" in each.getMessage()]
    assert [each.levelno for each in lines] == [logging.INFO] * calls
    assert "object=home" in lines[0].getMessage()
    assert max(each.levelno for each in caplog.records) == logging.INFO


def test_one_that_does_not_go_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """A clean-up that has to create something keeps it there, and with it the namespace."""
    rig, calls = refused(ending("default"), seconds=600)
    lines = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(lines) == count(rig, "reconcile_errors") == calls - ENDING_ATTEMPTS > 2
    assert rig.events == [], "which could not be written there"


def test_what_else_is_wrong_besides_is_a_failure() -> None:
    other = Forbidden("secrets is forbidden: no right to create it", status=403)
    rig, calls = refused(ExceptionGroup("both", [ending("default"), other]), seconds=1)
    assert count(rig, "reconcile_errors") == calls


def test_the_end_of_another_namespace_is_a_failure() -> None:
    rig, calls = refused(ending("elsewhere"), seconds=1)
    assert count(rig, "reconcile_errors") == calls
    assert [reason for _, reason, _ in rig.events] == ["ReconcileFailed"]
