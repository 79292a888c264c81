"""Schemas of pydantic's models, as CRDs have to have them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import pydantic
import pytest

from shardsdk import ConfigurationError
from shardsdk.kinds.foreign import foreign_schema

TEXT = {"type": "string"}


class Inner(pydantic.BaseModel):
    """Inside."""

    count: int = pydantic.Field(default=1, ge=0, lt=9)


class Outer(pydantic.BaseModel):
    """Of pydantic."""

    name: str = pydantic.Field(min_length=1, pattern="^a", description="Its name.")
    inner: Inner | None = None
    inners: list[Inner] = []
    target: int | str = pydantic.Field(alias="targetPort")
    labels: dict[str, str] = {}
    free: dict[str, Any] = {}
    mode: Literal["a", "b"] = "a"
    fixed: Literal["x"] = "x"
    when: datetime | None = None
    words: set[str] = set()
    anything: Any = None


def test_pydantics_models_have_structural_schemas() -> None:
    inner = {
        "type": "object",
        "description": "Inside.",
        "properties": {
            "count": {"type": "integer", "minimum": 0, "maximum": 9, "exclusiveMaximum": True, "default": 1}
        },
    }
    assert foreign_schema(Outer, "Thing.spec") == {
        "type": "object",
        "description": "Of pydantic.",
        "properties": {
            "name": {"type": "string", "minLength": 1, "pattern": "^a", "description": "Its name."},
            "inner": inner | {"nullable": True},
            "inners": {"type": "array", "items": inner, "default": []},
            "targetPort": {"x-kubernetes-int-or-string": True},
            "labels": {"type": "object", "additionalProperties": TEXT, "default": {}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {}},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "fixed": {"type": "string", "enum": ["x"], "default": "x"},
            "when": {"type": "string", "format": "date-time", "nullable": True},
            "words": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set", "default": []},
            "anything": {"x-kubernetes-preserve-unknown-fields": True},
        },
        "required": ["name", "targetPort"],
    }


def test_what_is_kept_beside_the_fields_of_a_model() -> None:
    class Open(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        name: str = ""

    class Typed(Open):
        __pydantic_extra__: dict[str, int]

    class Closed(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        name: str = ""

    for model, kept in ((Open, True), (Typed, True), (Closed, None)):
        schema = foreign_schema(model, "Thing.spec")
        assert list(schema["properties"]) == ["name"]
        assert schema.get("x-kubernetes-preserve-unknown-fields") is kept
        assert "additionalProperties" not in schema


class Loop(pydantic.BaseModel):
    again: list[Loop] = []


class Either(pydantic.BaseModel):
    one: Inner | Outer


class Needed(pydantic.BaseModel):
    mode: Literal["a", "b"] | None


class Otherwise(pydantic.BaseModel):
    mode: Literal["a", "b"] | None = "a"


@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (Loop, "Loop contains itself"),
        (Either, "of unions a CRD can say"),
        (Needed, "give the field the default None"),
        (Otherwise, "give the field the default None"),
    ],
)
def test_what_pydantic_can_say_and_a_crd_cannot_is_refused(model: Any, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Thing.spec.*{remedy}"):
        foreign_schema(model, "Thing.spec")
