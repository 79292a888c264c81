"""How an object ends, and how a reconcile fails."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from shardsdk import (
    ConfigurationError,
    Context,
    ObjectMeta,
    Operator,
    Permanent,
    RequeueAfter,
    Retry,
    server_side_apply,
)
from shardsdk.events.recorder import EVENTS
from shardsdk.kinds import CustomResource
from shardsdk.operator.failures import Failures
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import (
    ConfigMap,
    Running,
    Secret,
    Website,
    WebsiteSpec,
    WebsiteStatus,
    site,
    websites,
)

FINALIZER = "example.com/websites"
NO_SECONDS: list[Any] = [-1, float("nan"), timedelta(seconds=5), "5"]


def cleaning(cleaned: list[str], *, sharded: bool = False, fails: int = 0) -> Operator:
    operator = websites(sharded=sharded)
    (reconciler,) = operator._reconcilers

    @reconciler.finalize
    async def gone(ctx: Context[Website]) -> None:
        cleaned.append(ctx.name)
        if len(cleaned) <= fails:
            raise RuntimeError("not now")

    return operator


@pytest.mark.parametrize("sharded", [False, True])
def test_the_finalizer_comes_before_the_first_apply_and_goes_after_the_clean_up(sharded: bool) -> None:
    cleaned: list[str] = []

    async def story(rig: Rig) -> None:
        assert rig.get(Website, "home").metadata.finalizers == [FINALIZER]
        assert cleaned == []
        rig.delete(Website, "home")
        await rig.settle()

    rig = drive(cleaning(cleaned, sharded=sharded), [site()], story)
    assert cleaned == ["home"]
    assert rig.find(Website, "home") is None
    assert rig.writes[:2] == [("patch", "websites", "home"), ("patch", "configmaps", "home")]
    assert rig.writes[-1] == ("patch", "websites", "home")


def test_a_clean_up_that_fails_keeps_the_object() -> None:
    cleaned: list[str] = []

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await asyncio.sleep(0.002)
        assert rig.find(Website, "home") is not None
        await rig.clock.sleep(10)

    rig = drive(cleaning(cleaned, fails=2), [site()], story, raises=False)
    assert len(cleaned) == 3
    assert rig.find(Website, "home") is None
    assert [str(each) for each in rig.failures] == ["not now"] * 2


def test_a_clean_up_may_ask_to_be_called_again() -> None:
    operator, calls = websites(), list[int]()
    (reconciler,) = operator._reconcilers

    @reconciler.finalize
    async def gone(ctx: Context[Website]) -> RequeueAfter | None:
        calls.append(1)
        return ctx.requeue(after=30) if len(calls) < 3 else None

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.clock.sleep(45)
        assert rig.find(Website, "home") is not None
        await rig.clock.sleep(45)

    rig = drive(operator, [site()], story)
    assert len(calls) == 3
    assert rig.find(Website, "home") is None


def test_an_object_on_its_way_out_is_not_reconciled() -> None:
    async def story(rig: Rig) -> None:
        rig.patch(Website, "home", {"metadata": {"finalizers": ["example.com/theirs"]}})
        rig.delete(Website, "home")
        await rig.settle()
        rig.delete(ConfigMap, "home")
        await rig.settle()

    assert drive(websites(), [site()], story).find(ConfigMap, "home") is None


def test_a_finalizer_of_which_nobody_knows_any_more_holds_up_nothing() -> None:
    """The operator's last version had a clean-up, this one has none."""
    left = (Website.resource, {"metadata": {"name": "home", "finalizers": [FINALIZER]}, "spec": {"html": ""}})

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    assert drive(websites(), [left], story).find(Website, "home") is None


def failing(*errors: Exception | None) -> tuple[Operator, list[int]]:
    """Raises one after the other, and the last for ever."""
    operator, calls = Operator("websites"), list[int]()

    async def function(ctx: Context[Website]) -> WebsiteStatus:
        calls.append(1)
        error = errors[min(len(calls), len(errors)) - 1]
        if error is not None:
            raise error
        return WebsiteStatus(conditions=[ctx.condition("Ready", True, "Done")])

    operator.reconcile(Website, owns=[ConfigMap])(function)
    return operator, calls


def times_told(rig: Rig) -> int:
    (event,) = (each for each in rig.objects(EVENTS) if each["reason"] == "ReconcileFailed")
    count: int = event["count"]
    return count


def ready(rig: Rig) -> list[tuple[str, str, str]]:
    conditions = rig.get(Website, "home").status.conditions
    return [(each.status, each.reason, each.message) for each in conditions if each.type == "Ready"]


def test_retry_comes_back_when_it_says_and_alarms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    operator, calls = failing(Retry("no certificate yet", after=30), None)

    async def story(rig: Rig) -> None:
        assert len(calls) == 1
        await rig.clock.sleep(31)
        assert len(calls) >= 2

    with caplog.at_level(logging.INFO):
        rig = drive(operator, [site()], story)
    assert rig.events == []
    assert ready(rig) == [("True", "Done", "")]
    assert not [each for each in caplog.records if each.levelno > logging.INFO]
    assert any("no certificate yet" in each.getMessage() for each in caplog.records)


def test_what_failed_for_good_is_tried_again_once_its_spec_has_changed() -> None:
    operator, calls = failing(Permanent("no such region", reason="UnknownRegion"), None)

    async def story(rig: Rig) -> None:
        assert ready(rig) == [("False", "UnknownRegion", "no such region")]
        await rig.clock.sleep(3600)
        rig.patch(Website, "home", {"metadata": {"annotations": {"a": "b"}}})
        await rig.settle()
        assert len(calls) == 1
        rig.patch(Website, "home", {"spec": {"theme": "dark"}})
        await rig.settle()

    rig = drive(operator, [site()], story)
    assert len(calls) >= 2
    assert ready(rig) == [("True", "Done", "")]
    assert rig.events == [("home", "UnknownRegion", "no such region")]


class Shop(CustomResource[WebsiteSpec, Running], group="example.com", version="v1"):
    """Its status has no conditions: one that failed for good writes nothing, so that no Conflict tells of a change."""


def test_what_was_corrected_while_its_reconcile_failed_for_good_is_reconciled() -> None:
    operator, asked, answered = Operator("shops"), asyncio.Event(), asyncio.Event()

    @operator.reconcile(Shop)
    async def function(ctx: Context[Shop]) -> Running:
        if ctx.object.spec.theme == "mars":
            asked.set()
            await answered.wait()
            raise Permanent("no such theme")
        return Running(ready_replicas=1)

    async def story(rig: Rig) -> None:
        rig.create(Shop("home", WebsiteSpec("", theme="mars")))
        await asked.wait()
        rig.patch(Shop, "home", {"spec": {"theme": "dark"}})
        await rig.clock.sleep(1)  # the cache shows it
        answered.set()
        await rig.settle()

    assert drive(operator, [], story).get(Shop, "home").status.ready_replicas == 1


def test_a_finalizer_is_no_correction_of_what_has_no_generation() -> None:
    """It may be the reconcile's own, added between the call and the failure."""
    failures, secret = Failures(), Secret(metadata=ObjectMeta(name="home", uid="1"), data={"a": "b"})
    failures.note_permanent(secret, "no")
    held = Secret(metadata=ObjectMeta(name="home", uid="1", finalizers=[FINALIZER]), data={"a": "b"})
    assert failures.permanent(held) == "no"
    assert failures.permanent(Secret(metadata=held.metadata, data={"a": "c"})) is None


def test_what_failed_for_good_is_still_cleaned_up_after() -> None:
    operator, _ = failing(Permanent("never"))
    cleaned: list[str] = []

    @operator._reconcilers[0].finalize
    async def gone(ctx: Context[Website]) -> None:
        cleaned.append(ctx.name)

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()

    assert drive(operator, [site()], story).find(Website, "home") is None
    assert cleaned == ["home"]


def test_any_other_error_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    operator, calls = failing(ValueError("boom"))

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(60)

    rig = drive(operator, [site()], story, raises=False)
    assert len(calls) > 5
    counted = rig._manager.metrics.registry.get_sample_value(
        "controller_runtime_reconcile_errors_total", {"controller": "websites.example.com"}
    )
    assert counted == len(calls)
    assert rig.events == [("home", "ReconcileFailed", "ValueError: boom")]
    assert times_told(rig) == 1
    lines = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert all("home" in line.getMessage() and "next_attempt_seconds" in line.getMessage() for line in lines)
    assert lines[0].exc_info is not None


def test_an_error_after_a_success_is_told_again() -> None:
    operator, _ = failing(ValueError("boom"), None, ValueError("boom"), None)

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(5)
        for number in range(3):
            rig.patch(Website, "home", {"metadata": {"annotations": {"a": str(number)}}})
            await rig.clock.sleep(5)

    rig = drive(operator, [site()], story, raises=False)
    assert times_told(rig) == 2


@pytest.mark.parametrize(
    "make",
    [
        *(partial(Retry, "", after=after) for after in NO_SECONDS),
        lambda: Permanent("", reason="two words"),
        lambda: Permanent("", reason=""),
    ],
)
def test_what_cannot_be_meant_is_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


def pruning(*, prune: bool = True) -> Operator:
    """A page for each letter of the theme."""
    operator = Operator("websites")

    @operator.reconcile(Website, owns=[ConfigMap], prune=prune)
    async def website(ctx: Context[Website]) -> RequeueAfter | None:
        for letter in ctx.object.spec.theme:
            if letter == "?":
                return ctx.requeue(after=3600)
            if letter == "!":
                raise ValueError("boom")
            await ctx.apply(ConfigMap(f"{ctx.name}-{letter}", data={"a": letter}))
        return None

    return operator


def pages(rig: Rig) -> list[str]:
    return [each.metadata.name for each in rig.objects(ConfigMap)]


async def less(rig: Rig, theme: str = "a") -> None:
    rig.patch(Website, "home", {"spec": {"theme": theme}})
    await rig.settle()


def test_what_is_no_longer_applied_is_removed() -> None:
    assert pages(drive(pruning(), [site(theme="abc")], less)) == ["home-a"]
    assert pages(drive(pruning(prune=False), [site(theme="abc")], less)) == ["home-a", "home-b", "home-c"]


def test_nothing_is_removed_by_a_reconcile_that_failed() -> None:
    rig = drive(pruning(), [site(theme="abc")], lambda rig: less(rig, "!"), raises=False)
    assert pages(rig) == ["home-a", "home-b", "home-c"]


def test_nothing_is_removed_by_a_reconcile_that_is_not_done() -> None:
    rig = drive(pruning(), [site(theme="abc")], lambda rig: less(rig, "?a"))
    assert pages(rig) == ["home-a", "home-b", "home-c"]


def test_what_others_made_is_not_removed() -> None:
    """Neither what nobody controls, nor what another controller made for the same object."""

    async def story(rig: Rig) -> None:
        rig.create(ConfigMap.resource, {"metadata": {"name": "nobodys"}})
        owned = rig.get(ConfigMap.resource, "home-b")["metadata"]["ownerReferences"]
        metadata = {"name": "theirs", "ownerReferences": owned}
        rig.server.apply(ConfigMap.resource, "theirs", "default", {"metadata": metadata}, "somebody")
        await less(rig)

    assert pages(drive(pruning(), [site(theme="abc")], story)) == ["home-a", "nobodys", "theirs"]


def test_what_a_timer_applies_is_not_removed() -> None:
    operator = pruning()

    @operator._reconcilers[0].timer(every=60)
    async def measure(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap("measured"))

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(70)
        await less(rig)

    rig = drive(operator, [site(theme="abc")], story)
    assert pages(rig) == ["home-a", "measured"]
    assert ("delete", "configmaps", "measured") not in rig.writes


def test_what_was_applied_by_other_means_is_not_removed() -> None:
    operator = Operator("websites")

    @operator.reconcile(Website, owns=[ConfigMap], prune=True)
    async def website(ctx: Context[Website]) -> None:
        for letter in ctx.object.spec.theme:
            metadata = {"name": f"home-{letter}", "ownerReferences": [ctx.controller_reference()]}
            await server_side_apply(ctx, ConfigMap.resource, {"metadata": metadata})

    rig = drive(operator, [site(theme="abc")], less)
    assert pages(rig) == ["home-a"]
    assert [each for each in rig.writes if each[0] == "delete"] == [
        ("delete", "configmaps", "home-b"), ("delete", "configmaps", "home-c"),
    ]  # fmt: skip


def test_what_is_left_from_before_a_restart_is_removed() -> None:
    first = drive(pruning(), [site(theme="abc")])
    objects = [(kind.resource, each) for kind in (Website, ConfigMap) for each in first.objects(kind.resource)]

    async def story(rig: Rig) -> None:
        for resource, body in objects:
            rig.server.objects.setdefault(resource.group_resource, {})
            body["metadata"].pop("resourceVersion", None)
            rig.server.create(resource, body)
            rig.server.find(resource, body["metadata"]["name"], "default")["metadata"]["uid"] = body["metadata"]["uid"]  # type: ignore[index]
        rig.patch(Website, "home", {"spec": {"theme": "a"}})
        await rig.settle()

    assert pages(drive(pruning(), [], story)) == ["home-a"]
