"""What is written by mistake is answered with what to write instead."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardsdk import ConfigurationError, Context, Operator, Scope
from shardsdk.kube.api import Api
from shardsdk.process.manager import Manager
from shardsdk.protocol.objects import GroupResource
from shardsdk.testing import drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Deployment, Secret, Website, publish, site


def fails(function: Any, *, owns: Any = (ConfigMap,), says: str) -> None:
    operator = Operator("websites")
    operator.reconcile(Website, owns=owns)(function)
    with pytest.raises(ConfigurationError, match=says):
        drive(operator, [site()])


def test_a_condition_holds_or_not() -> None:
    async def function(ctx: Context[Website]) -> None:
        ctx.condition("Ready", "True", "AllReady")  # type: ignore[arg-type]

    fails(function, says=r"ctx.condition\('Ready', 'True', …\): give True, False or None")


def test_what_was_applied_is_no_status() -> None:
    async def function(ctx: Context[Website]) -> Any:
        return await ctx.apply(ConfigMap(data={"a": "b"}))

    fails(function, says="is no status: leave out the `return`")

    async def annotated(ctx: Context[Website]) -> Deployment:
        return await ctx.apply(Deployment())

    with pytest.raises(ConfigurationError, match="is no status: leave out the `return`"):
        Operator("websites").reconcile(Website)(annotated)


@pytest.mark.parametrize("thing", [{"kind": "ConfigMap"}, "a", 3])
def test_what_is_applied_is_of_a_kind(thing: Any) -> None:
    async def function(ctx: Context[Website]) -> None:
        await ctx.apply(thing)

    fails(function, says=f"{type(thing).__name__} is no kind: .*shardsdk.kinds.*server_side_apply.*as_kind")


def test_an_object_is_not_its_own_child() -> None:
    async def applies(ctx: Context[Website]) -> None:
        await ctx.apply(ctx.object)

    async def reads(ctx: Context[Website]) -> None:
        ctx.children(Website)

    fails(applies, says="applies Website objects as children, but is for them, .*ctx.patch changes it")
    fails(reads, says="reads Website objects as children, but is for them")


async def asynchronous(given: Any) -> AsyncIterator[None]:
    yield


def plain(given: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize("function", [asynchronous, plain])
def test_a_function_with_a_yield_is_told_so(function: Any) -> None:
    operator = Operator("websites")
    website = operator.reconcile(Website)(publish)
    for declare in (
        operator.reconcile(Website, name="b"), website.finalize, website.timer(every=1), operator.task(),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=rf"^{function.__name__} has a `yield`.*: write it without"):
            declare(function)


@pytest.mark.parametrize("name", ["concurrency", "timeout_seconds", "drain_timeout_seconds", "max_writes"])
def test_a_number_in_a_text_is_told_from_one(name: str) -> None:
    operator = Operator("websites")
    given: Any = {name: "4"}
    operator.reconcile(Website, **given)(publish)
    with pytest.raises(ConfigurationError, match=rf"'websites.example.com' has {name}='4', which is no number"):
        operator.manager()


def test_an_operator_that_was_loaded_twice_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    operator = Operator("websites")

    async def task(api: Api) -> None: ...

    program, copy = ModuleType("__main__"), ModuleType("split")
    program.__file__ = copy.__file__ = str(tmp_path / "split.py")
    monkeypatch.setitem(sys.modules, "__main__", program)
    with pytest.raises(ConfigurationError, match="does nothing: decorate a function"):
        operator.manager()
    monkeypatch.setitem(sys.modules, "split", copy)
    with pytest.raises(ConfigurationError, match=r"split\.py was loaded twice, as the program and as .* 'split'"):
        operator.manager()
    operator.task()(task)
    operator.manager()


@pytest.mark.parametrize("scope", ["LEADER", "leader", 1])
def test_a_scope_that_is_none_is_refused_where_it_is_written(scope: Any) -> None:
    """Nothing of it would ever run."""
    operator = Operator("websites")
    says = rf"has scope={scope!r}, which is no scope: write Scope.SHARDED, Scope.LEADER or Scope.EVERYWHERE"
    with pytest.raises(ConfigurationError, match=rf"^reconcile\(Website\) {says}"):
        operator.reconcile(Website, scope=scope)
    with pytest.raises(ConfigurationError, match=f"^task 'serve' {says}"):
        operator.task(scope=scope)(serve)
    with pytest.raises(ConfigurationError, match=f"^task 'serve' {says}"):
        Manager().run_task(serve, scope=scope)


async def serve(api: Api) -> None: ...


def test_what_is_to_run_on_shards_is_refused_where_there_are_none() -> None:
    says = r"has scope=Scope.SHARDED, but operator 'websites' is not sharded: pass sharded=True, or leave out the scope"
    operator, other = Operator("websites"), Operator("websites")
    operator.reconcile(Website, scope=Scope.SHARDED)(publish)
    other.task(scope=Scope.SHARDED)(serve)
    for made, what in ((operator, "controller 'websites.example.com'"), (other, "task 'serve'")):
        with pytest.raises(ConfigurationError, match=f"^{what} {says}"):
            made.manager()
        with pytest.raises(ConfigurationError, match=f"^{what} {says}"):
            drive(made)
    Operator("websites", sharded=True).reconcile(Website, scope=Scope.SHARDED)(publish)


def test_a_manager_of_ones_own_may_have_the_ring_that_an_operator_has_not() -> None:
    operator = Operator("websites")
    operator.reconcile(Website, owns=[ConfigMap, Deployment], scope=Scope.SHARDED)(publish)
    manager = Manager("websites")
    for spec in operator.controllers():
        manager.add(spec)
    assert drive(manager, [site()]).objects(ConfigMap)


def test_a_kind_is_owned_once() -> None:
    with pytest.raises(ConfigurationError, match=r"reconcile\(Website\): owns has ConfigMap objects twice: name one"):
        Operator("websites").reconcile(Website, owns=[ConfigMap, Deployment, ConfigMap])


def test_an_index_is_plain_and_has_a_name_of_its_own() -> None:
    operator = Operator("websites")
    website = operator.reconcile(Website)(publish)

    async def waits(thing: Any) -> list[str]:
        return []

    def theme(thing: Any) -> list[str]:
        return []

    declare: Any
    for declare in (
        website.index("theme"), operator.index(ConfigMap, "theme"),
        lambda index: Manager().cache(ConfigMap.resource, indexes={"theme": index}),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=r"the index 'theme' is an async function, .*write a plain one"):
            declare(waits)
    operator.index(ConfigMap, "theme")(theme)
    operator.index(ConfigMap, "theme")(theme)
    with pytest.raises(ConfigurationError, match="two indexes of ConfigMap are called 'theme': rename one"):
        operator.index(ConfigMap, "theme")(lambda thing: [])


@pytest.mark.parametrize("verb", ["gets", "patches", "watchs", "read", "GET", "get,list", "", "get list", ["get"]])
def test_what_is_no_verb_is_refused(verb: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^needs\(…\): .* is no verb; there are get, list, watch"):
        Operator("websites").needs(ConfigMap, verb)


@pytest.mark.parametrize(
    "verb", ["escalate", "bind", "assign", "request-serving-info", "impersonate-on:user-info:list"]
)
def test_verbs_beyond_the_usual_ones_are_not(verb: str) -> None:
    """Whoever serves a group may have verbs of its own."""
    operator = Operator("websites")
    operator.needs(GroupResource("rbac.authorization.k8s.io", "roles"), verb)
    assert [each["verbs"] for each in operator.permissions().objects if each["resources"] == ["roles"]] == [[verb]]


def test_who_may_do_everything_with_a_resource_may_do_each_thing() -> None:
    async def function(ctx: Context[Website]) -> None:
        await ctx.get(Secret, "a")

    operator = Operator("websites")
    operator.reconcile(Website)(function)
    operator.needs(Secret, "*")
    drive(operator, [site(), Secret("a")])
