"""Times without a time zone are refused before they are sent, and not where they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from shardsdk import ConfigurationError, Context, CustomResource, Model, Operator, Resource
from shardsdk.admission import Review
from shardsdk.kinds import Kind, body_of, merge_patch_of
from shardsdk.kinds.schema import begin, schema_of
from shardsdk.kinds.wire import encode
from shardsdk.testing import Rig, drive

AWARE = datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC)
NAIVE = AWARE.replace(tzinfo=None)
TEXT = "2026-01-02T03:04:05.600000"


class Span(Model):
    """Somewhere in one."""

    start_time: datetime | None = None
    others: list[datetime] = []
    described: Annotated[datetime | None, msgspec.Meta(description="as it is told")] = None


@dataclass
class Plain:
    """A dataclass."""

    start: datetime


class Foreign(pydantic.BaseModel):
    """Of pydantic."""

    start: datetime | None = pydantic.Field(default=None, alias="startTime")
    utc: datetime | None = None
    inner: dict[str, Plain] = {}

    @pydantic.field_serializer("utc")
    def with_zone(self, value: datetime | None) -> str | None:
        return f"{value.isoformat()}Z" if value else None


class Nested(Model):
    """Contains itself."""

    at: datetime | None = None
    inner: list[Nested] = []


class Times(Model):
    """All of them."""

    spans: dict[str, Span] = {}
    plain: tuple[Plain, ...] = ()
    foreign: Foreign | None = None
    said: str = TEXT
    either: datetime | int | None = None
    anything: Any = None
    nested: Nested | None = None
    days: dict[datetime, int] = {}
    unordered: set[frozenset[str]] = set()


class Clock(Kind):
    resource = Resource("example.com", "v1", "clocks", "Clock")
    spec: Times = msgspec.field(default_factory=Times)
    status: Span | None = None


class Shift(CustomResource[Span, Foreign], group="example.com", version="v1"):
    """With a status of pydantic's."""


class Owner(CustomResource[Span, Span], group="example.com", version="v1"):
    """Whose functions are called."""


def test_times_are_sent_with_their_zone() -> None:
    text, there = f"{TEXT}Z", AWARE.astimezone(timezone(timedelta(hours=2)))
    assert encode(AWARE) == text
    times = Times({"a": Span(AWARE, [there])}, (Plain(AWARE),), Foreign(startTime=AWARE, utc=NAIVE), either=NAIVE)
    assert body_of(Clock("a", times))["spec"] == {
        "spans": {"a": {"startTime": text, "others": ["2026-01-02T05:04:05.600000+02:00"]}},
        "plain": [{"start": text}],
        "foreign": {"startTime": text, "utc": text, "inner": {}},
        "either": TEXT,
    }


def test_days_are_keys() -> None:
    assert body_of(Clock("a", Times(days={NAIVE: 1})))["spec"] == {"days": {TEXT: 1}}


@pytest.mark.parametrize(
    ("thing", "place"),
    [
        (Clock("a", Times({"a": Span(NAIVE)})), "spec.spans.a.startTime"),
        (Clock("a", Times({"a": Span(AWARE, [AWARE, NAIVE])})), r"spec.spans.a.others\[\]"),
        (Clock("a", Times({"a": Span(described=NAIVE)})), "spec.spans.a.described"),
        (Clock("a", Times(plain=(Plain(NAIVE),))), r"spec.plain\[\].start"),
        (Clock("a", Times(foreign=Foreign(startTime=NAIVE))), "spec.foreign.startTime"),
        (Clock("a", Times(foreign=Foreign(inner={"b": Plain(NAIVE)}))), "spec.foreign.inner.b.start"),
        (Clock("a", Times(nested=Nested(NAIVE))), "spec.nested.at"),
        (Clock("a", Times(plain=(Plain(NAIVE),), unordered={frozenset("a")})), r"spec.plain\[\].start"),
        (Shift("a", Span(NAIVE)), "spec.startTime"),
        (Shift("a", Span(), Foreign(startTime=NAIVE)), "status.startTime"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_without_is_refused_with_its_place(thing: Kind, place: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{place} is a datetime without a .* write datetime\.now\(UTC\)"):
        body_of(thing)


def test_a_default_without_one_is_refused() -> None:
    class Late(Model):
        at: datetime = NAIVE

    with pytest.raises(ConfigurationError, match=r"^Late\.at: the default is a datetime without a time zone"):
        schema_of(Late, begin("Late"))


def told(function: Callable[[Context[Owner]], Any], *stored: Any) -> list[str]:
    """What fails of a reconcile."""
    operator = Operator("owners")
    operator.reconcile(Owner, owns=[Clock])(function)
    return [str(each) for each in drive(operator, list(stored) or [Owner("a", Span())], raises=False).failures]


def test_so_it_is_in_a_rig() -> None:
    async def applying(ctx: Context[Owner]) -> None:
        await ctx.apply(Clock("a", Times({"a": Span(NAIVE)})))

    assert "spec.spans.a.startTime is a datetime without a time zone" in told(applying)[0]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"spec": {"startTime": NAIVE}}, "spec.startTime"),
        ({"spec": {"unknown": [{"at": NAIVE}]}}, r"spec.unknown[0].at"),
        ({"spec": merge_patch_of(Span(others=[NAIVE]))}, "spec.others[]"),
    ],
)
def test_so_it_is_in_a_patch(changes: Mapping[str, Any], place: str) -> None:
    async def patching(ctx: Context[Owner]) -> None:
        await ctx.patch(Owner, "a", changes)

    assert f"{place} is a datetime without a time zone" in told(patching)[0]


def test_a_patch_with_zones_and_what_looks_alike_is_sent() -> None:
    async def patching(ctx: Context[Owner]) -> None:
        await ctx.patch(Owner, "a", {"metadata": {"annotations": {"at": TEXT}}, "spec": {"startTime": AWARE}})

    assert told(patching) == []


def test_so_it_is_in_a_status() -> None:
    def measuring(ctx: Context[Owner]) -> Span:
        return Span(NAIVE)

    assert "status.startTime is a datetime without a time zone" in told(measuring)[0]


STORED = {"metadata": {"name": "a", "namespace": "default"}, "spec": {}, "status": {"startTime": TEXT}}


def test_what_was_read_is_in_nobodys_way() -> None:
    """Where a definition takes any text."""

    def silent(ctx: Context[Owner]) -> None: ...

    def as_it_was(ctx: Context[Owner]) -> Span:
        assert ctx.object.status.start_time == NAIVE
        return Span(ctx.object.status.start_time, others=[AWARE])

    def another(ctx: Context[Owner]) -> Span:
        return Span(NAIVE + timedelta(1))

    def mended(ctx: Context[Owner]) -> Span:
        return Span(AWARE)

    stored = (Owner.resource, STORED)
    assert told(silent, stored) == told(as_it_was, stored) == told(mended, stored) == []
    assert "status.startTime is a datetime without a time zone" in told(another, stored)[0]


def test_a_mutation_is_asked_about_what_it_changes() -> None:
    operator = Operator("clocks")

    @operator.mutate(Clock)
    def fill_in(review: Review[Clock]) -> None:
        if review.name == "changed":
            review.object.spec.plain = (Plain(NAIVE),)
        review.object.spec.said = "filled in"

    def clock(name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "default"}, "spec": {"spans": {"a": {"startTime": TEXT}}}}

    async def story(rig: Rig) -> None:
        rig.create(Clock.resource, clock("kept"))
        with pytest.raises(Exception, match=r"spec\.plain\[\]\.start is a datetime without a time zone"):
            rig.create(Clock.resource, clock("changed"))

    @operator.reconcile(Clock)
    def silent(ctx: Context[Clock]) -> None: ...

    rig = drive(operator, [], story)
    assert rig.get(Clock.resource, "kept")["spec"] == {"spans": {"a": {"startTime": TEXT}}, "said": "filled in"}
