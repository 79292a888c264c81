"""What has a reconcile called besides its object and its children: watches, timers, sources; and indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from shardsdk import ConfigurationError, Context, Delta, EventKind, Operator, Request, Trigger
from shardsdk.kinds import CustomResource
from shardsdk.operator import Reconciler
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import (
    ConfigMap,
    Secret,
    Website,
    WebsiteStatus,
    Workers,
    publish,
    site,
)


def counting(*, sharded: bool = False) -> tuple[Operator, Reconciler[Website], list[str]]:
    operator, calls = Operator("websites", sharded=sharded), list[str]()

    @operator.reconcile(Website, owns=[ConfigMap])
    async def website(ctx: Context[Website]) -> None:
        calls.append(ctx.name)
        await ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html}))

    return operator, website, calls


def same_names(secret: Secret) -> Iterable[Any]:
    return [secret.metadata.name]


def as_requests(secret: Secret) -> Iterable[Any]:
    return [Request(secret.metadata.namespace, secret.metadata.name)]


def as_objects(secret: Secret) -> Iterable[Any]:
    return [ConfigMap(secret.metadata)]


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("mapping", [same_names, as_requests, as_objects])
def test_a_watched_object_wakes_those_that_it_matters_to(mapping: Any, sharded: bool) -> None:
    operator, website, calls = counting(sharded=sharded)
    website.watches(Secret, to=mapping)

    async def story(rig: Rig) -> None:
        calls.clear()
        rig.create(Secret.resource, {"metadata": {"name": "home"}})
        rig.create(Secret.resource, {"metadata": {"name": "other"}})
        await rig.settle()

    drive(operator, [site("home"), site("second")], story)
    assert calls == ["home"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("home", "a mapping returned a str: return a list of names"),
        (None, "a mapping returned None: return a list of names"),
        ([("default", "home")], r"a mapping gave a tuple: give a name, a Request\(namespace, name\)"),
        ([1], "a mapping gave 1: give a name"),
        ([""], "a mapping gave an empty name: give a name"),
        ([Request("", "home")], "a mapping gave Request home, but websites are in namespaces"),
    ],
)
def test_a_mapping_that_names_nothing_says_so(given: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    operator, website, calls = counting()
    website.watches(Secret, to=lambda secret: given)

    async def story(rig: Rig) -> None:
        calls.clear()
        rig.create(Secret.resource, {"metadata": {"name": "any"}})
        await rig.settle()

    drive(operator, [site("home"), site("h")], story, raises=False)
    assert calls == []
    (line,) = [each for each in caplog.records if each.msg == "A mapping raised"]
    assert line.exc_info is not None
    with pytest.raises(TypeError, match=said):
        raise line.exc_info[1] or AssertionError


class Region(CustomResource[Workers, None], group="example.com", version="v1", scope="Cluster"):
    """Something that is in no namespace."""


def test_the_name_of_a_cluster_scoped_object_needs_no_namespace(caplog: pytest.LogCaptureFixture) -> None:
    operator, calls = Operator("regions"), list[str]()

    @operator.reconcile(Region)
    async def region(ctx: Context[Region]) -> None:
        calls.append(ctx.name)

    region.watches(Secret, to=same_names)

    async def story(rig: Rig) -> None:
        calls.clear()
        rig.create(Secret("north"))
        await rig.settle()

    drive(operator, [Region("north", Workers()), Region("south", Workers())], story)
    assert calls == ["north"]


def test_a_name_that_a_cluster_scoped_object_is_mapped_to_needs_a_namespace(caplog: pytest.LogCaptureFixture) -> None:
    operator, website, _ = counting()
    website.watches(Region, to=lambda region: ["home"])

    async def story(rig: Rig) -> None:
        rig.create(Region("north", Workers()))
        await rig.settle()

    drive(operator, [site("home")], story, raises=False)
    (line,) = [each for each in caplog.records if each.msg == "A mapping raised"]
    assert line.exc_info is not None
    with pytest.raises(TypeError, match=r"'north', which is in none: give a Request\(namespace, name\)"):
        raise line.exc_info[1] or AssertionError


def test_a_mapping_may_be_decorated() -> None:
    operator, website, calls = counting()

    @website.watches(Secret)
    def sites(secret: Secret) -> list[str]:
        return ["home"]

    async def story(rig: Rig) -> None:
        calls.clear()
        rig.create(Secret.resource, {"metadata": {"name": "any"}})
        await rig.settle()

    drive(operator, [site("home"), site("second")], story)
    assert calls == ["home"]
    assert sites(Secret("a")) == ["home"]


@pytest.mark.parametrize("sharded", [False, True])
def test_an_index_says_whom_a_watched_object_matters_to(sharded: bool) -> None:
    operator, website, calls = counting(sharded=sharded)
    website.watches(Secret, to="theme")

    @website.index("theme")
    def theme_of(site: Website) -> list[str]:
        return [site.spec.theme]

    async def story(rig: Rig) -> None:
        calls.clear()
        rig.create(Secret.resource, {"metadata": {"name": "dark"}})
        rig.create(Secret.resource, {"metadata": {"name": "dark", "namespace": "elsewhere"}})
        await rig.settle()

    drive(operator, [site("a", theme="dark"), site("b", theme="light"), site("c", theme="dark")], story)
    assert sorted(calls) == ["a", "c"]


def test_an_index_is_read_by_kind() -> None:
    operator, found = Operator("websites"), list[list[str]]()

    @operator.reconcile(Website)
    async def website(ctx: Context[Website]) -> None:
        same = ctx.cache(Website).by_index("theme", ctx.object.spec.theme)
        found.append([each.metadata.name for each in same])

    website.index("theme", lambda site: [site.spec.theme])
    drive(operator, [site("a", theme="dark"), site("b", theme="dark"), site("c", theme="light")])
    assert sorted(found) == [["a", "b"], ["a", "b"], ["c"]]


def test_an_index_of_what_is_owned() -> None:
    operator, found = Operator("websites"), list[int]()

    @operator.reconcile(Website, owns=[ConfigMap])
    async def website(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html}))
        found.append(len(ctx.cache(ConfigMap).by_index("page", "same")))

    @operator.index(ConfigMap, "page")
    def page_of(page: ConfigMap) -> list[str]:
        return [page.data["index.html"]]

    drive(operator, [site("a", "same"), site("b", "same"), site("c", "other")])
    assert found[-1] == 2


@pytest.mark.parametrize("sharded", [False, True])
def test_a_timer_calls_its_function_and_nothing_else(sharded: bool) -> None:
    operator, website, _ = counting(sharded=sharded)
    ticks: list[str] = []

    @website.timer(every=60)
    async def measure(ctx: Context[Website]) -> WebsiteStatus:
        ticks.append(ctx.name)
        return WebsiteStatus(ready_replicas=len(ctx.children(ConfigMap)))

    async def story(rig: Rig) -> None:
        assert ticks == []
        await rig.clock.sleep(150)

    rig = drive(operator, [site()], story)
    assert ticks == ["home", "home"]
    assert rig.get(Website, "home").status.ready_replicas == 1


def test_a_timer_leaves_finalizers_alone() -> None:
    operator, website, _ = counting()
    order: list[str] = []

    @website.finalize
    async def gone(ctx: Context[Website]) -> Any:
        order.append("gone")
        return ctx.requeue(after=100) if len(order) < 2 else None

    @website.timer(every=60)
    async def measure(ctx: Context[Website]) -> None:
        order.append("tick")

    async def story(rig: Rig) -> None:
        rig.delete(Website, "home")
        await rig.clock.sleep(70)
        assert rig.find(Website, "home") is not None
        await rig.clock.sleep(70)
        assert rig.find(Website, "home") is None

    drive(operator, [site()], story)
    assert order == ["gone", "gone"]


@pytest.mark.parametrize("name", ["pages", "p" * 63], ids=["short", "as long as may be"])
def test_a_timer_applies_as_a_field_owner_of_its_own(name: str) -> None:
    """One owner's apply takes away the fields that it leaves out: here each would undo the other's."""
    operator = Operator("w" * 63)

    @operator.reconcile(Website, name=name, owns=[ConfigMap])
    async def page(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data={"theme": ctx.object.spec.theme}))

    @page.timer(every=60)
    async def measure(ctx: Context[Website]) -> None:
        await ctx.apply(ConfigMap(data={"size": "1"}))

    async def story(rig: Rig) -> None:
        await rig.clock.sleep(70)
        rig.patch(Website, "home", {"spec": {"theme": "dark"}})
        await rig.settle()

    rig = drive(operator, [site()], story)
    assert rig.get(ConfigMap, "home").data == {"theme": "dark", "size": "1"}
    owners = {each.field_manager for each in rig.sent}
    owner, timer = f"{'w' * 63}/{name}", "/timer/measure"
    assert owners == {owner[:128], owner[: 128 - len(timer)] + timer}


def test_resync_and_sources_call_the_reconcile() -> None:
    operator, website, calls = counting()
    trigger = Trigger()
    website.resync(every=60).source(trigger)

    async def story(rig: Rig) -> None:
        calls.clear()
        trigger.push(Request("default", "home"))
        await rig.settle()
        assert calls == ["home"]
        await rig.clock.sleep(70)
        assert calls == ["home", "home"]

    drive(operator, [site()], story)


def twice(operator: Operator) -> None:
    operator.reconcile(Website)(publish)
    operator.reconcile(Website)(publish)


def watched_twice(operator: Operator) -> None:
    operator.reconcile(Website)(publish).watches(Secret, to=same_names)
    operator._reconcilers[0].watches(Secret, to=as_objects)


def finalized_twice(operator: Operator) -> None:
    website = operator.reconcile(Website)(publish)
    website.finalize(publish)
    website.finalize(publish)


def unknown_index(operator: Operator) -> None:
    operator.reconcile(Website)(publish).watches(Secret, to="theme")
    operator.manager()


def mixed(operator: Operator) -> None:
    @operator.reconcile(Website)(publish).finalize
    def gone(ctx: Context[Website]) -> None: ...


def two_indexes(operator: Operator) -> None:
    website = operator.reconcile(Website)(publish)
    website.index("a", lambda site: [])
    operator.index(Website, "a")(lambda site: [])
    operator.manager()


def own_kind(operator: Operator) -> None:
    operator.reconcile(Website, owns=[Website])(publish)


def cleaned_up_as(operator: Operator, name: str) -> None:
    operator.reconcile(Website, name=name)(publish).finalize(publish)


async def without() -> None:
    """Takes nothing."""


@pytest.mark.parametrize(
    ("mistake", "remedy"),
    [
        (twice, 'name="…"'),
        (watched_twice, "join the functions"),
        (lambda operator: operator.reconcile(Website)(publish).watches(Secret, to=publish), "as a plain function"),
        (finalized_twice, "call both from one"),
        (unknown_index, r"declare it by .index\('theme', function\)"),
        (mixed, "write both async"),
        (two_indexes, "rename one"),
        (own_kind, "take it out of owns="),
        (lambda operator: operator.manager(), "does nothing"),
        (lambda operator: operator.needs(Secret), "names no verbs"),
        (lambda operator: Operator("Web Sites"), "lower-case letters"),
        (lambda operator: Operator("a", ring="b"), "sharded=True"),
        (lambda operator: cleaned_up_as(operator, "x" * 64), "up to 63 letters"),
        (lambda operator: cleaned_up_as(operator, "my sweep/x"), "cannot be in a finalizer"),
        (lambda operator: cleaned_up_as(operator, "Größe"), "cannot be in a finalizer"),
        (lambda operator: cleaned_up_as(operator, "sweep-"), "cannot be in a finalizer"),
        (lambda operator: operator.reconcile(Website)("no function"), "decorates a function"),
        (lambda operator: operator.reconcile(publish), r"write @operator.reconcile\(Secret\) above it"),
        (lambda operator: operator.reconcile("secrets"), "such as Secret of shardsdk.kinds"),
        (lambda operator: operator.reconcile(Website, owns=Secret), r"write owns=\[Secret\], a list"),
        (lambda operator: operator.reconcile(Website, owns=["secrets"]), "owns has 'secrets'; name the class"),
        (lambda operator: operator.reconcile(Website)(without), r"write `def without\(ctx: Context\[Website\]\)`"),
        (lambda operator: operator.reconcile(Website)(publish).finalize(without), "called with the context alone"),
        (lambda operator: operator.reconcile(Website)(publish).timer(every=0)(publish), "never pause"),
        (lambda operator: operator.reconcile(Website)(publish).timer(every=timedelta(1))(publish), "its total_seconds"),
        (lambda operator: operator.reconcile(Website)(publish).resync(every=float("inf")), "or for ever"),
    ],
)
def test_what_cannot_work_is_refused_with_a_remedy(mistake: Any, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        mistake(Operator("websites"))


@pytest.mark.parametrize("sharded", [False, True])
def test_what_is_deleted_is_cleaned_up_whatever_a_predicate_says(sharded: bool) -> None:
    operator = Operator("tidy", sharded=sharded)
    called: list[str] = []

    def chosen(change: Delta[ConfigMap]) -> bool:
        return change.kind is EventKind.ADDED and change.object.metadata.name == "mine"

    @operator.reconcile(ConfigMap, when=chosen)
    async def keep(ctx: Context[ConfigMap]) -> None:
        called.append(f"keep {ctx.name}")

    @keep.finalize
    async def gone(ctx: Context[ConfigMap]) -> None:
        called.append(f"clean up {ctx.name}")

    async def story(rig: Rig) -> None:
        rig.patch(ConfigMap, "mine", {"data": {"of": "no interest"}})
        await rig.settle()
        rig.delete(ConfigMap, "mine")
        rig.delete(ConfigMap, "others")
        await rig.settle()
        assert not rig.objects(ConfigMap)

    drive(operator, [ConfigMap("mine"), ConfigMap("others")], story)
    assert called == ["keep mine", "clean up mine"]


@pytest.mark.parametrize(
    ("declare", "what"),
    [
        (lambda website: website.watches(Secret), r"watches\(Secret\)"),
        (lambda website: website.timer(every=60), r"timer\(every=60\)"),
        (lambda website: website.index("theme"), r"index\('theme'\)"),
    ],
)
def test_a_declaration_that_decorates_no_function_is_said(declare: Callable[[Any], object], what: str) -> None:
    operator, website, _ = counting()
    declare(website)
    with pytest.raises(ConfigurationError, match=rf"{what} of 'websites.*' has no function.*an @ above one"):
        operator.manager()
