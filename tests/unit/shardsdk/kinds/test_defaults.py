"""Defaults as CRDs have them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from shardsdk import CustomResource, Model
from shardsdk.kinds import crd_of


class Edge(Model):
    deep: int = 1
    maybe: int | None = None
    null: int | None = 3


@dataclass
class Options:
    mode: Literal["a", "b"] | None = None
    edge: Edge = field(default_factory=Edge)


class Defaults(Model):
    edges: list[Edge] = msgspec.field(default_factory=lambda: [Edge(), Edge(2)])
    named: dict[str, Edge] = msgspec.field(default_factory=lambda: {"a": Edge(maybe=1)})
    options: Options = msgspec.field(default_factory=Options)
    free: dict[str, Any] = msgspec.field(default_factory=lambda: {"a": {"b": None}})


class Nulls(Model):
    edge: Edge = msgspec.field(default_factory=lambda: Edge(null=None))
    deep: int = 2


def test_a_default_is_as_whole_as_the_api_server_would_make_it_and_without_null() -> None:
    class Whole(CustomResource[Defaults], group="example.com", version="v1"):
        """Of defaults."""

    spec = crd_of(Whole)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    edge = {"deep": 1, "null": 3}
    defaults = {
        "edges": [edge, edge | {"deep": 2}],
        "named": {"a": edge | {"maybe": 1}},
        "options": {"edge": edge},
        "free": {"a": {"b": None}},
    }
    assert {name: each["default"] for name, each in spec["properties"].items() if "default" in each} == defaults
    assert spec["default"] == defaults


def test_a_default_that_only_null_can_say_is_the_classes_alone() -> None:
    class Null(CustomResource[Nulls], group="example.com", version="v1"):
        """Of nulls."""

    spec = crd_of(Null)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert "default" not in spec
    assert {name: each.get("default") for name, each in spec["properties"].items()} == {"edge": None, "deep": 2}
