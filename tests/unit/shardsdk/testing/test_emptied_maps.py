"""A child whose map is empty again: so many writes as in a cluster, by what the schema of its class lets pass."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from shardsdk import Context, CustomResource, Model, Operator
from shardsdk.testing import Rig, drive


class Limits(Model):
    cpu: str = "1"
    memory: str = ""


class EngineSpec(Model):
    limits: Limits = msgspec.field(default_factory=Limits)


class Engine(CustomResource[EngineSpec], group="example.com", version="v1"):
    """Whose map has a default."""


class MotorSpec(Model):
    limits: Limits


class Motor(CustomResource[MotorSpec], group="example.com", version="v1"):
    """Whose map is required."""


class AppSpec(Model):
    memory: str = ""


class App(CustomResource[AppSpec], group="example.com", version="v1"):
    """That has one of them."""


def engine(limits: Limits) -> Engine:
    return Engine("e", EngineSpec(limits))


def motor(limits: Limits) -> Motor:
    return Motor("e", MotorSpec(limits))


@pytest.mark.parametrize(("child", "make", "writes"), [(Engine, engine, 1), (Motor, motor, 3)])
def test_a_map_that_has_a_default_is_emptied_by_one_write(
    child: type[Engine | Motor], make: Callable[[Limits], Engine | Motor], writes: int
) -> None:
    operator = Operator("apps")

    @operator.reconcile(App, owns=[child], max_writes=writes)
    async def app(ctx: Context[App]) -> None:
        await ctx.apply(make(Limits(memory=ctx.object.spec.memory)))

    async def story(rig: Rig) -> None:
        assert len(rig.writes) == 1
        rig.patch(App, "a", {"spec": {"memory": None}})

    rig = drive(operator, [App("a", AppSpec("1Gi"))], story)
    assert len(rig.writes) == 1 + writes
    assert rig.get(child, "e").spec.limits == Limits()
