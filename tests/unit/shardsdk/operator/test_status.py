"""Status by return value: one conditional patch, or none."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import field

from shardsdk import (
    ConfigurationError,
    Context,
    CustomResource,
    Model,
    Operator,
    RequeueAfter,
    Resource,
    set_conditions,
)
from shardsdk.kinds import Kind
from shardsdk.operator.status import difference
from shardsdk.queueing.predicates import generation_changed
from shardsdk.testing import MemoryApi, Rig, drive
from shardsdk.testing.patching import merge
from tests.unit.shardsdk.operator.websites import (
    ConfigMap,
    Secret,
    Website,
    WebsiteSpec,
    WebsiteStatus,
    Workers,
    site,
    websites,
)


def operator_with(function: Any) -> Operator:
    operator = Operator("websites")
    operator.reconcile(Website)(function)
    return operator


def status_writes(rig: Rig) -> list[Any]:
    return [each.body["status"] for each in rig.sent if each.subresource == "status"]  # type: ignore[index,call-overload]


async def counting(ctx: Context[Website]) -> WebsiteStatus:
    replicas = ctx.object.spec.replicas
    return WebsiteStatus(replicas, conditions=[ctx.condition("Ready", replicas > 0, "Counted", "as wanted")])


def test_status_is_written_once_and_tells_its_generation() -> None:
    rig = drive(operator_with(counting), [site(replicas=2)])

    assert len(status_writes(rig)) == 1
    status = rig.get(Website, "home").status
    assert (status.ready_replicas, status.observed_generation) == (2, 1)
    assert [(each.type, each.status, each.reason, each.message) for each in status.conditions] == [
        ("Ready", "True", "Counted", "as wanted")
    ]


def test_a_count_that_goes_back_to_its_default_is_written() -> None:
    async def story(rig: Rig) -> None:
        rig.patch(Website, "home", {"spec": {"replicas": 0}})
        await rig.settle()

    rig = drive(operator_with(counting), [site(replicas=2)], story)
    assert rig.get(Website.resource, "home")["status"]["readyReplicas"] == 0


def test_the_first_status_has_all_its_fields_for_people_to_see() -> None:
    rig = drive(operator_with(counting), [site(replicas=0)])
    assert rig.get(Website.resource, "home")["status"]["readyReplicas"] == 0


def test_what_the_model_does_not_know_stays() -> None:
    condition = {
        "type": "Theirs",
        "status": "True",
        "reason": "A",
        "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    theirs = {"phase": "Running", "conditions": [condition]}
    home = (Website.resource, {"metadata": {"name": "home"}, "spec": {"html": "", "replicas": 2}, "status": theirs})

    status = drive(operator_with(counting), [home]).get(Website.resource, "home")["status"]
    assert status["phase"] == "Running"
    assert status["readyReplicas"] == 2
    assert [each["type"] for each in status["conditions"]] == ["Theirs", "Ready"]
    assert status["conditions"][0] == condition


def test_the_time_of_a_condition_moves_only_with_its_status() -> None:
    times: list[str] = []

    async def story(rig: Rig) -> None:
        for replicas in (2, 0, 1):
            await rig.clock.sleep(60)
            rig.patch(Website, "home", {"spec": {"replicas": replicas}})
            await rig.settle()
            times.append(rig.get(Website, "home").status.conditions[0].last_transition_time or "")

    drive(operator_with(counting), [site(replicas=3)], story)
    first, second, third = times
    assert first < second < third
    drive(operator_with(counting), [site(replicas=3)])


@pytest.mark.parametrize(
    "say",
    [
        lambda ctx: ctx.object.status.observed_generation,
        lambda ctx: 0,
        lambda ctx: ctx.metadata.generation,
        lambda ctx: ctx.metadata.generation - 1,
        lambda ctx: 7,
    ],
    ids=["as handed", "nothing", "the same", "the last one", "the same each time"],
)
def test_the_generation_that_was_reconciled_is_filled_in_whatever_stands_there(
    say: Callable[[Context[Website]], int],
) -> None:
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        status = ctx.object.status
        status.ready_replicas = ctx.object.spec.replicas
        status.observed_generation = say(ctx)
        return status

    async def story(rig: Rig) -> None:
        for generation, replicas in ((2, 5), (3, 5), (4, 6)):
            before = len(status_writes(rig))
            rig.patch(Website, "home", {"spec": {"replicas": replicas, "theme": str(generation)}})
            await rig.settle()
            assert rig.get(Website, "home").status.observed_generation == generation
            assert len(status_writes(rig)) == before + 1

    drive(operator_with(function), [site(replicas=2)], story)


@pytest.mark.parametrize("handed", [True, False], ids=["what it was handed", "one of its own"])
def test_a_timer_leaves_the_generation_to_the_reconcile_whatever_it_returns(handed: bool) -> None:
    operator, broken = Operator("websites"), list[bool]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        if broken:
            raise ValueError("boom")
        return WebsiteStatus(1)

    @function.timer(every=60)
    async def measure(ctx: Context[Website]) -> WebsiteStatus:
        status = ctx.object.status if handed else WebsiteStatus()
        status.ready_replicas = 5
        return status

    async def story(rig: Rig) -> None:
        broken.append(True)
        rig.patch(Website, "home", {"spec": {"theme": "dark"}})
        await rig.clock.sleep(70)
        status = rig.get(Website, "home").status
        assert (status.ready_replicas, status.observed_generation) == (5, 1)

    drive(operator, [site()], story, raises=False)


class Rollout(Model):
    """What another controller says."""

    ready_replicas: int = 0
    observed_generation: int = 0


class TheirDeployment(Kind):
    """A kind whose status is another controller's."""

    resource: ClassVar = Resource("apps", "v1", "deployments", "Deployment")
    spec: Workers = field(default_factory=Workers)
    status: Rollout = field(default_factory=Rollout)


def test_what_another_controller_has_observed_is_left_to_it() -> None:
    operator = Operator("deployments")

    @operator.reconcile(TheirDeployment)
    async def function(ctx: Context[TheirDeployment]) -> Rollout:
        status = ctx.object.status
        status.ready_replicas = ctx.object.spec.replicas
        return status

    async def story(rig: Rig) -> None:
        rig.patch(TheirDeployment, "home", {"spec": {"replicas": 3}})
        await rig.settle()

    theirs = {"metadata": {"name": "home"}, "spec": {"replicas": 2}, "status": {"observedGeneration": 1}}
    status = drive(operator, [(TheirDeployment.resource, theirs)], story).get(TheirDeployment, "home").status
    assert (status.ready_replicas, status.observed_generation) == (3, 1)


def test_what_was_written_meanwhile_is_not_overwritten() -> None:
    """Another condition comes between reading and writing."""
    interrupted: list[bool] = []

    async def function(ctx: Context[Website]) -> WebsiteStatus:
        if not interrupted:
            interrupted.append(True)
            condition = {"type": "Theirs", "status": "True", "reason": "A", "message": ""}
            rig_of[0].server.patch(
                Website.resource, "home", "default", {"status": {"conditions": [condition]}}, subresource="status"
            )
        return await counting(ctx)

    rig_of: list[Rig] = []

    async def story(rig: Rig) -> None:
        rig_of.append(rig)
        rig.create(Website.resource, {"metadata": {"name": "home"}, "spec": {"html": "", "replicas": 2}})
        await rig.settle()

    rig = drive(operator_with(function), [], story)
    assert [each for _, each in rig.outcomes if isinstance(each, Exception)] == []
    assert [each.type for each in rig.get(Website, "home").status.conditions] == ["Theirs", "Ready"]


@pytest.fixture
def slow_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches show a write some time after it was answered."""
    make = MemoryApi.__init__
    monkeypatch.setattr(MemoryApi, "__init__", lambda *given, **more: make(*given, **{**more, "lag": lambda: 0.1}))


def test_what_the_reconcile_wrote_itself_is_not_left_because_the_cache_shows_the_status_as_returned(
    slow_news: None,
) -> None:
    operator = Operator("websites")

    @operator.reconcile(Website, when=generation_changed)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        await ctx.api.patch(ctx.main, ctx.name, ctx.namespace, {"status": {"readyReplicas": 0}}, subresource="status")
        return WebsiteStatus(2)

    async def story(rig: Rig) -> None:
        rig.patch(Website, "home", {"spec": {"theme": "dark"}})
        await rig.clock.sleep(3600)

    rig = drive(operator, [site(replicas=2)], story)
    assert len(rig.outcomes) == 2
    status = rig.get(Website, "home").status
    assert (status.ready_replicas, status.observed_generation) == (2, 2)


def test_conditions_that_the_reconcile_set_itself_are_not_left_behind(slow_news: None) -> None:
    operator = Operator("websites")

    @operator.reconcile(Website, when=generation_changed)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        await set_conditions(ctx, ctx.condition("Progressing", True, "Working"))
        return WebsiteStatus(2, conditions=[ctx.condition("Progressing", False, "Done")])

    async def story(rig: Rig) -> None:
        rig.patch(Website, "home", {"spec": {"theme": "dark"}})
        await rig.clock.sleep(3600)

    rig = drive(operator, [site(replicas=2)], story)
    (condition,) = rig.get(Website, "home").status.conditions
    assert (condition.status, condition.reason) == ("False", "Done")


def test_nothing_returned_writes_nothing() -> None:
    async def function(ctx: Context[Website]) -> None:
        ctx.object.status.ready_replicas = 7

    assert drive(operator_with(function), [site()]).writes == []


def test_a_status_and_another_look() -> None:
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        ctx.requeue(after=60)
        return WebsiteStatus(ready_replicas=len(rounds))

    async def story(rig: Rig) -> None:
        before = len(rig.outcomes)
        await rig.clock.sleep(timedelta(minutes=5).total_seconds())
        assert len(rig.outcomes) >= before + 4

    rounds: list[int] = []
    drive(operator_with(function), [site()], story)


def test_an_outcome_is_no_status() -> None:
    async def function(ctx: Context[Website]) -> RequeueAfter:
        return ctx.requeue(after=60)

    rig = drive(operator_with(function), [site()])
    assert rig.outcomes == [("home", RequeueAfter(60))]
    assert rig.writes == []


@pytest.mark.parametrize("returned", [{"ready": 1}, ConfigMap("a"), 3])
def test_something_else_returned_is_refused_with_what_to_return(returned: object) -> None:
    async def function(ctx: Context[Website]) -> object:
        return returned

    with pytest.raises(ConfigurationError, match="return a WebsiteStatus, None"):
        drive(operator_with(function), [site()])


def test_a_status_for_a_kind_without_one_is_refused() -> None:
    async def function(ctx: Context[Secret]) -> object:
        return WebsiteStatus()

    operator = Operator("secrets")
    operator.reconcile(Secret)(function)
    with pytest.raises(ConfigurationError, match=r"Secret has no status: return Done\(\).*RequeueAfter\(seconds\)$"):
        drive(operator, [Secret("a")])


class Forgetful(CustomResource[WebsiteSpec], group="example.com", version="v1"):
    """Its status was forgotten."""


FORGOTTEN = r"Forgetful has no status.*; write `class Forgetful\(CustomResource\[WebsiteSpec, WebsiteStatus\], …\)`"


def test_a_status_that_the_kind_was_not_given_is_refused_with_how_to_give_it_one() -> None:
    def function(ctx: Context[Forgetful]) -> object:
        return WebsiteStatus()

    operator = Operator("forgetful")
    operator.reconcile(Forgetful)(function)
    with pytest.raises(ConfigurationError, match=FORGOTTEN):
        drive(operator, [Forgetful("a", WebsiteSpec(""))])


def test_an_annotation_that_says_so_is_refused_where_it_is_written() -> None:
    operator = Operator("forgetful")
    with pytest.raises(ConfigurationError, match=f"returns a WebsiteStatus, but {FORGOTTEN}"):

        @operator.reconcile(Forgetful)
        async def forgetful(ctx: Context[Forgetful]) -> WebsiteStatus | None:
            return None

    @operator.reconcile(Website)
    async def website(ctx: Context[Website]) -> WebsiteStatus | RequeueAfter | None:
        return None

    with pytest.raises(ConfigurationError, match=r"returns a WebsiteSpec, but the status of Website is another class"):

        @website.timer(every=60)
        async def measure(ctx: Context[Website]) -> WebsiteSpec:
            return WebsiteSpec("")


def test_one_write_and_no_more_at_rest() -> None:
    rig = drive(websites(), [site()])
    assert len(status_writes(rig)) == 1


values = st.recursive(
    st.integers(0, 2) | st.booleans() | st.text("ab", max_size=1),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
fields = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@given(fields, fields)
def test_the_difference_of_two_makes_the_second_of_the_first(before: dict[str, Any], after: dict[str, Any]) -> None:
    changes = difference(before, after)
    assert json.dumps(merge(before, changes), sort_keys=True) == json.dumps(after, sort_keys=True)
    assert bool(changes) == (json.dumps(before, sort_keys=True) != json.dumps(after, sort_keys=True))
