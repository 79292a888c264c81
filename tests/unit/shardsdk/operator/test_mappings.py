"""What a mapping of watched objects gives that can be the name of no main object."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shardsdk import Context, Delta, ObjectMeta, Operator, Request
from shardsdk.kinds import CustomResource
from shardsdk.testing import Rig, drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Secret, Website, Workers, site


class Region(CustomResource[Workers, None], group="example.com", version="v1", scope="Cluster"):
    """Something that is in no namespace."""


@pytest.mark.parametrize(
    ("main", "given", "said"),
    [
        (Region, Request("default", "north"), r"but regions are in no namespace: give names"),
        (Region, ConfigMap(ObjectMeta("north", "default")), r"but regions are in no namespace: give names"),
        (Website, Request("", "home"), r"but websites are in namespaces: give a Request\(namespace, name\)"),
        (Website, Region("home", Workers()), r"but websites are in namespaces: give a Request\(namespace, name\)"),
    ],
)
def test_what_cannot_be_the_name_of_a_main_object_is_said(
    main: Any, given: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    operator, calls = Operator("any"), list[str]()

    @operator.reconcile(main)
    async def function(ctx: Context[Any]) -> None:
        calls.append(ctx.name)

    function.watches(Secret, to=lambda secret: [given])

    async def story(rig: Rig) -> None:
        calls.clear()
        rig.create(Secret("any"))
        await rig.settle()

    drive(operator, [site("home"), Region("north", Workers())], story, raises=False)
    assert calls == []
    (line,) = [each for each in caplog.records if each.msg == "A mapping raised"]
    assert line.exc_info is not None
    with pytest.raises(TypeError, match=said):
        raise line.exc_info[1] or AssertionError


def test_what_it_gives_beside_that_is_woken(caplog: pytest.LogCaptureFixture) -> None:
    operator, calls = Operator("any"), list[str]()

    @operator.reconcile(Website)
    async def function(ctx: Context[Website]) -> None:
        calls.append(ctx.name)

    given: list[str | Request] = [Request("default", "one"), Request("", "bad"), Request("default", ""), "two"]
    function.watches(Secret, to=lambda secret: given)

    async def story(rig: Rig) -> None:
        calls.clear()
        rig.create(Secret(ObjectMeta("any", "default")))
        await rig.settle()

    drive(operator, [site("one"), site("two")], story, raises=False)
    assert sorted(calls) == ["one", "two"]
    assert [each.msg for each in caplog.records if each.exc_info] == ["A mapping raised"]


@pytest.mark.parametrize("where", ["a predicate", "a mapping", "an index"])
def test_a_cancelled_error_of_a_plain_function_is_its_failure_and_news_go_on(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No task is cancelled while it runs such a function; it may have asked for the result of a cancelled one."""
    operator, calls = Operator("any"), list[str]()

    def asked(of: str, name: str) -> None:
        if (of, name) == (where, "bad"):
            raise asyncio.CancelledError

    def when(delta: Delta[Any]) -> bool:
        asked("a predicate", delta.object.metadata.name)
        return True

    @operator.reconcile(Website, when=when)
    async def function(ctx: Context[Website]) -> None:
        calls.append(ctx.name)

    def mapping(secret: Secret) -> list[str]:
        asked("a mapping", secret.metadata.name or "")
        return ["home"]

    def index(secret: Secret) -> list[str]:
        asked("an index", secret.metadata.name or "")
        return []

    function.watches(Secret, to=mapping)
    operator.index(Secret, "any")(index)

    async def story(rig: Rig) -> None:
        rig.create(Secret(ObjectMeta("bad", "default")))
        rig.create(site("bad"))
        await rig.settle()
        calls.clear()
        rig.create(Secret(ObjectMeta("good", "default")))
        rig.create(site("good"))
        await rig.settle()

    drive(operator, [site("home")], story, raises=False)
    assert sorted(calls) == ["good", "home"]
