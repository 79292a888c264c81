"""Who owns which field: what an apply takes, gives back, and is refused."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk.errors import Conflict, Invalid
from shardsdk.protocol.objects import Resource
from shardsdk.testing.memory import MemoryServer
from tests.shard_rig import CONFIGMAPS

NAME = ("a", "default")
SITES = Resource("sites.example.com", "v1", "sites", "Site")


def made(**metadata: Any) -> MemoryServer:
    server = MemoryServer()
    server.create(CONFIGMAPS, {"metadata": {"name": "a", **metadata}, "data": {"mode": "auto"}}, "default")
    return server


def apply(server: MemoryServer, manager: str = "me", *, force: bool = True, **fields: Any) -> dict[str, Any]:
    return server.apply(CONFIGMAPS, *NAME, fields, manager, force=force)


def reference(uid: str, *, controller: bool = False) -> dict[str, Any]:
    says = {"controller": True} if controller else {}
    return {"apiVersion": "v1", "kind": "Secret", "name": uid, "uid": uid, **says}


def test_what_others_wrote_is_taken_by_force_alone() -> None:
    server = made()
    apply(server, force=False, data={"mode": "auto"})
    server.patch(CONFIGMAPS, *NAME, {"data": {"mode": "manual"}})
    with pytest.raises(Conflict, match=r"before-first-apply.*data\.mode"):
        apply(server, force=False, data={"mode": "auto"})
    assert apply(server, data={"mode": "auto"})["data"] == {"mode": "auto"}
    assert apply(server, force=False, data={"mode": "other"})["data"] == {"mode": "other"}


def test_what_another_one_created_is_not_the_appliers_to_remove() -> None:
    server = made()
    assert apply(server, data={"mode": "auto", "mine": "1"})["data"] == {"mode": "auto", "mine": "1"}
    assert apply(server, data={})["data"] == {"mode": "auto"}


def test_what_was_taken_by_force_is_the_appliers_to_remove() -> None:
    server = made()
    apply(server, data={"mode": "manual", "more": "1"})
    assert apply(server, data={"more": "1"})["data"] == {"more": "1"}


def test_finalizers_of_others_stay() -> None:
    server = made(finalizers=["x.com/theirs"])
    assert apply(server, metadata={"finalizers": ["x.com/mine"]})["metadata"]["finalizers"] == [
        "x.com/theirs",
        "x.com/mine",
    ]
    assert apply(server)["metadata"]["finalizers"] == ["x.com/theirs"]


def test_owners_are_merged_by_uid() -> None:
    server = made(ownerReferences=[reference("theirs")])
    owners = [reference("theirs"), reference("mine", controller=True)]
    applied = apply(server, metadata={"ownerReferences": owners[1:]})
    assert applied["metadata"]["ownerReferences"] == owners
    with pytest.raises(Invalid, match="controller"):
        apply(server, "another", metadata={"ownerReferences": [reference("second", controller=True)]})
    assert apply(server, metadata={"ownerReferences": [reference("mine")]})["metadata"]["ownerReferences"] == [
        reference("theirs"),
        reference("mine"),
    ]


def test_an_apply_of_what_is_there_makes_no_version_whoever_wrote_meanwhile() -> None:
    server = made()
    apply(server, data={"mine": "1"})
    version = server.patch(CONFIGMAPS, *NAME, {"metadata": {"labels": {"a": "b"}}})["metadata"]["resourceVersion"]
    again = apply(server, data={"mine": "1"})
    assert again["metadata"]["resourceVersion"] == version
    assert [(each["operation"], each["manager"]) for each in again["metadata"]["managedFields"]] == [
        ("Apply", "me"),
        ("Update", "before-first-apply"),
    ]


def test_who_never_applies_is_bothered_with_no_owners() -> None:
    server = made()
    server.patch(CONFIGMAPS, *NAME, {"data": {"more": "1"}})
    assert "managedFields" not in server.get(CONFIGMAPS, *NAME)["metadata"]


def site(server: MemoryServer, manager: str = "me", **fields: Any) -> dict[str, Any]:
    about = {"apiVersion": SITES.api_version, "kind": SITES.kind, "metadata": {"name": "a"}}
    return server.apply(SITES, *NAME, {**about, **fields}, manager, force=True)


TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
SPEC = {
    "type": "object",
    "properties": {
        "tags": TEXTS,
        "usual": {**TEXTS, "default": {"a": "0"}},
        "maybe": {**TEXTS, "nullable": True},
        "free": {"x-kubernetes-preserve-unknown-fields": True},
        "boxes": {"type": "object", "additionalProperties": TEXTS},
    },
}
SCHEMA = {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": SPEC}}


def server_of_sites() -> MemoryServer:
    return MemoryServer(schema_of={SITES: SCHEMA}.get)


def test_a_map_of_a_custom_resource_is_not_emptied_by_an_apply() -> None:
    server = server_of_sites()
    site(server, spec={"size": 1, "tags": {"a": "1"}})
    problem = r'spec\.tags: Invalid value: "null": spec\.tags in body must be of type object: "null"'
    refusal = rf'^Site\.sites\.example\.com "a" is invalid: {problem}$'
    for _ in range(2):
        with pytest.raises(Invalid, match=refusal):
            site(server, spec={"size": 1, "tags": {}})
    assert server.get(SITES, *NAME)["metadata"]["generation"] == 1
    assert site(server, spec={"size": 1})["spec"] == {"size": 1}
    assert site(server, spec={"size": 1, "tags": {}})["spec"] == {"size": 1, "tags": {}}
    assert site(server, spec={"size": 1})["spec"] == {"size": 1}


@pytest.mark.parametrize(
    ("before", "emptied", "becomes"),
    [
        ({"usual": {"a": "1"}}, {"usual": {}}, {"usual": {}}),
        ({"maybe": {"a": "1"}}, {"maybe": {}}, {"maybe": None}),
        ({"free": {"a": {"b": 1}}}, {"free": {"a": {}}}, {"free": {"a": None}}),
    ],
)
def test_a_map_is_emptied_where_its_schema_lets_that_pass(before: Any, emptied: Any, becomes: Any) -> None:
    server = server_of_sites()
    site(server, spec=before)
    assert site(server, spec=emptied)["spec"] == becomes
    assert site(server, spec=emptied)["spec"] == emptied
    unknown = MemoryServer()
    for spec in (before, emptied, emptied):
        assert site(unknown, spec=spec)["spec"] == spec


def test_a_map_in_a_map_is_refused_by_its_path() -> None:
    server = server_of_sites()
    site(server, spec={"boxes": {"x": {"a": "1"}}})
    with pytest.raises(Invalid, match=r"spec\.boxes\.x in body"):
        site(server, spec={"boxes": {"x": {}}})


def test_labels_of_a_custom_resource_are_emptied_whatever_its_schema() -> None:
    server = server_of_sites()
    site(server, metadata={"name": "a", "labels": {"a": "1"}})
    assert "labels" not in site(server, metadata={"name": "a", "labels": {}})["metadata"]


def test_a_map_that_another_one_has_something_in_is_given_back() -> None:
    server = server_of_sites()
    site(server, spec={"tags": {"a": "1"}})
    site(server, "another", spec={"tags": {"b": "1"}})
    assert site(server, spec={"tags": {}})["spec"] == {"tags": {"b": "1"}}
    with pytest.raises(Invalid, match=r"spec\.tags"):
        site(server, "another")
    assert apply(made(), data={"more": "1"})["data"] == {"mode": "auto", "more": "1"}


def test_null_takes_nothing_away_from_others() -> None:
    server = made(labels={"theirs": "1"}, finalizers=["x.com/theirs"])
    applied = apply(server, metadata={"labels": None, "finalizers": None}, data=None)
    assert applied["data"] == {"mode": "auto"}
    assert applied["metadata"]["labels"] == {"theirs": "1"}
    assert applied["metadata"]["finalizers"] == ["x.com/theirs"]
    assert owners(applied)["me"] == {"f:data": {}, "f:metadata": {"f:finalizers": {}, "f:labels": {}}}


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_null_for_an_entry_is_an_empty_text_and_the_appliers(part: str) -> None:
    server = made(**{part: {"theirs": "1"}})
    with pytest.raises(Conflict, match=rf"metadata\.{part}\.theirs"):
        apply(server, force=False, metadata={part: {"theirs": None}})
    assert apply(server, metadata={part: {"theirs": None}})["metadata"][part] == {"theirs": ""}
    assert apply(server, data={"mode": None})["data"] == {"mode": ""}


def test_what_a_custom_resource_calls_metadata_or_data_is_its_own() -> None:
    inner = {"metadata": {"a": None, "labels": {"b": None}}, "data": {"c": None}}
    assert site(MemoryServer(), spec=inner, data={"d": None}).items() >= {"spec": inner, "data": {"d": None}}.items()


def test_owners_can_be_forgotten() -> None:
    forgetting: dict[str, Any] = {"metadata": {"managedFields": [{}]}}
    server = made()
    assert "managedFields" not in server.patch(CONFIGMAPS, *NAME, forgetting)["metadata"]
    apply(server, data={"mine": "1"})
    assert "managedFields" not in server.patch(CONFIGMAPS, *NAME, forgetting)["metadata"]
    assert apply(server, data={})["data"] == {"mode": "auto", "mine": "1"}


def test_null_is_a_value_in_a_custom_resource() -> None:
    server = MemoryServer()
    assert site(server, spec={"colour": None, "tags": {"a": "1"}})["spec"] == {"colour": None, "tags": {"a": "1"}}
    with pytest.raises(Conflict, match=r"spec\.colour"):
        server.apply(SITES, *NAME, {"spec": {"colour": "red"}}, "another")
    assert site(server, "another", spec=None)["spec"] == {"colour": None, "tags": {"a": "1"}}
    assert site(server, spec={"tags": {"a": "1"}})["spec"] == {"tags": {"a": "1"}}


def test_metadata_beside_an_applied_status_are_ignored() -> None:
    server = MemoryServer()
    site(server, metadata={"name": "a", "labels": {"a": "1"}})
    body = {"metadata": {"name": "a", "labels": {"a": "2"}}, "status": {"ready": 1}}
    applied = server.apply(SITES, *NAME, body, "another", subresource="status")
    assert applied["metadata"]["labels"] == {"a": "1"}
    assert applied["status"] == {"ready": 1}


def test_an_apply_of_empty_metadata_owns_none() -> None:
    server = made()
    apply(server, metadata={}, data={"mine": "1"})
    assert apply(server, data={"mine": "1"})["metadata"]["name"] == "a"


def owners(thing: dict[str, Any]) -> dict[str, Any]:
    """The fields of each field manager, with the subresource that it wrote to."""
    entries = thing["metadata"].get("managedFields", ())
    return {each["manager"] + each.get("subresource", ""): each["fieldsV1"] for each in entries}
