"""Modules of typed kinds, written from OpenAPI."""

from __future__ import annotations

import sys
import types
from typing import Any

import msgspec
import pytest

from shardsdk import ConfigurationError, Resource
from shardsdk.kinds import Kind, body_of, generate, openapi_path, resource_of
from shardsdk.kinds.wire import encode, written_out
from shardsdk.kube.decoding import codec_of

GROUP = "example.com"


def action(kind: str) -> dict[str, Any]:
    return {
        "get": {
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": {"group": GROUP, "version": "v1", "kind": kind},
        }
    }


GATE: dict[str, Any] = {
    "type": "object",
    "description": 'A "gate" of C:\\. Second sentence.',
    "x-kubernetes-group-version-kind": [{"group": GROUP, "version": "v1", "kind": "Gate"}],
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]},
        "spec": {
            "type": "object",
            "required": ["clusterIP", "listeners"],
            "properties": {
                "clusterIP": {"type": "string", "description": "Its address."},
                "listeners": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["from"],
                        "properties": {"from": {"x-kubernetes-int-or-string": True}, "list": {"type": "boolean"}},
                    },
                },
                "weights": {"type": "object", "additionalProperties": {"type": "number"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "anything": {"x-kubernetes-preserve-unknown-fields": True},
                "since": {"type": "string", "format": "date-time"},
                "secret": {"type": "string", "format": "byte"},
                "24h": {"type": "integer"},
                "mode": {"type": "string", "enum": ["a", "b"]},
            },
        },
        "status": {
            "type": "object",
            "required": ["ready", "names"],
            "properties": {
                "ready": {"type": "integer"},
                "names": {"type": "array", "items": {"type": "string"}},
                "conditions": {
                    "type": "array",
                    "items": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Condition"},
                },
            },
        },
    },
}
DOCUMENT: dict[str, Any] = {
    "paths": {
        "/apis/example.com/v1/namespaces/{namespace}/gates/{name}": action("Gate"),
        "/apis/example.com/v1/namespaces/{namespace}/gates/{name}/status": action("Gate"),
        "/apis/example.com/v1/doors/{name}": action("Door"),
    },
    "components": {
        "schemas": {
            "com.example.v1.Gate": GATE,
            "com.example.v1.Door": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{"group": GROUP, "version": "v1", "kind": "Door"}],
                "properties": {"rules": {"type": "array", "items": {"type": "string"}}},
            },
        }
    },
}


def load(text: str) -> Any:
    module = sys.modules["generated"] = types.ModuleType("generated")  # where msgspec looks names up
    exec(compile(text, "generated.py", "exec"), module.__dict__)
    return module


@pytest.fixture
def gates() -> Any:
    return load(generate([DOCUMENT], GROUP, "v1"))


def test_what_a_schema_says_only_a_part_of_is_read_and_sent_whole() -> None:
    embedded = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}},
    }
    words = {"type": "string", "nullable": True}
    spec = {
        "type": "object",
        "properties": {
            "template": embedded,
            "words": {"type": "array", "items": words},
            "named": {"type": "object", "additionalProperties": words},
        },
    }
    schemas = {
        **DOCUMENT["components"]["schemas"],
        "com.example.v1.Gate": {**GATE, "properties": {**GATE["properties"], "spec": spec}},
    }
    module = load(generate([{**DOCUMENT, "components": {"schemas": schemas}}], GROUP, "v1"))
    thing = {
        "apiVersion": "example.com/v1",
        "kind": "Gate",
        "metadata": {"name": "a"},
        "spec": {
            "template": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}},
            "words": ["a", None],
            "named": {"a": None},
        },
    }
    assert body_of(msgspec.convert(thing, module.Gate))["spec"] == thing["spec"]


def test_a_kind_is_bound_to_what_is_served(gates: Any) -> None:
    assert resource_of(gates.Gate) == Resource(GROUP, "v1", "gates", "Gate")
    assert resource_of(gates.Door) == Resource(GROUP, "v1", "doors", "Door", namespaced=False)
    assert issubclass(gates.Gate, Kind)
    assert gates.Gate.__doc__ == 'A "gate" of C:.'


def test_what_is_read_is_what_is_sent(gates: Any) -> None:
    thing = {
        "apiVersion": "example.com/v1",
        "kind": "Gate",
        "metadata": {"name": "a"},
        "spec": {
            "clusterIP": "None",
            "listeners": [{"from": 80, "list": True}, {"from": "http"}],
            "weights": {"a": 0.5},
            "free": {"a": [1]},
            "anything": [1, "a"],
            "since": "2030-01-01T00:00:00Z",
            "secret": "AGE=",
            "24h": 3,
            "mode": "new",
        },
        "status": {"ready": 1, "names": ["a"], "conditions": [{"type": "Ready", "status": "True", "reason": "Made"}]},
    }
    gate = msgspec.convert(thing, gates.Gate)
    assert (gate.spec.cluster_ip, gate.spec.listeners[1].from_, gate.spec._24h) == ("None", "http", 3)
    assert gate.spec.listeners[0].list_ is True
    assert gate.spec.secret == b"\0a"
    assert {**body_of(gate), "status": None} == {**thing, "status": None}
    assert gate.status.conditions[0].reason == "Made"


def test_what_is_required_has_no_default_and_a_status_has_its_zeros(gates: Any) -> None:
    with pytest.raises(TypeError, match="Missing required argument 'listeners'"):
        gates.GateSpec(cluster_ip="a")
    gate = gates.Gate("a", spec=gates.GateSpec(cluster_ip="b", listeners=[]))
    assert (gate.status.ready, gate.status.names, gate.status.conditions) == (0, [], None)
    assert gates.Door("a").rules == []


def test_only_what_was_asked_for_is_written() -> None:
    text = generate([DOCUMENT], GROUP, "v1", ["Door"])
    assert "class Door(Kind, kw_only=True):" in text
    assert "Gate" not in text


def test_a_kind_that_is_not_served_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match=r"no kind Gates in example.com/v1; there are: Door, Gate"):
        generate([DOCUMENT], GROUP, "v1", ["Gates"])


def test_two_definitions_of_one_name_are_refused() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    clashing = {
        "type": "object",
        "x-kubernetes-group-version-kind": [{"group": GROUP, "version": "v1", "kind": "GateSpec"}],
        "properties": {"a": {"type": "string"}},
    }
    paths = DOCUMENT["paths"] | {"/apis/example.com/v1/gatespecs/{name}": action("GateSpec")}
    document = {"paths": paths, "components": {"schemas": schemas | {"com.example.v1.GateSpec": clashing}}}
    with pytest.raises(ConfigurationError, match="would both be the class GateSpec"):
        generate([document], GROUP, "v1", ["Gate", "GateSpec"])


def load_gate(*, required: bool = False, inner_class: Any = None, **properties: Any) -> Any:
    schema = {**GATE, "properties": properties} | ({"required": ["spec"]} if required else {})
    schemas = {"com.example.v1.Gate": schema, "com.example.v1.Inner": inner_class or {}}
    return load(generate([{**DOCUMENT, "components": {"schemas": schemas}}], GROUP, "v1", ["Gate"]))


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


def read(module: Any, **parts: Any) -> Any:
    return msgspec.convert({"metadata": {"name": "a"}, **parts}, module.Gate)


TEXT = {"type": "string"}
TIME = {"type": "string", "format": "date-time"}


def test_an_object_without_a_status_is_read_whatever_its_status_requires() -> None:
    gates = load_gate(status=of("last", last=TIME))
    assert read(gates).status is None
    assert read(gates, status={"last": "2030-01-01T00:00:00Z"}).status.last.year == 2030
    assert read(load_gate(status=of("by", "n", by={**TEXT, "nullable": True}, n={"type": "integer"}))).status.n == 0


@pytest.mark.parametrize(
    ("required", "spec", "absent"),
    [
        (True, of("url", url=TEXT), "refused"),
        (False, of("url", url=TEXT), None),
        (True, of(url=TEXT), "refused"),
        (False, of(url=TEXT), {}),
        (True, of(url=TEXT) | {"default": {}}, {}),
        (False, of("url", url=TEXT) | {"default": {"url": "a"}}, "refused"),
        (True, of(url=TEXT) | {"nullable": True}, "refused"),
    ],
)
def test_a_spec_may_be_absent_where_the_server_may_have_none(required: bool, spec: Any, absent: Any) -> None:
    gates = load_gate(spec=spec, required=required)
    assert body_of(read(gates, spec={"url": "a"}))["spec"] == {"url": "a"}
    if absent == "refused":
        with pytest.raises(msgspec.ValidationError, match="missing required field `spec`"):
            read(gates)
    else:
        assert encode(read(gates).spec) == absent


def test_an_empty_spec_that_is_required_is_sent() -> None:
    gates = load_gate(spec=of(url=TEXT), required=True)
    assert body_of(gates.Gate("a", spec=gates.GateSpec()))["spec"] == {}
    gates = load_gate(spec=of(url=TEXT))
    assert "spec" not in body_of(gates.Gate("a"))


def test_what_may_be_null_is_read_and_sent_though_it_is_required() -> None:
    null = {**TEXT, "nullable": True}
    inner = {"allOf": [{"$ref": "#/components/schemas/com.example.v1.Inner"}], "nullable": True}
    gates = load_gate(spec=of("owner", "inner", owner=null, other=null, inner=inner), inner_class=of(url=TEXT))
    sent = {"owner": None, "inner": None}
    assert body_of(read(gates, spec=sent))["spec"] == sent
    assert read(gates, spec={**sent, "other": None, "inner": {"url": "b"}}).spec.inner.url == "b"


LIST = {"type": "array", "items": TEXT}
COUNT = {"type": "integer"}


def test_what_a_status_requires_is_written_though_it_may_be_null() -> None:
    hosts, last = {**LIST, "nullable": True}, {**TIME, "nullable": True}
    gates = load_gate(status=of("hosts", "count", "last", hosts=hosts, count={**COUNT, "nullable": True}, last=last))
    assert written_out(gates.GateStatus()) == {"hosts": [], "count": 0}
    status = read(gates, status={"hosts": None, "count": None, "last": None}).status
    assert (status.hosts, status.count, status.last) == (None, None, None)


def test_nulls_that_a_class_takes_stay_where_others_are_none() -> None:
    null = {**TEXT, "nullable": True}
    named = {"type": "object", "additionalProperties": null}
    spec = of("owner", "names", owner=null, names=LIST, named=named, free={"type": "object"})
    gates = load_gate(spec=spec, entries=LIST, labels={"type": "object", "additionalProperties": TEXT})
    sent = {"owner": None, "names": None, "named": {"a": None}, "free": {"b": None}}
    body = {"metadata": {"name": "a"}, "entries": None, "labels": None, "spec": sent}
    gate = codec_of(gates.Gate).read(msgspec.json.encode(body))
    assert (gate.entries, gate.labels) == ([], {})
    assert body_of(gate)["spec"] == {**sent, "names": []}


FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("spec", "empty"), [(FREE, {}), (FREE | {"nullable": True}, None), (of(url=TEXT) | {"nullable": True}, None)]
)
def test_a_required_spec_is_sent_though_it_is_empty_or_null(spec: Any, empty: Any) -> None:
    gates = load_gate(spec=spec, required=True)
    assert body_of(gates.Gate("a", spec=empty))["spec"] == empty
    assert read(gates, spec=empty).spec == empty
    with pytest.raises(TypeError, match="Missing required argument 'spec'"):
        gates.Gate("a")
    assert "spec" not in body_of(load_gate(spec=spec).Gate("a"))


@pytest.mark.parametrize("kind", ["Any", "ClassVar", "Condition", "Kind", "Model", "ObjectMeta", "Resource"])
def test_a_kind_that_is_called_like_what_classes_are_made_of_is_another_class(kind: str) -> None:
    known = {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Condition"}
    given = {"x-kubernetes-group-version-kind": [{"group": GROUP, "version": "v1", "kind": kind}]}
    status = of("n", n={"type": "integer"}, conditions={"type": "array", "items": known})
    schema = of(spec=of(url=TEXT, free={}), status=status) | given
    paths = {f"/apis/{GROUP}/v1/namespaces/{{namespace}}/things/{{name}}": action(kind)}
    text = generate([{"paths": paths, "components": {"schemas": {"com.example.v1.It": schema}}}], GROUP, "v1")
    made = getattr(load(text), f"{kind}_")
    assert (made.__name__, resource_of(made).kind) == (f"{kind}_", kind)
    conditions = [{"type": "Ready", "status": "True"}]
    thing = msgspec.convert({"metadata": {}, "spec": {"url": "a"}, "status": {"conditions": conditions}}, made)
    assert (thing.spec.url, thing.status.n, thing.status.conditions[0].type) == ("a", 0, "Ready")


def test_what_has_a_field_that_no_class_can_have_is_a_map() -> None:
    gates = load_gate(spec=of(odd=of(**{'a"b': TEXT}), url=TEXT))
    spec = {"odd": {'a"b': "c"}, "url": "d"}
    assert body_of(read(gates, spec=spec))["spec"] == spec


@pytest.mark.parametrize("order", [1, -1], ids=["one before many", "many before one"])
def test_what_is_there_once_and_in_a_list_is_two_classes(order: int) -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    source = of(url=text, helm=of(values=text))
    sources = {"type": "array", "items": of(url=number, helm=of(values=number))}
    spec = dict([("source", source), ("sources", sources), ("sourcess", sources)][::order])
    gates = load_gate(spec=of(**spec))
    thing = {
        "metadata": {},
        "spec": {"source": {"url": "a", "helm": {"values": "b"}}, "sources": [{"url": 1, "helm": {"values": 2}}]},
    }
    gate = msgspec.convert(thing, gates.Gate)
    assert gate.spec.source.helm.values == "b"
    assert gate.spec.sources[0].helm.values == 2
    assert body_of(gate)["spec"] == thing["spec"]


def test_names_that_python_would_have_alike_are_kept_apart() -> None:
    named = ["fooBar", "foo_bar", "foo-bar", "FooBar", "any", "Any"]
    gates = load_gate(spec=of(**{name: {"type": "string"} for name in named}), resource={"type": "string"})
    assert resource_of(gates.Gate).kind == "Gate"
    thing = {"metadata": {}, "spec": {name: name for name in named}, "resource": "r"}
    gate = msgspec.convert(thing, gates.Gate)
    assert gate.resource_ == "r"
    body = body_of(gate)
    assert (body["spec"], body["resource"]) == (thing["spec"], "r")


def test_the_documents_are_where_an_api_server_has_them() -> None:
    assert openapi_path("", "v1") == "/openapi/v3/api/v1"
    assert openapi_path("apps", "v1") == "/openapi/v3/apis/apps/v1"
