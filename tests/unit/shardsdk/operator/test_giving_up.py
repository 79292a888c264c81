"""What is said of an object whose reconcile failed for good, and for how long."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec import field

from shardsdk import Condition, Context, CustomResource, Model, Operator, Permanent, Retry
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Running, Website, WebsiteSpec, WebsiteStatus, owe, site

GAVE_UP = (
    "default/home: waits for a change of its spec, or another process; its last reconcile ended with"
    " Permanent: UnknownRegion: no such region"
)
#: The theme that no reconcile can make.
MARS = site(theme="mars")


def refusing(*, sharded: bool = False) -> tuple[Operator, list[str]]:
    """Fails for good over one theme, and notes the themes that it is called with."""
    operator, themes = Operator("websites", sharded=sharded), list[str]()

    async def function(ctx: Context[Website]) -> WebsiteStatus:
        themes.append(ctx.object.spec.theme)
        await ctx.apply(ConfigMap(data={"theme": ctx.object.spec.theme}))
        if ctx.object.spec.theme == "mars":
            raise Permanent("no such region", reason="UnknownRegion")
        return WebsiteStatus(1, conditions=[ctx.condition("Ready", True, "Done")])

    operator.reconcile(Website, owns=[ConfigMap])(function).resync(every=60)
    return operator, themes


def counted(rig: Rig, name: str, **labels: str) -> float | None:
    registry = rig._manager.metrics.registry
    return registry.get_sample_value(f"controller_runtime_{name}", {"controller": "websites.example.com", **labels})


def counts(rig: Rig) -> tuple[float | None, ...]:
    """Of terminal errors, and of reconciles by their result."""
    results = (counted(rig, "reconcile_total", result=each) for each in ("error", "success"))
    return (counted(rig, "terminal_reconcile_errors_total"), *results)


def themed(rig: Rig, theme: str) -> None:
    rig.patch(Website, "home", {"spec": {"theme": theme}})


def test_what_failed_for_good_is_told_and_counted_once_and_says_so_until_its_spec_changes() -> None:
    operator, themes = refusing()

    async def story(rig: Rig) -> None:
        assert rig.explain(Website, "home") == GAVE_UP
        assert counts(rig) == (1, 1, 0)
        await rig.clock.sleep(600)
        rig.patch(ConfigMap, "home", {"data": {"theme": "theirs"}})
        rig.patch(Website, "home", {"metadata": {"annotations": {"a": "b"}}})
        await rig.settle()
        assert rig.explain(Website, "home") == GAVE_UP
        assert counts(rig) == (1, 1, 0)
        assert themes == ["mars"]
        themed(rig, "dark")
        await rig.settle()
        assert rig.explain(Website, "home") == "default/home: waits for its next event"
        assert counts(rig)[:2] == (1, 1)

    rig = drive(operator, [MARS], story)
    assert rig.events == [("home", "UnknownRegion", "no such region")]
    assert [type(each) for _, each in rig.outcomes if isinstance(each, Exception)] == [Permanent]


def test_a_time_that_was_asked_for_earlier_does_not_hide_it() -> None:
    operator = Operator("websites")

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        if ctx.object.spec.theme == "mars":
            raise Permanent("no such region", reason="UnknownRegion")
        if ctx.object.spec.theme != "light":
            ctx.requeue(after=3600)

    async def story(rig: Rig) -> None:
        assert "until the time that its last reconcile asked for" in rig.explain(Website, "home")
        themed(rig, "mars")
        await rig.settle()
        assert rig.explain(Website, "home") == GAVE_UP
        themed(rig, "dark")
        await rig.settle()
        themed(rig, "light")
        await rig.settle()
        assert rig.explain(Website, "home") == "default/home: waits for its next event"

    drive(operator, [site()], story)


def test_it_says_so_while_it_is_drained_and_cannot_be_given_away_yet() -> None:
    operator, themes = refusing(sharded=True)

    async def story(rig: Rig) -> None:
        owe(rig)
        rig.drain(Website, "home")
        await rig.settle()
        rig.patch(Website, "home", {"metadata": {"annotations": {"a": "b"}}})
        await rig.settle()
        assert rig.explain(Website, "home").startswith(GAVE_UP)
        assert themes == ["mars"]

    drive(operator, [MARS], story)


def test_it_is_one_line_without_a_stack(caplog: pytest.LogCaptureFixture) -> None:
    operator, _ = refusing()
    drive(operator, [MARS])
    (line,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert "UnknownRegion: no such region" in line.getMessage()
    assert line.exc_info is None


def test_the_line_says_what_leads_to_another_attempt(caplog: pytest.LogCaptureFixture) -> None:
    operator, _ = refusing()
    drive(operator, [MARS])
    (line,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert line.msg == "Reconcile failed for good"
    assert line.__dict__["waits_for"] == "a change of its spec, or another process"


def test_a_clean_up_that_fails_for_good_is_called_by_every_event_and_told_once_for_each_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    operator, calls, says = Operator("websites"), list[str](), ["not empty"]

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        """Nothing to do."""

    @function.finalize
    async def gone(ctx: Context[Website]) -> None:
        calls.append(says[0])
        if says[0]:
            raise Permanent(says[0], reason="Kept")

    def touch(rig: Rig, value: str) -> None:
        rig.patch(Website, "home", {"metadata": {"annotations": {"a": value}}})

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.settle()
        touch(rig, "1")
        await rig.settle()
        assert calls == ["not empty"] * len(calls)
        assert len(calls) > 1
        kept = "default/home: waits for its next event; its last reconcile ended with Permanent: Kept: not empty"
        assert rig.explain(Website, "home") == kept
        assert counts(rig)[:2] == (1, 1)
        says[0] = "locked"
        touch(rig, "2")
        await rig.settle()
        touch(rig, "3")
        await rig.settle()
        assert counts(rig)[:2] == (2, 2)
        says[0] = ""
        touch(rig, "4")
        await rig.settle()
        assert rig.find(Website, "home") is None

    rig = drive(operator, [site()], story)
    told = [line.__dict__["error"] for line in caplog.records if line.levelno == logging.ERROR]
    assert told == ["Permanent: Kept: not empty", "Permanent: Kept: locked"]
    assert [message for _, _, message in rig.events] == ["not empty", "locked"]


def test_a_reason_that_nobody_gave_is_not_told() -> None:
    assert str(Permanent("no such region")) == "no such region"


def test_an_object_that_failed_for_good_is_given_away_and_tried_again_when_it_is_back() -> None:
    """Meanwhile another shard, of a later version perhaps, may have made it well, and its status say so."""
    operator, themes = refusing(sharded=True)

    async def story(rig: Rig) -> None:
        labels = rig.labels(Website, "home")
        shard = rig.labels_of_ring.shard
        rig.drain(Website, "home")
        await rig.settle()
        assert rig.labels(Website, "home") == {}
        assert "is not in this controller's cache" in rig.explain(Website, "home")
        for theirs in ({shard: "another"}, labels):
            rig.patch(Website, "home", {"metadata": {"labels": theirs}})
            await rig.settle()
        await rig.clock.sleep(600)
        assert rig.explain(Website, "home") == GAVE_UP

    rig = drive(operator, [MARS], story)
    assert themes == ["mars", "mars"]
    assert counts(rig) == (2, 2, 0)


def status_writes(rig: Rig) -> list[Any]:
    return [each.body["status"] for each in rig.sent if each.subresource == "status"]  # type: ignore[index,call-overload]


def test_its_generation_has_been_observed_in_one_write() -> None:
    operator, _ = refusing()

    async def story(rig: Rig) -> None:
        before = len(status_writes(rig))
        themed(rig, "mars")
        await rig.settle()
        assert len(status_writes(rig)) == before + 1
        status = rig.get(Website, "home").status
        assert (status.observed_generation, status.ready_replicas) == (2, 1)
        assert [(each.status, each.observed_generation) for each in status.conditions] == [("False", 2)]
        rig.patch(Website, "home", {"spec": {"html": "<h1>ho</h1>"}})
        await rig.clock.sleep(600)
        assert len(status_writes(rig)) == before + 2
        assert rig.get(Website, "home").status.observed_generation == 3

    drive(operator, [site()], story)


def set_status(rig: Rig, status: dict[str, Any]) -> None:
    rig.server.patch(Website.resource, "home", "default", {"status": status}, subresource="status")


THEIRS = {"type": "Theirs", "status": "False", "reason": "UnknownRegion", "message": "no such region"}


def mended(says: str | None = None, *, sharded: bool = False) -> Operator:
    """Fails for good over one theme, and then says nothing of how it is, or just this."""
    operator = Operator("websites", sharded=sharded)

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> WebsiteStatus | None:
        if ctx.object.spec.theme == "mars":
            raise Permanent("no such region", reason="UnknownRegion")
        if ctx.object.spec.theme == "slow":
            raise Retry("not yet", after=5)
        return None if says is None else WebsiteStatus(1, conditions=[ctx.condition(says, False, "UnknownRegion")])

    return operator


async def mend(rig: Rig) -> None:
    themed(rig, "slow")
    await rig.settle()
    assert [each.reason for each in rig.get(Website, "home").status.conditions][-1] == "UnknownRegion"
    themed(rig, "dark")
    await rig.clock.sleep(10)


def types(rig: Rig) -> list[str]:
    return [each.type for each in rig.get(Website, "home").status.conditions]


def test_once_it_succeeds_its_condition_is_taken_back_and_no_other() -> None:
    async def story(rig: Rig) -> None:
        known = rig.get(Website.resource, "home")["status"]["conditions"]
        set_status(rig, {"conditions": [*known, THEIRS]})
        await mend(rig)

    rig = drive(mended(), [MARS], story)
    assert types(rig) == ["Theirs"]
    assert len(status_writes(rig)) == 2


def test_once_it_succeeds_here_after_it_was_away_its_condition_is_taken_back() -> None:
    async def story(rig: Rig) -> None:
        labels = rig.labels(Website, "home")
        rig.drain(Website, "home")
        await rig.settle()
        assert (rig.labels(Website, "home"), types(rig)) == ({}, ["Ready"])
        themed(rig, "dark")
        rig.patch(Website, "home", {"metadata": {"labels": labels}})
        await rig.settle()

    assert types(drive(mended(sharded=True), [MARS], story)) == []


@pytest.mark.parametrize(("says", "left"), [("Ready", ["Ready"]), ("Counted", ["Counted"])])
def test_a_condition_that_the_function_returns_is_its_own(says: str, left: list[str]) -> None:
    assert types(drive(mended(says), [MARS], mend)) == left


def test_what_somebody_has_made_of_the_condition_stays() -> None:
    async def story(rig: Rig) -> None:
        (known,) = rig.get(Website.resource, "home")["status"]["conditions"]
        set_status(rig, {"conditions": [{**known, "message": "I know"}]})
        await mend(rig)

    assert types(drive(mended(), [MARS], story)) == ["Ready"]


class Seen(Model):
    """What is there, without conditions."""

    count: int = 0
    observed_generation: int = 0


class Counted(Model):
    """What is there, which nobody knows before it was counted."""

    count: int
    observed_generation: int = 0


class Shop(CustomResource[WebsiteSpec, Seen], group="example.com", version="v1"):
    """Its status tells the generation, and nothing else of how it is."""


class Booth(CustomResource[WebsiteSpec, Counted | None], group="example.com", version="v1"):
    """Its status cannot be there with the generation alone."""


class Phased(Model):
    """What is there, which nobody knows before there is a phase."""

    phase: str
    conditions: list[Condition] = field(default_factory=list)


class Market(CustomResource[WebsiteSpec, Phased | None], group="example.com", version="v1"):
    """Its status cannot be there with conditions alone."""


class Stall(CustomResource[WebsiteSpec, Running], group="example.com", version="v1"):
    """Its status tells nothing of how it is."""


def hopeless(kind: type[Any]) -> Operator:
    operator = Operator("shops")

    @operator.reconcile(kind)
    async def function(ctx: Context[Any]) -> None:
        raise Permanent("never")

    return operator


@pytest.mark.parametrize(
    ("kind", "written"), [(Shop, [{"observedGeneration": 1}]), (Booth, []), (Market, []), (Stall, [])]
)
def test_of_a_status_what_it_has_fields_for_is_written(kind: type[Any], written: list[Any]) -> None:
    assert status_writes(drive(hopeless(kind), [kind("home", WebsiteSpec(""))])) == written


class Brief(Model):
    """A condition, as far as somebody wants to know."""

    type: str
    status: str


class Summary(Model):
    """A status with such conditions."""

    conditions: list[Brief] = field(default_factory=list)


class Kiosk(CustomResource[WebsiteSpec, Summary], group="example.com", version="v1"):
    """Its conditions are of a class that does not show all of them."""


def test_conditions_of_others_stay_whole_when_the_class_shows_less_of_them() -> None:
    since = "2020-01-01T00:00:00Z"
    theirs = {"type": "Theirs", "status": "True", "reason": "A", "message": "", "lastTransitionTime": since}
    body = {"metadata": {"name": "home"}, "spec": {"html": ""}, "status": {"conditions": [theirs]}}
    rig = drive(hopeless(Kiosk), [(Kiosk.resource, body)])
    shown = rig.get(Kiosk.resource, "home")["status"]["conditions"]
    assert shown[0] == theirs
    assert [each["type"] for each in shown] == ["Theirs", "Ready"]


def test_a_timer_that_fails_for_good_says_nothing_of_what_the_reconcile_has_seen() -> None:
    operator = Operator("shops")

    @operator.reconcile(Shop)
    async def function(ctx: Context[Shop]) -> None:
        ctx.log.info("nothing to say")

    @function.timer(every=60)
    async def measure(ctx: Context[Shop]) -> None:
        raise Permanent("never")

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(600)
        assert "ended with Permanent: never" in rig.explain(Shop, "home")

    rig = drive(operator, [Shop("home", WebsiteSpec(""))], story)
    assert status_writes(rig) == []
    assert [type(each) for _, each in rig.outcomes if isinstance(each, Exception)] == [Permanent]
