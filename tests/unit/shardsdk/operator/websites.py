"""The kinds of the tests of operators, and a small operator over them."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from shardsdk import Condition, Context, Resource
from shardsdk.kinds import CustomResource, Kind, Model
from shardsdk.operator import Operator
from shardsdk.testing import Rig


class ConfigMap(Kind):
    """Some of it."""

    resource: ClassVar = Resource("", "v1", "configmaps", "ConfigMap")
    data: dict[str, str] = field(default_factory=dict)


class Secret(Kind):
    """Some of it."""

    resource: ClassVar = Resource("", "v1", "secrets", "Secret")
    data: dict[str, str] = field(default_factory=dict)


class Workers(Model):
    """What is wanted."""

    replicas: int = 1


class Running(Model):
    """What is there."""

    ready_replicas: int = 0


class Deployment(Kind):
    """Some of it."""

    resource: ClassVar = Resource("apps", "v1", "deployments", "Deployment")
    spec: Workers = field(default_factory=Workers)
    status: Running = field(default_factory=Running)


class WebsiteSpec(Model):
    """What is wanted."""

    html: str
    replicas: int = 1
    theme: str = ""


class WebsiteStatus(Model):
    """What is there."""

    ready_replicas: int = 0
    observed_generation: int = 0
    conditions: list[Condition] = field(default_factory=list)


class Website(CustomResource[WebsiteSpec, WebsiteStatus], group="example.com", version="v1"):
    """A page."""


def site(name: str = "home", html: str = "<h1>hi</h1>", *, replicas: int = 1, theme: str = "") -> Website:
    """One of them."""
    return Website(name, WebsiteSpec(html, replicas, theme))


async def publish(ctx: Context[Website]) -> WebsiteStatus:
    """A ConfigMap with the page, and the pods that serve it."""
    await ctx.apply(ConfigMap(data={"index.html": ctx.object.spec.html}))
    pods = await ctx.apply(Deployment(spec=Workers(ctx.object.spec.replicas)))
    ready = pods.status.ready_replicas
    return WebsiteStatus(ready, conditions=[ctx.condition("Ready", ready > 0, "PodsReady")])


def websites(*, sharded: bool = False, prune: bool = False) -> Operator:
    """An operator with nothing but `publish`."""
    operator = Operator("websites", sharded=sharded)
    operator.reconcile(Website, owns=[ConfigMap, Deployment], prune=prune)(publish)
    return operator


def owe(rig: Rig) -> None:
    """From now on its shard can give nothing away, as if it went on with a dead process's lease."""
    assert rig._manager._workload is not None
    for main in rig._manager._workload._resources.values():
        assert main.drains is not None
        main.drains._early, main.drains._owed_until = True, rig.clock.monotonic() + 3600
