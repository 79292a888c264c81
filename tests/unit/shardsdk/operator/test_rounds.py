"""Objects that are reconciled for ever by their own writes, or by two that undo one another's, and who is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from shardsdk import ConfigurationError, Context, ObjectMeta, Operator, Request, Requeue, RequeueAfter, kinds
from shardsdk.errors import Invalid
from shardsdk.kinds import resource_of
from shardsdk.kinds.wire import encode
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.reflector import Delta, EventKind
from shardsdk.queueing.predicates import generation_changed
from shardsdk.reconcile.rounds import HEARD, TELL_SECONDS, TOLD, Rounds
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Deployment, Website, WebsiteStatus, publish, site, websites

WAKE = "Reconciles of an object wake one another"
PUT_BACK = "is changed by somebody else again and again"

Function = Callable[[Context[Website]], Any]


def operator_of(*functions: Function, **options: Any) -> Operator:
    operator = Operator("websites")
    for function in functions:
        operator.reconcile(Website, name=function.__name__, owns=[ConfigMap, Deployment], **options)(function)
    return operator


def counting(limit: int, *, after: Any = None) -> Function:
    """Counts its calls in the status, up to `limit`."""
    calls = count(1)

    async def counter(ctx: Context[Website]) -> Any:
        number = next(calls)
        if after is not None and number < limit:
            await ctx.patch(Website, ctx.name, {"status": {"readyReplicas": number}}, subresource="status")
            return after
        return WebsiteStatus(min(number, limit))

    return counter


def told(operator: Operator, caplog: pytest.LogCaptureFixture, story: Any = None) -> list[str]:
    with caplog.at_level(logging.WARNING, "shardsdk"):
        drive(operator, [site()], story, rights=False)
    return [each.getMessage() for each in caplog.records]


@pytest.mark.parametrize("after", [None, RequeueAfter(60)])
def test_a_counter_in_the_status_is_told_with_object_and_field(after: Any, caplog: pytest.LogCaptureFixture) -> None:
    (line,) = told(operator_of(counting(TOLD + 20, after=after)), caplog)
    assert line.startswith(WAKE)
    assert "controller=counter namespace=default object=home rounds=50" in line
    assert 'written="Website home" fields=status.readyReplicas' in line


def test_a_counter_in_a_child_is_told_as_well(caplog: pytest.LogCaptureFixture) -> None:
    calls = count(1)

    async def counter(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data={"n": str(min(next(calls), TOLD + 20))}))

    (line,) = told(operator_of(counter), caplog)
    assert 'written="ConfigMap home" fields=data.n' in line


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (counting(TOLD - 5), {}),
        (counting(TOLD + 20, after=Requeue()), {}),
        (counting(TOLD + 20, after=RequeueAfter(0)), {}),
        (counting(TOLD + 20, after=RequeueAfter(1)), {"when": generation_changed}),
    ],
    ids=["comes to rest", "goes on by Requeue", "goes on at once", "polls"],
)
def test_what_goes_on_of_its_own_accord_is_not_told(
    function: Function, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: Rig) -> None:
        await rig.clock.sleep(600)

    assert told(operator_of(function, **options), caplog, story) == []


def test_a_reconcile_that_follows_what_others_do_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: Rig) -> None:
        for ready in range(1, 3 * TOLD):
            rig.patch(Deployment, "home", {"status": {"readyReplicas": ready}})
            await rig.settle()

    assert told(operator_of(publish), caplog, story) == []


def test_a_timer_beside_it_is_somebody_else(caplog: pytest.LogCaptureFixture) -> None:
    operator, ticks = websites(), count(1)

    @operator._reconcilers[0].timer(every=1)
    async def measure(ctx: Context[Website]) -> None:
        await ctx.patch(Website, ctx.name, {"metadata": {"annotations": {"tick": str(next(ticks))}}})

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(3 * TOLD)

    assert told(operator, caplog, story) == []


def test_what_changes_during_one_long_reconcile_is_not_kept() -> None:
    rounds, home = Rounds("websites", SystemClock()), Request("default", "home")
    rounds.ended(home, ["1"])
    rounds.begins(home)
    for number in range(2 * HEARD):
        rounds.heard(home, resource_of(ConfigMap), changed(number))
    assert not rounds._followed


@pytest.mark.parametrize(("seconds", "lines"), [(0, 1), (TELL_SECONDS, 3)])
def test_rounds_that_something_else_ends_each_time_are_told_now_and_then(
    seconds: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    now = count(0.0, seconds / (TOLD + 10))

    class Ticking(SystemClock):
        def monotonic(self) -> float:
            return next(now)

    rounds, home = Rounds("websites", Ticking()), Request("default", "home")
    for number in range(3 * (TOLD + 10)):
        rounds.begins(home)
        rounds.ended(home, [str(number)])
        rounds.heard(home, resource_of(ConfigMap), changed(number))
        if number % (TOLD + 10) == 0:
            rounds.heard(home)
    assert len(caplog.records) == lines


def changed(version: int) -> Delta[Any]:
    page = ConfigMap(ObjectMeta(name="home", resource_version=str(version)))
    return Delta(EventKind.MODIFIED, page, page, initial=False)


def fighting(limit: int) -> list[Function]:
    """Two that apply one field; the second gives in."""
    calls = count(1)

    async def one(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data={"index.html": "one", "same": "yes"}))

    async def other(ctx: Context[Website]) -> None:
        if next(calls) < limit:
            await ctx.apply(ConfigMap(data={"index.html": "other", "same": "yes"}))

    return [one, other]


def test_two_functions_that_apply_one_field_are_told(caplog: pytest.LogCaptureFixture) -> None:
    lines = told(operator_of(*fighting(300)), caplog)
    assert len(lines) == 2
    for line, name in zip(sorted(lines), ["websites-one", "websites-other"], strict=True):
        assert PUT_BACK in line
        assert f'object="Website home" applied="ConfigMap home" field_owner={name.replace("-", "/")} times=50' in line
        assert line.endswith("fields=data.index.html")


def test_two_functions_that_return_a_status_each_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Each takes away what the other has said; the second gives in."""
    calls = count(1)

    async def one(ctx: Context[Website]) -> WebsiteStatus:
        return WebsiteStatus(1)

    async def other(ctx: Context[Website]) -> WebsiteStatus | None:
        return WebsiteStatus(2) if next(calls) < 300 else None

    lines = told(operator_of(one, other), caplog)
    assert len(lines) == 2
    for line, name in zip(sorted(lines), ["one", "other"], strict=True):
        assert line.startswith(f"The status that is returned {PUT_BACK}")
        assert f"controller={name} namespace=default object=home times=50 fields=status.readyReplicas" in line


def test_a_status_that_is_the_same_for_each_spec_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def same(ctx: Context[Website]) -> WebsiteStatus:
        return WebsiteStatus(1)

    async def story(rig: Rig) -> None:
        for number in range(3 * TOLD):
            rig.patch(Website, "home", {"spec": {"replicas": number}})
            await rig.settle()

    assert told(operator_of(same), caplog, story) == []


def test_what_is_put_back_now_and_then_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: Rig) -> None:
        for number in range(20):
            rig.patch(ConfigMap, "home", {"data": {"index.html": str(number)}})
            await rig.settle()

    assert told(websites(), caplog, story) == []


def test_what_somebody_else_keeps_in_a_child_is_not_put_back(caplog: pytest.LogCaptureFixture) -> None:
    """Each heartbeat leads to an apply, which finds the next one there, and touches neither."""
    beats, due = count(1), list[Rig]()

    def beat(rig: Rig) -> None:
        rig.patch(ConfigMap, "home", {"metadata": {"annotations": {"beat": str(next(beats))}}})

    async def function(ctx: Context[Website]) -> None:
        if due:
            beat(due.pop())  # before the cache has it
        await ctx.apply(ConfigMap(data={"index.html": "x"}))

    async def story(rig: Rig) -> None:
        for _ in range(3 * TOLD):
            due.append(rig)
            beat(rig)
            await rig.settle()
        assert not due

    assert told(operator_of(function), caplog, story) == []


def test_a_fight_is_told_whatever_is_stamped_upon_the_child_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    """As the deployment controller counts in an annotation what it has rolled out."""
    ours, theirs = pods("ours:1"), encode(pods("theirs:1"))

    async def function(ctx: Context[Website]) -> None:
        await ctx.apply(kinds.Deployment(spec=ours))

    async def story(rig: Rig) -> None:
        for number in range(TOLD):
            stamp = {"annotations": {"deployment.kubernetes.io/revision": str(number)}}
            rig.patch(Deployment, "home", {"metadata": stamp, "spec": theirs})
            await rig.settle()

    operator = Operator("websites")
    operator.reconcile(Website, owns=[kinds.Deployment])(function)
    (line,) = told(operator, caplog, story)
    assert f'applied="Deployment home" field_owner=websites times={TOLD}' in line
    assert line.endswith("fields=spec.template.spec.containers")


def pods(image: str) -> kinds.DeploymentSpec:
    """What runs them."""
    labels = {"app": "home"}
    template = kinds.PodTemplateSpec(
        metadata=ObjectMeta(labels=labels), spec=kinds.PodSpec(containers=[kinds.Container(name="page", image=image)])
    )
    return kinds.DeploymentSpec(selector=kinds.LabelSelector(match_labels=labels), template=template)


def test_two_children_without_a_name_are_refused() -> None:
    async def function(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data={"index.html": "x"}))
        await ctx.apply(ConfigMap(data={"nginx.conf": "y"}))

    with pytest.raises(ConfigurationError, match="without a name is applied twice in one reconcile"):
        drive(operator_of(function), [site()])


def test_one_child_that_is_applied_twice_for_ever_is_told(caplog: pytest.LogCaptureFixture) -> None:
    calls = count(1)

    async def function(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap("page", data={"index.html": "x"}))
        if next(calls) < TOLD + 20:
            await ctx.apply(ConfigMap("page", data={"nginx.conf": "y"}))

    (line,) = told(operator_of(function), caplog)
    assert 'written="ConfigMap page" fields="data.' in line


def test_the_same_without_a_name_or_something_else_after_a_failure_or_a_deletion_is_applied() -> None:
    made = list[ConfigMap]()

    async def function(ctx: Context[Website]) -> None:
        with pytest.raises(Invalid):
            await ctx.apply(ConfigMap(ObjectMeta(labels={"no label": "y"})))
        await ctx.apply(ConfigMap(data={"index.html": "x"}))
        await ctx.apply(ConfigMap(data={"index.html": "x"}))
        if not made:
            await ctx.delete(ConfigMap, ctx.name)
            made.append(await ctx.apply(ConfigMap(data={"index.html": "y"})))

    drive(operator_of(function), [site()])
    assert [each.data for each in made] == [{"index.html": "y"}]


def test_a_rig_that_does_not_come_to_rest_says_what_goes_on() -> None:
    async def waits(ctx: Context[Website]) -> None:
        await ctx.patch(Website, ctx.name, {"status": {"readyReplicas": 1}}, subresource="status")
        await ctx.clock.sleep(3600)

    with pytest.raises(AssertionError, match="does not come to rest") as raised:
        drive(operator_of(waits), [site()])
    assert str(raised.value).endswith(
        "it reconciled 0 times, 1 have not ended: 'waits' reconciled default/home last, the last writes are patch"
        " websites home"
    )
