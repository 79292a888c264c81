"""What a mapping of watched objects gives that can be the name of no main object."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk import Context, ObjectMeta, Operator, Request
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
