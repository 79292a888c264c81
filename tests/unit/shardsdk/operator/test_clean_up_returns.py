"""What a clean-up may return, and what else functions return by mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from shardsdk import ConfigurationError, Context, Done, Operator, Permanent, Requeue, RequeueAfter, Retry
from shardsdk.kube.identity import describe_given
from shardsdk.queueing.workers import Waiting
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import Website, WebsiteStatus, site, websites


def ended(clean_up: Callable[[Context[Website]], Any], operator: Operator | None = None) -> Rig:
    """A page that is deleted, with this clean-up."""
    operator = operator or websites()
    operator._reconcilers[0].finalize(clean_up)

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    return drive(operator, [site()], story, raises=False)


def returning(returned: Any) -> Callable[[Context[Website]], Any]:
    async def gone(ctx: Context[Website]) -> Any:
        return returned

    return gone


@pytest.mark.parametrize("returned", [None, Done()])
def test_a_clean_up_that_is_done_lets_the_object_go(returned: Any) -> None:
    assert ended(returning(returned)).find(Website, "home") is None


@pytest.mark.parametrize("returned", [Requeue(), RequeueAfter(3600), Waiting()])
def test_a_clean_up_that_is_not_done_keeps_it(returned: Any) -> None:
    rig = ended(returning(returned))
    assert rig.find(Website, "home") is not None
    assert not rig.failures


@pytest.mark.parametrize(
    ("returned", "remedy"),
    [
        (False, None),
        (True, None),
        (30, None),
        (WebsiteStatus(1), None),
        (Retry("not yet", after=30), "an error is raised: `raise Retry(…)`"),
        (Permanent("never"), "an error is raised: `raise Permanent(…)`"),
        (ValueError(), "an error is raised: `raise ValueError(…)`"),
        (ValueError, "an error is raised: `raise ValueError(…)`"),
    ],
)
def test_what_may_mean_that_nothing_is_cleaned_up_yet_is_refused_and_the_object_stays(
    returned: Any, remedy: str | None
) -> None:
    rig = ended(returning(returned))
    assert rig.find(Website, "home") is not None
    assert isinstance(rig.failures[0], ConfigurationError)
    assert str(rig.failures[0]) == (
        f"the clean-up of 'websites.example.com' returned {describe_given(returned)}, and the finalizer stays: return"
        " None when it is done, else Requeue() or RequeueAfter(seconds)" + (f"; {remedy}" if remedy else "")
    )


def test_a_clean_up_that_returns_what_it_did_not_await_has_done_nothing() -> None:
    async def elsewhere() -> None: ...

    call = elsewhere()
    rig = ended(returning(call))
    call.close()
    assert rig.find(Website, "home") is not None
    assert "write `await` before it" in str(rig.failures[0])


def test_errors_that_a_reconcile_or_a_timer_returns_are_to_be_raised() -> None:
    operator = Operator("websites")
    operator.reconcile(Website, name="first")(returning(Retry("not yet", after=30)))
    with pytest.raises(ConfigurationError, match=re.escape("an error is raised: `raise Retry(…)`")):
        drive(operator, [site()])

    timed = websites()
    timed._reconcilers[0].timer(every=60, name="measure")(returning(Permanent("never")))

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(90)

    with pytest.raises(ConfigurationError, match=re.escape("an error is raised: `raise Permanent(…)`")):
        drive(timed, [site()], story)
