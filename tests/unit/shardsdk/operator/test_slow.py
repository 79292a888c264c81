"""Reconciles that take longer than the time between two writes of their object by others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardsdk import Context, CustomResource, Model, Operator, Permanent
from shardsdk.objects.finalizers import remove_finalizer
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import Secret, Website, WebsiteSpec, WebsiteStatus, site

#: Changes that somebody makes while the object is reconciled.
Change = Callable[[Rig], object]


def annotate(rig: Rig, value: str = "1") -> None:
    rig.patch(Website, "home", {"metadata": {"annotations": {"beat": value}}})


def label(rig: Rig) -> None:
    rig.patch(Website, "home", {"metadata": {"labels": {"class": "theirs"}}})


def respecify(rig: Rig) -> None:
    rig.patch(Website, "home", {"spec": {"theme": "dark"}})


def say(rig: Rig, **status: object) -> None:
    rig.server.patch(Website.resource, "home", "default", {"status": status}, subresource="status")


def met(rig: Rig) -> list[str]:
    return [type(each).__name__ for _, each in rig.outcomes if isinstance(each, Exception)]


def slow(ends: Callable[[Context[Website]], Any], during: Change) -> tuple[Operator, Callable[[Rig], Any]]:
    """A reconcile during the first of which something changes."""
    rigs = list[Rig]()
    operator = Operator("websites")

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> Any:
        if rigs:
            during(rigs.pop())
        return ends(ctx)

    async def story(rig: Rig) -> None:
        rigs.append(rig)
        rig.create(site(replicas=2))
        await rig.settle()

    return operator, story


def counted(ctx: Context[Website]) -> WebsiteStatus:
    replicas = ctx.object.spec.replicas
    return WebsiteStatus(replicas, conditions=[ctx.condition("Ready", replicas > 0, "Counted")])


async def beats(rig: Rig, seconds: float, times: int) -> None:
    for number in range(times):
        await rig.clock.sleep(seconds)
        if rig.find(Website, "home") is None:
            return
        annotate(rig, str(number))


@pytest.mark.parametrize(("sharded", "max_writes"), [(False, None), (False, 1), (True, None), (True, 1)])
def test_a_clean_up_is_done_once_while_others_write_annotations(sharded: bool, max_writes: int | None) -> None:
    operator, begun = Operator("websites", sharded=sharded), list[float]()

    @operator.reconcile(Website, max_writes=max_writes)
    async def function(ctx: Context[Website]) -> None:
        ctx.log.debug("nothing to do")

    @function.finalize
    async def clean_up(ctx: Context[Website]) -> None:
        begun.append(ctx.clock.monotonic())
        await ctx.clock.sleep(10)

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await beats(rig, 6, 10)

    rig = drive(operator, [site()], story)
    assert rig.find(Website, "home") is None
    assert len(begun) == 1


def test_finalizers_that_others_add_and_take_off_meanwhile_stay_as_they_are() -> None:
    operator, begun = Operator("websites"), list[str]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        ctx.log.debug("nothing to do")

    @function.finalize
    async def clean_up(ctx: Context[Website]) -> None:
        begun.append(ctx.name)
        await ctx.clock.sleep(10)

    async def story(rig: Rig) -> None:
        ours = (rig.get(Website, "home").metadata.finalizers or [])[0]
        rig.patch(Website, "home", {"metadata": {"finalizers": [ours, "example.com/a", "example.com/b"]}})
        rig.delete(Website, "home")
        await rig.clock.sleep(5)
        rig.patch(Website, "home", {"metadata": {"finalizers": ["example.com/a", ours]}})
        await rig.clock.sleep(10)
        assert rig.get(Website, "home").metadata.finalizers == ["example.com/a"]

    drive(operator, [site()], story)
    assert len(begun) == 1


def test_a_status_is_written_while_others_write_annotations() -> None:
    operator, begun = Operator("websites"), list[float]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        begun.append(ctx.clock.monotonic())
        await ctx.clock.sleep(20)
        return counted(ctx)

    async def story(rig: Rig) -> None:
        rig.create(site(replicas=2))
        await beats(rig, 6, 10)
        await rig.clock.sleep(60)

    rig = drive(operator, [], story)
    assert met(rig) == []
    assert len(begun) <= 5
    assert rig.get(Website, "home").status.ready_replicas == 2


def test_a_timer_faster_than_the_reconcile_and_the_reconcile_leave_one_anothers_fields_alone() -> None:
    operator = Operator("websites")

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        await ctx.clock.sleep(20)
        status = ctx.object.status
        status.conditions = [ctx.condition("Ready", True, "Made")]
        return status

    @function.timer(every=15)
    async def measure(ctx: Context[Website]) -> WebsiteStatus:
        status = ctx.object.status
        status.ready_replicas = min(status.ready_replicas + 1, 8)
        return status

    async def story(rig: Rig) -> None:
        rig.create(site())
        await rig.clock.sleep(90)
        status = rig.get(Website, "home").status
        assert status.ready_replicas == 6
        assert [each.reason for each in status.conditions] == ["Made"]
        await rig.clock.sleep(120)

    drive(operator, [], story)


@pytest.mark.parametrize("during", [label, respecify, lambda rig: say(rig, readyReplicas=7)])
def test_what_the_reconcile_has_not_seen_has_it_reconciled_again(during: Change) -> None:
    """Other labels may be another shard's; another spec wants another status; a field of two is the later one's."""
    operator, story = slow(counted, during)
    rig = drive(operator, [], story)
    assert met(rig) == ["Conflict"]
    status = rig.get(Website, "home").status
    assert (status.ready_replicas, status.observed_generation) == (2, rig.get(Website, "home").metadata.generation)


def test_of_what_is_deleted_meanwhile_no_status_is_written() -> None:
    operator, rigs = Operator("websites"), list[Rig]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        rigs[0].delete(Website, "home")
        return counted(ctx)

    async def story(rig: Rig) -> None:
        rigs.append(rig)
        body = {"metadata": {"name": "home", "finalizers": ["example.com/theirs"]}, "spec": {"html": ""}}
        rig.create(Website.resource, body)
        await rig.settle()

    rig = drive(operator, [], story)
    assert met(rig) == ["Conflict"]
    assert not rig.get(Website, "home").status.observed_generation


def test_who_has_written_the_object_itself_is_told_of_every_change_after_that() -> None:
    operator, rigs = Operator("websites"), list[Rig]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        await ctx.patch(Website, ctx.name, {"metadata": {"annotations": {"begun": "1"}}})
        if rigs:
            say(rigs.pop(), readyReplicas=7)
            await ctx.clock.sleep(1)  # until the cache shows that, too
        return counted(ctx)

    async def story(rig: Rig) -> None:
        rigs.append(rig)
        rig.create(site(replicas=2))
        await rig.clock.sleep(5)

    assert "Conflict" in met(drive(operator, [], story))


@pytest.mark.parametrize("counts", [True, False])
def test_taking_a_finalizer_off_what_lives_on_hides_nothing_from_what_is_written_next(counts: bool) -> None:
    operator, rigs = Operator("websites"), list[Rig]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus | None:
        if "example.com/old" not in (ctx.metadata.finalizers or []):
            return None
        status, notes = ctx.object.status, ctx.metadata.annotations or {}
        if rigs:
            rig = rigs.pop()
            say(rig, readyReplicas=7)
            annotate(rig, "5")
        await remove_finalizer(ctx, "example.com/old")
        if counts:
            body = {"metadata": {"annotations": {"beat": str(int(notes.get("beat", "0")) + 1)}}}
            await ctx.patch(Website, ctx.name, body)
        status.conditions = [ctx.condition("Ready", True, "Counted")]
        return status

    async def story(rig: Rig) -> None:
        rigs.append(rig)
        metadata = {"name": "home", "finalizers": ["example.com/old"]}
        rig.create(Website.resource, {"metadata": metadata, "spec": {"html": ""}, "status": {"readyReplicas": 1}})
        await rig.settle()

    rig = drive(operator, [], story)
    there = rig.get(Website, "home")
    assert (there.status.ready_replicas, [each.reason for each in there.status.conditions]) == (7, ["Counted"])
    assert there.metadata.annotations == {"beat": "6" if counts else "5"}


def test_what_is_asked_back_meanwhile_is_not_written_any_more() -> None:
    operator, rigs = Operator("websites", sharded=True), list[Rig]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        if rigs:
            rigs.pop().drain(Website, "home")
        return counted(ctx)

    async def story(rig: Rig) -> None:
        rigs.append(rig)
        rig.patch(Website, "home", {"spec": {"replicas": 3}})
        await rig.settle()
        assert rig.labels(Website, "home") == {}

    rig = drive(operator, [site(replicas=2)], story)
    assert met(rig) == ["Conflict"]
    assert rig.get(Website, "home").status.ready_replicas == 2


def test_conditions_that_others_change_meanwhile_are_not_put_back() -> None:
    theirs = {"type": "Theirs", "status": "False", "reason": "A", "message": ""}
    operator, rigs = Operator("websites"), list[Rig]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus:
        if rigs:
            say(rigs.pop(), conditions=[{**theirs, "status": "True", "reason": "B"}])
        status = ctx.object.status
        status.conditions = [*status.conditions, ctx.condition("Ready", True, "Counted")]
        return status

    async def story(rig: Rig) -> None:
        rigs.append(rig)
        body = {"metadata": {"name": "home"}, "spec": {"html": ""}, "status": {"conditions": [theirs]}}
        rig.create(Website.resource, body)
        await rig.settle()

    rig = drive(operator, [], story)
    assert met(rig) == []
    assert [each.reason for each in rig.get(Website, "home").status.conditions] == ["B", "Counted"]


def test_that_it_failed_for_good_is_written_beside_what_others_have_written_meanwhile() -> None:
    def ends(ctx: Context[Website]) -> None:
        raise Permanent("no such region", reason="UnknownRegion")

    def during(rig: Rig) -> None:
        annotate(rig)
        say(rig, readyReplicas=7)

    operator, story = slow(ends, during)
    rig = drive(operator, [], story)
    assert met(rig) == ["Permanent"]
    status = rig.get(Website, "home").status
    assert (status.ready_replicas, [each.reason for each in status.conditions]) == (7, ["UnknownRegion"])


def test_of_a_kind_without_generations_nothing_tells_whether_it_is_to_be_otherwise() -> None:
    operator, rigs, begun = Operator("secrets"), list[Rig](), list[str]()

    @operator.reconcile(Secret)
    async def function(ctx: Context[Secret]) -> None:
        ctx.log.debug("nothing to do")

    @function.finalize
    async def clean_up(ctx: Context[Secret]) -> None:
        begun.append(ctx.version)
        if len(begun) == 1:
            rigs[0].patch(Secret, "home", {"data": {"a": "Yg=="}})

    async def story(rig: Rig) -> None:
        rigs.append(rig)
        rig.delete(Secret, "home")
        await rig.clock.sleep(5)

    rig = drive(operator, [Secret("home")], story)
    assert rig.find(Secret, "home") is None
    assert met(rig) == ["Conflict"]
    assert len(begun) == 2


class Whole(Model):
    """A status that says nothing before it says everything."""

    count: int
    phase: str = ""


class Depot(CustomResource[WebsiteSpec, Whole | None], group="example.com", version="v1"):
    """It has no status at first."""


def test_the_first_status_is_written_over_an_annotation_too() -> None:
    operator, rigs = Operator("depots"), list[Rig]()

    @operator.reconcile(Depot)
    async def function(ctx: Context[Depot]) -> Whole:
        if rigs:
            rigs.pop().patch(Depot, "home", {"metadata": {"annotations": {"beat": "1"}}})
        return Whole(3)

    async def story(rig: Rig) -> None:
        rigs.append(rig)
        rig.create(Depot("home", WebsiteSpec("")))
        await rig.settle()

    rig = drive(operator, [], story)
    assert met(rig) == []
    assert rig.get(Depot.resource, "home")["status"] == {"count": 3, "phase": ""}
