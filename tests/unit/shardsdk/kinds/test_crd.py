"""CRDs from classes: what their schemas say, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import msgspec
import pytest

from shardsdk import ConfigurationError, CustomResource, Model, ObjectMeta
from shardsdk.kinds import (
    Column,
    Condition,
    Doc,
    Format,
    Length,
    ListType,
    OneOf,
    Pattern,
    Range,
    Rule,
    Scale,
    crd_of,
    crds_of,
)
from shardsdk.kinds.schema import begin, schema_of
from shardsdk.kinds.wire import encode


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(Enum):
    SMALL = 1
    LARGE = 2


class Port(Model):
    """A port."""

    number: int
    name: str = ""


class Described(msgspec.Struct):
    width: int


@dataclass
class Box:
    width: int
    labels: dict[str, str] = field(default_factory=dict)


class Tree(Model):
    children: list[Tree] = []


Name = NewType("Name", str)
TEXT = {"type": "string"}
PORT = {
    "type": "object",
    "description": "A port.",
    "properties": {"number": {"type": "integer", "format": "int64"}, "name": {"type": "string"}},
    "required": ["number"],
}


def schema(annotation: Any) -> dict[str, Any]:
    return schema_of(annotation, begin("Thing"))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (bool, {"type": "boolean"}),
        (int, {"type": "integer", "format": "int64"}),
        (float, {"type": "number", "format": "double"}),
        (int | float, {"type": "number", "format": "double"}),
        (str, TEXT),
        (Name, TEXT),
        (bytes, {"type": "string", "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (str | None, {"type": "string", "nullable": True}),
        (int | str, {"x-kubernetes-int-or-string": True}),
        (int | str | None, {"x-kubernetes-int-or-string": True, "nullable": True}),
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Size, {"type": "integer", "enum": [1, 2]}),
        (list[str], {"type": "array", "items": TEXT}),
        (Sequence[str], {"type": "array", "items": TEXT}),
        (tuple[str, ...], {"type": "array", "items": TEXT}),
        (set[str], {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}),
        (list[str | None], {"type": "array", "items": {"type": "string", "nullable": True}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}}),
        (dict[Colour, str], {"type": "object", "additionalProperties": TEXT}),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (dict, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (ObjectMeta, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (Port, PORT),
        (list[Port], {"type": "array", "items": PORT}),
        (
            Box,
            {
                "type": "object",
                "properties": {
                    "width": {"type": "integer", "format": "int64"},
                    "labels": {"type": "object", "additionalProperties": TEXT},
                },
                "required": ["width"],
            },
        ),
        (Annotated[int, Range(1, 5)], {"type": "integer", "format": "int64", "minimum": 1, "maximum": 5}),
        (Annotated[float, Range(high=0.5)], {"type": "number", "format": "double", "maximum": 0.5}),
        (Annotated[str, Length(1, 9)], {"type": "string", "minLength": 1, "maxLength": 9}),
        (Annotated[list[str], Length(high=3)], {"type": "array", "items": TEXT, "maxItems": 3}),
        (
            Annotated[dict[str, str], Length(1)],
            {"type": "object", "additionalProperties": TEXT, "minProperties": 1},
        ),
        (Annotated[str, Pattern("^a$")], {"type": "string", "pattern": "^a$"}),
        (Annotated[str, OneOf("a", "b")], {"type": "string", "enum": ["a", "b"]}),
        (Annotated[str, Format("ipv4")], {"type": "string", "format": "ipv4"}),
        (Annotated[str, Doc("A word.")], {"type": "string", "description": "A word."}),
        (
            Annotated[str | None, Rule("self != ''", "empty"), Rule("self == oldSelf")],
            {
                "type": "string",
                "nullable": True,
                "x-kubernetes-validations": [
                    {"rule": "self != ''", "message": "empty"},
                    {"rule": "self == oldSelf"},
                ],
            },
        ),
        (
            Annotated[list[Port], ListType("map", ("number",))],
            {
                "type": "array",
                "items": PORT,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["number"],
            },
        ),
        (
            Annotated[int, msgspec.Meta(gt=0, le=5, multiple_of=5, description="Fives.")],
            {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "exclusiveMinimum": True,
                "maximum": 5,
                "multipleOf": 5,
                "description": "Fives.",
            },
        ),
        (
            Annotated[str, msgspec.Meta(min_length=1, pattern="a", extra_json_schema={"format": "uri"})],
            {"type": "string", "minLength": 1, "pattern": "a", "format": "uri"},
        ),
    ],
    ids=str,
)
def test_a_type_has_the_schema_that_kubernetes_writes_for_it(annotation: Any, expected: dict[str, Any]) -> None:
    assert schema(annotation) == expected


@pytest.mark.parametrize(
    ("annotation", "remedy"),
    [
        (int | bool | str, "no CRD can say `int | bool | str`: of unions there are `X | None` and `int | str`"),
        (Port | Described, "write one class with a field for each, or Any"),
        (list[Colour | None], "Thing[]: no CRD can say an enumeration, or None, where None has to be sent"),
        (complex, "complex cannot be a schema; there are bool, int"),
        (dict[int, str], "the keys of a dict have to be str"),
        (tuple[int, str], "of tuples there is `tuple[X, ...]` alone"),
        (Literal["a", 1], "have to be all str, or all int"),
        (Annotated[str, Range(1)], "Range is for integer and number, this is string"),
        (Annotated[int, Length(1)], "Length is for string and array and object, this is integer"),
        (Annotated[int, Pattern("a")], "Pattern is for string, this is integer"),
        (Tree, "Thing.children[]: Tree contains itself, which no CRD can say; write `dict[str, Any]` there"),
        (list[Annotated[int, Column("A")]], "Thing[]: A cannot be a column, since there are many of it"),
        (Annotated[Port, Column("A")], "A cannot be a column: it is no single value"),
    ],
    ids=str,
)
def test_what_no_schema_can_say_is_refused_with_its_place(annotation: Any, remedy: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        schema(annotation)
    assert str(refused.value).startswith("Thing")
    assert remedy in str(refused.value)


def test_the_place_of_what_is_refused_is_said_where_the_class_is_written() -> None:
    class Wrong(Model):
        ports: list[complex] = []

    with pytest.raises(ConfigurationError, match=r"Thing\.spec\.ports\[\]: complex cannot be a schema"):

        class Thing(CustomResource[Wrong], group="example.com", version="v1"):
            pass


class Nested(Model):
    count: int = 3
    text: str = ""


class Spec(Model):
    """What is wanted."""

    page: Annotated[str, Doc("The page."), Column("Page", priority=1)]
    nested: Nested = msgspec.field(default_factory=Nested)
    colour: Colour = Colour.RED
    ports: list[Port] = []
    some: list[int] = msgspec.field(default_factory=lambda: [80])
    on: bool = False
    shade: Colour | None = None
    since: datetime | None = None
    cluster_ip: str = msgspec.field(default="None", name="clusterIP")


class Status(Model):
    ready: Annotated[int, Column("Ready")] = 0
    seen: Annotated[datetime | None, Column("Seen")] = None
    conditions: list[Condition] = []


class Website(
    CustomResource[Spec, Status],
    group="example.com",
    version="v1",
    short_names=["web"],
    categories=["all"],
    scale=Scale(".spec.nested.count", ".status.ready"),
    rules=[Rule("self.metadata.name.size() < 60", "its name is too long")],
    columns=[Column("Whole", '.status.conditions[?(@.type=="Ready")].status')],
):
    """A page and the pods that serve it."""


def test_a_crd_says_what_the_class_says() -> None:
    spec = crd_of(Website)["spec"]
    [version] = spec["versions"]
    assert crd_of(Website)["metadata"] == {"name": "websites.example.com"}
    assert spec["names"] == {
        "kind": "Website",
        "listKind": "WebsiteList",
        "plural": "websites",
        "singular": "website",
        "shortNames": ["web"],
        "categories": ["all"],
    }
    assert (version["name"], version["served"], version["storage"]) == ("v1", True, True)
    assert version["subresources"] == {
        "status": {},
        "scale": {"specReplicasPath": ".spec.nested.count", "statusReplicasPath": ".status.ready"},
    }
    columns = [(each["name"], each["type"], each["jsonPath"]) for each in version["additionalPrinterColumns"]]
    assert columns == [
        ("Page", "string", ".spec.page"),
        ("Ready", "integer", ".status.ready"),
        ("Seen", "date", ".status.seen"),
        ("Whole", "string", '.status.conditions[?(@.type=="Ready")].status'),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]
    assert version["additionalPrinterColumns"][0]["description"] == "The page."
    root = version["schema"]["openAPIV3Schema"]
    assert root["description"] == "A page and the pods that serve it."
    assert root["properties"]["spec"]["description"] == "What is wanted."
    assert root["x-kubernetes-validations"] == [
        {"rule": "self.metadata.name.size() < 60", "message": "its name is too long"}
    ]
    assert root["required"] == ["spec"]


def test_defaults_are_the_api_servers_too_unless_they_are_empty() -> None:
    root = crd_of(Website)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    fields = root["spec"]["properties"]
    defaults = {name: each["default"] for name, each in fields.items() if "default" in each}
    assert defaults == {"nested": {"count": 3}, "colour": "red", "some": [80], "on": False, "clusterIP": "None"}
    assert fields["nested"]["properties"]["count"]["default"] == 3
    assert fields["shade"] == {"type": "string", "enum": ["red", "blue"]}
    assert "default" not in root["status"]
    assert root["status"]["properties"]["ready"]["default"] == 0
    assert root["status"]["properties"]["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


class Named(Model, tag_field="sort", tag="named"):
    name: str = ""


class Numbered(msgspec.Struct, tag=7):
    number: int


class Placed(Model, array_like=True):
    x: int = 0


def test_what_says_of_which_class_an_object_is_is_a_field_of_one_value() -> None:
    """It is sent with each of them, and a field that no schema has is dropped."""
    named = schema_of(Named, begin("A"))
    assert named["properties"]["sort"] == {"type": "string", "enum": ["named"]}
    assert "required" not in named
    assert schema_of(Numbered, begin("A"))["properties"]["type"] == {"type": "integer", "enum": [7]}
    assert encode(Named()) == {"sort": "named"}


def test_an_object_that_is_sent_as_a_list_is_a_list_of_anything() -> None:
    placed = {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}}
    assert schema_of(Placed, begin("A")) == placed
    assert schema_of(list[Placed], begin("A")) == {"type": "array", "items": placed}
    assert encode(Placed(1)) == [1]


def test_a_spec_of_which_nothing_is_needed_is_made_by_the_api_server() -> None:
    class Simple(CustomResource[Nested], group="example.com", version="v1"):
        """Needs nothing."""

    root = crd_of(Simple)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert root["properties"]["spec"]["default"] == {"count": 3}
    assert "required" not in root
    assert "subresources" not in crd_of(Simple)["spec"]["versions"][0]


class Old(CustomResource[Port], group="example.com", version="v1beta1", kind="Gate", deprecated="use v1", served=False):
    """As it was."""


class New(CustomResource[Port], group="example.com", version="v1", kind="Gate", storage=True):
    """As it is."""


class Elsewhere(CustomResource[Port], group="example.com", version="v2", kind="Gate", scope="Cluster"):
    """Of no namespace."""


class Again(CustomResource[Port], group="example.com", version="v1", kind="Gate"):
    """Of the same version."""


def test_several_versions_have_one_that_is_stored() -> None:
    versions = crd_of(Old, New)["spec"]["versions"]
    assert [(each["name"], each["served"], each["storage"]) for each in versions] == [
        ("v1beta1", False, False),
        ("v1", True, True),
    ]
    assert versions[0]["deprecationWarning"] == "use v1"
    assert [each["metadata"]["name"] for each in crds_of([Old, Website, New])] == [
        "gates.example.com",
        "websites.example.com",
    ]


@pytest.mark.parametrize(
    ("versions", "remedy"),
    [
        ((), "takes the classes of a custom resource"),
        ((Old, Again), "of the versions v1beta1, v1 exactly one has to be declared with storage=True; 0 are"),
        ((New, Elsewhere), "are no two versions of one kind"),
        ((New, Website), "are no two versions of one kind"),
        ((New, Again), "a version is there twice: v1, v1"),
        ((Again, Again), "a version is there twice: v1, v1"),  # none of which says that it is stored
    ],
)
def test_versions_that_do_not_go_together_are_refused(versions: Any, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        crd_of(*versions)


def test_a_column_without_a_path_is_refused() -> None:
    class Thing(CustomResource[Port], group="example.com", version="v1", columns=[Column("A")]):
        """Has it in its keywords."""

    with pytest.raises(ConfigurationError, match=r'Thing: column A has no path; write `Column\("A", "\.spec\.…"\)`'):
        crd_of(Thing)
