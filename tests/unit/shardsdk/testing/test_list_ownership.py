"""Entries of lists have owners of their own, and so has what was written by other means than an apply."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk.errors import BadRequest, Conflict, Invalid
from shardsdk.kinds import Deployment, Job, Service
from shardsdk.protocol.objects import Resource
from shardsdk.testing.memory import MemoryServer
from tests.shard_rig import CONFIGMAPS
from tests.unit.shardsdk.testing.test_ownership import NAME, owners

PAGES = Resource("pages.example.com", "v1", "pages", "Page")
STEPS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name", "zone"],
    "items": {"type": "object", "properties": {"zone": {"type": "string", "default": "eu"}}},
}
SPEC = {
    "type": "object",
    "properties": {
        "steps": STEPS,
        "hosts": {"type": "array", "x-kubernetes-list-type": "set"},
        "names": {"type": "array"},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic"},
    },
}
SCHEMA = {"type": "object", "properties": {"spec": SPEC, "status": {"type": "object"}}}


def server_of_pages() -> MemoryServer:
    return MemoryServer(schema_of=lambda resource: SCHEMA if resource == PAGES else None)


def apply(
    server: MemoryServer, manager: str, spec: Any, resource: Resource = PAGES, *, force: bool = False
) -> dict[str, Any]:
    about = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}}
    return server.apply(resource, *NAME, {**about, "spec": spec}, manager, force=force)


def step(name: str, **says: Any) -> dict[str, Any]:
    return {"name": name, "zone": "eu", **says}


def test_entries_are_told_apart_by_their_keys() -> None:
    server = server_of_pages()
    apply(server, "one", {"steps": [step("a", run="x")]})
    made = apply(server, "two", {"steps": [step("b"), step("a", wait=1)]})
    assert made["spec"]["steps"] == [step("b"), step("a", run="x", wait=1)]
    assert owners(made)["one"] == {
        "f:spec": {"f:steps": {'k:{"name":"a","zone":"eu"}': {".": {}, "f:name": {}, "f:zone": {}, "f:run": {}}}}
    }


def test_an_entry_goes_with_its_only_owner_and_stays_with_another() -> None:
    server = server_of_pages()
    apply(server, "one", {"steps": [step("a"), step("b", run="x")]})
    apply(server, "two", {"steps": [step("b", wait=1)]})
    assert apply(server, "one", {"steps": []})["spec"] == {"steps": [step("b", wait=1)]}


def test_an_entry_of_another_is_not_taken_without_force() -> None:
    server = server_of_pages()
    apply(server, "one", {"steps": [step("a", run="x"), step("b", run="x")]})
    refusal = r'^Apply failed with 1 conflict: conflict with "one": \.spec\.steps\[name="a",zone="eu"\]\.run$'
    with pytest.raises(Conflict, match=refusal):
        apply(server, "two", {"steps": [step("a", run="y")]})
    made = apply(server, "two", {"steps": [step("a", run="y")]}, force=True)
    assert made["spec"]["steps"] == [step("a", run="y"), step("b", run="x")]
    assert "f:run" not in owners(made)["one"]["f:spec"]["f:steps"]['k:{"name":"a","zone":"eu"}']


def test_several_conflicts_are_listed_by_owner() -> None:
    server = server_of_pages()
    apply(server, "one", {"names": ["a"], "size": 1})
    server.patch(PAGES, *NAME, {"spec": {"colour": "red"}}, manager="two")
    with pytest.raises(Conflict) as refused:
        apply(server, "three", {"names": ["b"], "size": 2, "colour": "blue"})
    assert str(refused.value).splitlines() == [
        'Apply failed with 3 conflicts: conflicts with "one":',
        "- .spec.names",
        "- .spec.size",
        'conflicts with "two" using pages.example.com/v1:',
        "- .spec.colour",
    ]


def test_what_two_have_applied_alike_is_both_of_theirs() -> None:
    server, both = server_of_pages(), {"steps": [step("a", run="x")], "hosts": ["h"]}
    for manager in ("one", "two"):
        apply(server, manager, {"size": 1, **both})
    assert apply(server, "one", {"size": 1})["spec"] == {"size": 1, **both}
    assert apply(server, "two", {"size": 1})["spec"] == {"size": 1}


def test_a_key_that_is_left_out_has_its_default() -> None:
    server = server_of_pages()
    apply(server, "one", {"steps": [step("a", run="x")]})
    assert apply(server, "two", {"steps": [{"name": "a", "wait": 1}]})["spec"] == {
        "steps": [step("a", run="x", wait=1)]
    }


def test_an_entry_of_a_set_is_there_once() -> None:
    server = server_of_pages()
    apply(server, "one", {"hosts": ["x", "y"]})
    assert apply(server, "two", {"hosts": ["z", "y"]})["spec"] == {"hosts": ["x", "z", "y"]}
    assert apply(server, "one", {"hosts": []})["spec"] == {"hosts": ["z", "y"]}


def test_other_lists_and_whole_maps_are_one_field() -> None:
    server = server_of_pages()
    apply(server, "one", {"names": ["a", "b"], "whole": {"a": "1"}})
    with pytest.raises(Conflict, match=r"\.spec\.names"):
        apply(server, "two", {"names": ["a"]})
    with pytest.raises(Conflict, match=r"\.spec\.whole$"):
        apply(server, "two", {"whole": {"b": "1"}})


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"steps": [step("a"), step("a")]}, r'\.spec\.steps: duplicate entries for key \[name="a",zone="eu"\]'),
        ({"hosts": ["x", "x"]}, r'\.spec\.hosts: duplicate entries for key \[="x"\]'),
    ],
)
def test_what_is_there_twice_is_refused(spec: Any, problem: str) -> None:
    server = server_of_pages()
    with pytest.raises(BadRequest, match=f"failed to create typed patch object .*: {problem}"):
        apply(server, "one", spec)
    apply(server, "one", {})
    with pytest.raises(Invalid, match=r"spec\.(steps|hosts)\[1\]: Duplicate value"):
        server.patch(PAGES, *NAME, {"spec": spec})


def test_an_entry_without_keys_is_refused() -> None:
    schema = {"properties": {"spec": {"properties": {"steps": {**STEPS, "x-kubernetes-list-map-keys": ["name"]}}}}}
    server = MemoryServer(schema_of=lambda resource: schema)
    with pytest.raises(BadRequest, match=r"\.spec\.steps: element 1: .* omits all key fields"):
        apply(server, "one", {"steps": [step("a"), {"run": "x"}]})


def test_containers_ports_and_selectors_of_own_kinds() -> None:
    server = MemoryServer()
    one = {"name": "one", "image": "i:1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}
    template = {"spec": {"containers": [one]}}
    apply(server, "m", {"selector": {"matchLabels": {"a": "b"}}, "template": template}, Deployment.resource)
    other = {"name": "one", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}], "env": [{"name": "B"}]}
    applied = {"template": {"spec": {"containers": [other, {"name": "side"}]}}}
    made = apply(server, "n", applied, Deployment.resource)
    assert made["spec"]["template"]["spec"]["containers"] == [
        {
            **one,
            "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}],
            "env": [*one["env"], {"name": "B"}],
        },
        {"name": "side"},
    ]
    with pytest.raises(Conflict, match=r"\.spec\.selector$"):
        apply(server, "n", {"selector": {"matchLabels": {"c": "d"}}}, Deployment.resource)
    apply(server, "m", {"ports": [{"port": 80}]}, Service.resource)
    ports = apply(server, "n", {"ports": [{"port": 80, "protocol": "UDP"}]}, Service.resource)["spec"]["ports"]
    assert ports == [{"port": 80}, {"port": 80, "protocol": "UDP"}]


@pytest.mark.parametrize(("resource", "count"), [(Deployment.resource, 2), (Job.resource, 1)])
def test_conditions_merge_by_type_but_those_of_jobs(resource: Resource, count: int) -> None:
    server = MemoryServer()
    server.create(resource, {"metadata": {"name": "a"}, "spec": {}}, "default")
    about = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}}
    for kind in ("Ready", "Stored"):
        body = {**about, "status": {"conditions": [{"type": kind, "status": "True"}]}}
        server.apply(resource, *NAME, body, kind, subresource="status", force=True)
    assert len(server.get(resource, *NAME)["status"]["conditions"]) == count


def test_of_unknown_custom_resources_every_list_is_one_field() -> None:
    server = MemoryServer()
    apply(server, "one", {"steps": [step("a")]})
    with pytest.raises(Conflict, match=r"\.spec\.steps$"):
        apply(server, "two", {"steps": [step("b")]})


def test_a_signed_patch_is_written_down() -> None:
    server = MemoryServer()
    server.create(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"a": "1"}}, "default", "maker")
    server.patch(CONFIGMAPS, *NAME, {"data": {"b": "1"}}, manager="patcher")
    made = server.patch(CONFIGMAPS, *NAME, {"data": {"a": "2"}}, manager="patcher")
    assert owners(made) == {"maker": {"f:data": {}}, "patcher": {"f:data": {"f:a": {}, "f:b": {}}}}
    assert {each["operation"] for each in made["metadata"]["managedFields"]} == {"Update"}
    assert {each["apiVersion"] for each in made["metadata"]["managedFields"]} == {"v1"}


def test_a_signed_status_is_another_owners_part() -> None:
    server = server_of_pages()
    server.create(PAGES, {"metadata": {"name": "a"}, "spec": {"size": 1}}, "default", "maker")
    made = server.patch(
        PAGES, *NAME, {"spec": {"size": 2}, "status": {"ready": 1}}, subresource="status", manager="maker"
    )
    assert owners(made) == {
        "maker": {"f:spec": {".": {}, "f:size": {}}},
        "makerstatus": {"f:status": {".": {}, "f:ready": {}}},
    }


def test_who_signs_first_leaves_the_rest_to_nobody_known() -> None:
    server = MemoryServer()
    server.create(CONFIGMAPS, {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"a": "1"}}, "default")
    made = server.patch(CONFIGMAPS, *NAME, {"data": {"b": "1"}}, manager="me")
    assert owners(made)["me"] == {"f:data": {"f:b": {}}}
    assert owners(made)["before-first-apply"]["f:data"] == {".": {}, "f:a": {}}
    assert "f:a" not in owners(server.patch(CONFIGMAPS, *NAME, {"data": {"a": None}}))["before-first-apply"]["f:data"]


def test_a_patch_that_changes_nothing_makes_no_version_though_it_is_signed() -> None:
    server = MemoryServer()
    server.create(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"a": "1"}}, "default", "maker")
    for manager in ("maker", "other"):
        server.patch(CONFIGMAPS, *NAME, {"data": {"a": "1"}}, manager=manager)
    assert len(server.log) == 1


def test_what_admission_adds_is_nobodys() -> None:
    def admit(verb: str, resource: Resource, old: Any, new: dict[str, Any]) -> dict[str, Any]:
        return {**new, "metadata": {**new["metadata"], "labels": {"added": "yes"}}}

    server = MemoryServer(admit)
    server.apply(CONFIGMAPS, *NAME, {"metadata": {"name": "a"}, "data": {"a": "1"}}, "me")
    made = server.apply(CONFIGMAPS, *NAME, {"metadata": {"name": "a"}, "data": {}}, "me")
    assert made["metadata"]["labels"] == {"added": "yes"}
    assert owners(made) == {"me": {"f:data": {}}}
