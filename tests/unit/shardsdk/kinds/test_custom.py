"""Custom resources as classes: how they are declared, made, read and sent."""

from __future__ import annotations

import tracemalloc
import types
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic
import pytest

from shardsdk import ConfigurationError, CustomResource, Model, ObjectMeta, Resource
from shardsdk.cache.objects import private_copy
from shardsdk.kinds import Kind, Rule, body_of, merge_patch_of, resource_of
from shardsdk.kinds.custom import plural_of
from shardsdk.kinds.declaration import declaration_of
from shardsdk.kinds.wire import encode
from shardsdk.kube.answers import Target
from shardsdk.kube.decoding import codec_of, metadata_of
from shardsdk.kube.identity import identify
from shardsdk.kube.models import check_model

if TYPE_CHECKING:
    from datetime import timedelta


class Page(Model):
    html: str
    draft_of: str = ""


class PageStatus(Model):
    ready_replicas: int = 0
    phase: str | None = None


class Website(CustomResource[Page, PageStatus], group="example.com", version="v1", short_names=["web"]):
    """A page."""


class Widget(Kind):
    resource = Resource("example.com", "v1", "widgets", "Widget")
    size: int = 0


class Bare(CustomResource[Page], group="example.com", version="v1", scope="Cluster", plural="bare", kind="Bear"):
    """Has a spec alone."""


class Quiet(CustomResource[Page, PageStatus | None], group="example.com", version="v1"):
    """Shows that nobody has written its status."""


@dataclass
class Size:
    width: int = 0


class Sized(CustomResource[Size], group="example.com", version="v1"):
    """Its spec is a dataclass."""


class Door(pydantic.BaseModel):
    open_since: str = pydantic.Field(alias="openSince")
    colour: str | None = None


class Doorway(CustomResource[Door], group="example.com", version="v1"):
    """Its spec is pydantic's."""


def test_a_class_is_bound_to_what_the_api_server_serves() -> None:
    assert resource_of(Website) == Resource("example.com", "v1", "websites", "Website")
    assert resource_of(Website("a", Page("hi"))) is resource_of(Website)
    assert resource_of(Bare) == Resource("example.com", "v1", "bare", "Bear", namespaced=False)
    assert declaration_of(Website).short_names == ("web",)


def test_the_first_argument_is_a_name_or_metadata() -> None:
    assert Website("home", Page("hi")).metadata == ObjectMeta(name="home")
    assert Website(ObjectMeta(name="home", labels={"a": "b"}), Page("hi")).metadata.label("a") == "b"
    assert Widget(size=3).metadata == ObjectMeta()
    assert Widget(metadata="a").metadata.name == "a"


def test_what_is_empty_or_has_its_default_is_not_sent() -> None:
    assert body_of(Website("home", Page("hi"))) == {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": "home"},
        "spec": {"html": "hi"},
    }
    assert body_of(Widget()) == {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {}}
    full = Website(ObjectMeta("home", "team", labels={"a": "b"}), Page("hi", draft_of="x"), PageStatus(3))
    assert body_of(full)["metadata"] == {"name": "home", "namespace": "team", "labels": {"a": "b"}}
    assert body_of(full)["spec"] == {"html": "hi", "draftOf": "x"}
    assert body_of(full)["status"] == {"readyReplicas": 3}


class Gauge(pydantic.BaseModel):
    at: int | None = pydantic.Field(alias="measuredAt")
    retries: int | None = 3
    note: str | None = None


class Gauges(pydantic.BaseModel):
    first: Gauge
    more: list[Gauge] = []
    named: dict[str, Gauge] = {}
    last: Gauge = Gauge(measuredAt=None)


def test_pydantics_none_is_sent_where_the_field_would_be_something_else_without() -> None:
    empty, null = Gauge(measuredAt=None, retries=None), {"measuredAt": None, "retries": None}
    assert encode(Gauges(first=empty, more=[empty], named={"a": empty})) == {
        "first": null,
        "more": [null],
        "named": {"a": null},
        "last": {"measuredAt": None, "retries": 3},
    }


class Served(pydantic.BaseModel):
    """Its serializers send less than it has."""

    hosts: list[str | None] = []
    env: dict[str, str | None] = {}
    secret: str | None = pydantic.Field(exclude=True)

    @pydantic.field_serializer("hosts")
    def each_once(self, hosts: list[str | None]) -> list[str]:
        return sorted({each for each in hosts if each})

    @pydantic.field_serializer("env")
    def without_nothing(self, env: dict[str, str | None]) -> dict[str, str]:
        return {name: each for name, each in env.items() if each}


def test_what_pydantics_serializers_leave_out_is_not_sent() -> None:
    served = Served(hosts=["b", "a", "b", None], env={"A": "", "B": "1", "C": None}, secret=None)
    assert encode(served) == {"hosts": ["a", "b"], "env": {"B": "1"}}


def test_a_merge_patch_writes_defaults_out_and_removes_what_is_none() -> None:
    assert merge_patch_of(PageStatus()) == {"readyReplicas": 0, "phase": None}
    assert merge_patch_of({"a": [Page("hi")]}) == {"a": [{"html": "hi"}]}
    assert merge_patch_of(Door(openSince="noon")) == {"openSince": "noon", "colour": None}


@pytest.mark.parametrize("kind", [Website, Quiet, Widget, Bare, Sized, Doorway], ids=lambda kind: str(kind.__name__))
def test_models_are_fit_for_controllers(kind: type[Kind]) -> None:
    check_model(kind, resource_of(kind))


def test_an_object_that_nobody_has_written_a_status_of_shows_its_defaults() -> None:
    found = read(Website, {"metadata": {"name": "a"}, "spec": {"html": "hi"}})
    assert found.status == PageStatus()
    assert read(Quiet, {"metadata": {"name": "a"}, "spec": {"html": "hi"}}).status is None


def test_an_object_without_metadata_is_read() -> None:
    assert metadata_of(read(Widget, {"size": 3})) == ObjectMeta()


def test_what_a_class_does_not_know_is_skipped() -> None:
    thing = {
        "apiVersion": "example.com/v1",
        "kind": "Website",
        "metadata": {"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "7", "managedFields": [{}]},
        "spec": {"html": "hi", "colour": "red"},
        "status": {"readyReplicas": 2, "conditions": []},
    }
    found = read(Website, thing)
    assert (found.spec, found.status.ready_replicas) == (Page("hi"), 2)
    assert identify(found) == ("b", "a", "c", "7")


def test_an_object_without_the_spec_that_it_needs_does_not_fit() -> None:
    with pytest.raises(msgspec.ValidationError, match="Website without `spec`"):
        msgspec.json.decode(b'{"metadata": {"name": "a"}}', type=Website)
    with pytest.raises(TypeError, match=r"Website takes a spec: Website\(name, Page\(…\)\)"):
        Website("home")


def test_a_typed_object_takes_no_more_memory_than_a_plain_struct() -> None:
    class Plain(msgspec.Struct, rename="camel"):
        metadata: ObjectMeta
        spec: Page
        status: PageStatus

    assert memory_of(Website) <= 1.05 * memory_of(Plain)


def memory_of(model: Any) -> int:
    """What an object takes, with all that it refers to."""
    body = msgspec.json.encode(body_of(Website("home", Page("hi"), PageStatus(3))))
    decoder = msgspec.json.Decoder(model)
    decoder.decode(body)
    tracemalloc.start()
    kept = [decoder.decode(body) for _ in range(1000)]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken // len(kept)


def test_copies_and_changes_do_not_touch_the_original() -> None:
    first = Website("home", Page("hi"))
    second = private_copy(first)
    second.spec.html = "there"
    assert (first.spec.html, second.metadata) == ("hi", first.metadata)


def test_a_spec_may_be_a_dataclass_or_pydantics() -> None:
    assert read(Sized, {"spec": {"width": 3}}).spec == Size(3)
    assert body_of(Sized("a", Size(3)))["spec"] == {"width": 3}
    door = Door(openSince="noon")
    assert body_of(Doorway("a", door))["spec"] == {"openSince": "noon"}
    assert read(Doorway, body_of(Doorway("a", door))).spec == door


def test_a_class_of_the_kubernetes_package_may_be_a_spec() -> None:
    from kubernetes.aio.client import V1PodSpec  # takes seconds

    class Runner(CustomResource[V1PodSpec], group="example.com", version="v1"):
        """Its spec is the kubernetes package's."""

    spec = V1PodSpec(containers=[{"name": "a", "image": "b", "envFrom": []}], nodeName="c")
    body = body_of(Runner("a", spec))
    assert body["spec"]["nodeName"] == "c"
    assert body["spec"]["containers"][0]["name"] == "a"
    assert None not in body["spec"].values()
    assert read(Runner, body).spec == spec


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Website", "websites"), ("Proxy", "proxies"), ("Relay", "relays"), ("Batch", "batches"), ("Status", "statuses")],
)
def test_plurals_are_english(kind: str, plural: str) -> None:
    assert plural_of(kind) == plural


def declare(name: str = "Thing", *parts: Any, **keywords: Any) -> Any:
    given: dict[str, Any] = {"group": "example.com", "version": "v1", **keywords}
    bases = [CustomResource[parts] if parts else CustomResource[Page]]  # type: ignore[valid-type]
    return types.new_class(name, bases, given)


class Counted(Model):
    count: int


class Blank(Model):
    """Nobody has written its fields yet."""


@dataclass
class BlankData:
    """The same as a dataclass."""


class BlankDoor(pydantic.BaseModel):
    """The same as pydantic's."""


@pytest.mark.parametrize(
    ("parts", "keywords", "remedy"),
    [
        ((dict,), {}, "its spec is dict, which is no class with fields: write it as `class …\\(Model\\)`"),
        ((Page, str), {}, "its status is str"),
        ((Widget,), {}, "its spec is Widget"),
        ((Blank,), {}, r"Blank has no fields, .*give it some, .*or write `CustomResource\[None, …\]`"),
        ((BlankData, PageStatus), {}, "BlankData has no fields"),
        ((BlankDoor,), {}, "BlankDoor has no fields"),
        ((Page, Counted), {}, r"give each field of Counted a default, or write `CustomResource\[…, Counted \| None\]`"),
        ((), {"group": "example"}, "group='example' has to be a domain"),
        ((), {"version": ""}, "version='' has to be such as"),
        ((), {"kind": "thing"}, "kind='thing' has to be a word in CamelCase"),
        ((), {"plural": "Things"}, "plural='Things' has to be a word in lower case"),
        ((), {"scope": "Everywhere"}, "scope='Everywhere' has to be"),
        ((), {"short_names": "th"}, r"write short_names=\['th'\], a list"),
        ((), {"categories": ["All"]}, "categories has 'All'"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(
    parts: tuple[Any, ...], keywords: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"custom resource Thing: .*{remedy}"):
        declare("Thing", *parts, **keywords)


def test_fields_of_a_class_are_found_that_has_them_as_python_3_14_does() -> None:
    body = {"__module__": __name__, "__annotate_func__": lambda _: {"size": int}, "size": 3}
    bases, keywords = (CustomResource[Page],), {"group": "example.com", "version": "v1"}
    made: Any = types.new_class("Lazy", bases, keywords, lambda namespace: namespace.update(body))
    assert body_of(made("a", Page("hi"), size=4))["size"] == 4
    assert read(made, {"spec": {"html": "hi"}}).size == 3


class Elsewhere(Model):
    """Some are imported for type checkers alone."""

    when: datetime | None = None
    later: list[timedelta] = []


def test_a_type_that_is_not_there_when_the_program_runs_is_named_with_its_field() -> None:
    said = (
        r"spec: the field later of Elsewhere has a type .*'timedelta' is not defined.*; what is imported under `if TYPE"
    )
    with pytest.raises(ConfigurationError, match=said):
        declare("Thing", Elsewhere)


def test_one_custom_resource_does_not_inherit_from_another() -> None:
    with pytest.raises(ConfigurationError, match="it cannot inherit from another one"):

        class Child(Website, group="example.com", version="v2"):
            pass


def test_a_kind_without_a_resource_says_what_to_write() -> None:
    class Nothing(Kind):
        pass

    with pytest.raises(ConfigurationError, match="Nothing is bound to no resource: give it `resource = "):
        body_of(Nothing("a"))


def test_a_class_is_no_object() -> None:
    with pytest.raises(TypeError, match=r"body_of takes an object: Website\(name, …\), not the class"):
        body_of(Website)  # type: ignore[arg-type]


def test_rules_of_a_class_hold_for_its_heirs() -> None:
    class Limits(Model, rules=[Rule("self.low <= self.high")]):
        low: int = 0
        high: int = 0

    class Wider(Limits, rules=[Rule("self.high < 10")]):
        unit: str = ""

    assert Limits.__rules__ == (Rule("self.low <= self.high"),)
    assert Wider.__rules__ == (Rule("self.low <= self.high"), Rule("self.high < 10"))
    assert Page.__rules__ == ()


def read(kind: Any, body: dict[str, Any]) -> Any:
    """As the client decodes it."""
    return codec_of(kind).decode(Target("get", "things", "", "a"), msgspec.json.encode(body))


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (Page, {"htlm": ""}, "Page has no field 'htlm'; did you mean 'html'?"),
        (Page, {"draftOf": ""}, "Page has no field 'draftOf'; in Python it is 'draft_of'"),
        (Widget, {"colour": ""}, "Widget has no field 'colour'; it has metadata, size"),
        (Widget, {"name": ""}, "Widget has no field 'name': it is of its metadata; write Widget(NAME, …)"),
        (
            Widget, {"labels": {}},
            "Widget has no field 'labels': it is of its metadata; write Widget(NAME, …) or"
            " Widget(ObjectMeta(name=…, labels=…), …)",
        ),
        (Website, {"spec": Page("a"), "stauts": None}, "Website has no field 'stauts'; did you mean 'status'?"),
        (Page, {}, "Missing required argument 'html'"),
    ],
)  # fmt: skip
def test_a_misspelt_field_is_told_with_what_was_meant(kind: type[Any], fields: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as error:
        kind(**fields)
    assert str(error.value) == said
