"""`drive` tells functions that change the caches' own objects, which they are asked about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardsdk import ConfigurationError, Context, Operator, Request
from shardsdk.kube.reflector import Delta
from shardsdk.queueing.predicates import Predicate
from shardsdk.reconcile.spec import ControllerSpec, controller_for
from shardsdk.testing import drive
from tests.unit.shardsdk.operator.websites import ConfigMap, Secret, Website, site

SECRETS = Secret.resource


async def nothing(ctx: Context[Any]) -> None:
    """Only the functions around it matter."""


async def a_map(ctx: Context[Secret]) -> None:
    await ctx.apply(ConfigMap("b", data={"x": "y"}))


def spoils(delta: Delta[Any]) -> bool:
    delta.object.data["spoilt"] = "yes"
    return True


def looks(delta: Delta[Any]) -> bool:
    return bool(delta.object.data)


def controller(main: Predicate = looks, child: Predicate = looks, watched: Predicate = looks) -> ControllerSpec[Any]:
    return (
        controller_for(SECRETS, Secret, when=main)
        .owns(ConfigMap.resource, ConfigMap, when=child)
        .watches(Website.resource, lambda site: [Request("default", "a")], Website, when=lambda delta: bool(delta))
        .reconcile(a_map)
    )


def test_who_only_looks_hears_nothing() -> None:
    drive(controller(), [Secret("a", data={"x": "y"}), site()])


@pytest.mark.parametrize(
    ("spec", "name"), [(controller(main=spoils), "default/a"), (controller(child=spoils), "default/b")]
)
def test_a_predicate_that_changes_its_object(spec: ControllerSpec[Any], name: str) -> None:
    says = rf"^a predicate of 'secrets' changed the object {name} that it was asked about, .*so change a copy"
    with pytest.raises(ConfigurationError, match=says):
        drive(spec, [Secret("a", data={"x": "y"})])


def operator(index: Callable[[Website], Any], mapping: Callable[[Secret], Any]) -> Operator:
    made = Operator("websites")
    website = made.reconcile(Website)(nothing)
    website.index("theme", index)
    website.watches(Secret, to=mapping)
    return made


def of_theme(thing: Website) -> list[str]:
    thing.spec.theme += "!"
    return [thing.spec.theme]


def of_secret(secret: Secret) -> list[str]:
    secret.data["spoilt"] = "yes"
    return ["home"]


@pytest.mark.parametrize(
    ("index", "mapping", "says"),
    [
        (of_theme, lambda secret: [], "^the index 'theme' changed the object default/home"),
        (lambda thing: [], of_secret, "^a mapping of 'websites.example.com' changed the object default/token"),
    ],
)
def test_an_index_or_a_mapping_that_changes_its_object(index: Any, mapping: Any, says: str) -> None:
    things = [site(), Secret("token", data={"a": "b"})]
    with pytest.raises(ConfigurationError, match=says):
        drive(operator(index, mapping), things)
    drive(operator(lambda thing: [thing.spec.theme], lambda secret: iter(["home"])), things)
