"""What is written by mistake is answered with what to write instead."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardsdk import ConfigurationError, Context, Operator
from shardsdk.kube.api import Api
from shardsdk.testing import drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Deployment, Website, publish, site


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
