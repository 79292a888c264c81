"""An apply: what others have set that it is refused for is named, and maps that it has empty become so."""

from __future__ import annotations

from typing import Any

import pytest

from shardsdk.errors import Forbidden, Invalid
from shardsdk.kube.api import Operation
from shardsdk.protocol.objects import Resource
from shardsdk.reconcile.serverside import others_entries, parts_to_empty, send_apply
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource("", "v1", "services", "Service")
REFUSED = 'Service "home" is invalid: spec.ports[0].name: Required value'
OURS = {"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}


def managed(manager: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "fieldsV1": fields, **more}


def ports(*keys: str) -> dict[str, Any]:
    return {"f:spec": {"f:ports": {f"k:{key}": {".": {}, "f:port": {}} for key in keys}}}


EDITED = managed("kubectl-edit", ports('{"port":99,"protocol":"TCP"}'))


def named(*entries: dict[str, Any], body: Any = OURS, refusal: str = REFUSED) -> list[str]:
    return list(others_entries({"metadata": {"managedFields": list(entries)}}, body, "websites", "", refusal))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("text", ["[" * 250_000, "[]" + "x[ " * 250_000, "<nil>: Invalid value: " * 50_000])
def test_what_a_user_has_written_into_a_refusal_is_read_at_once(text: str) -> None:
    """A search holds all threads up: milliseconds, and minutes where its time grows with the square of the text."""
    refusal = f'Engine.example.com "home" is invalid: spec.x: Unsupported value: "{text}": supported values: "a"'
    assert parts_to_empty({"metadata": {}}, OURS, "websites", "", refusal) == {}
    assert named(EDITED, refusal=refusal) == []
    assert named(EDITED, refusal=f"{REFUSED}, {text}") == named(EDITED)


def test_an_entry_that_somebody_else_has_set_is_named() -> None:
    assert named(EDITED) == ["kubectl-edit has set spec.ports[port=99,protocol=TCP]"]


@pytest.mark.parametrize(
    "entry",
    [
        managed("websites", ports('{"port":99,"protocol":"TCP"}')),
        managed("kubectl-edit", ports('{"port":80,"protocol":"TCP"}')),
        managed("kubectl-edit", ports('{"port":99,"protocol":"TCP"}'), subresource="status"),
        managed("kubectl-edit", {"f:spec": {"f:externalIPs": {'v:"192.0.2.1"': {}}, "f:type": {}}}),
    ],
    ids=["ours", "applied as well", "of the status", "no list with keys that is applied"],
)
def test_what_is_no_entry_of_others_beside_ours_is_not(entry: dict[str, Any]) -> None:
    assert named(entry) == []


def test_a_list_that_the_refusal_does_not_speak_of_is_left_out() -> None:
    assert named(EDITED, refusal="spec.clusterIP: field is immutable") == []


def test_lists_in_lists_are_looked_at() -> None:
    container = 'k:{"name":"httpd"}'
    fields: dict[str, Any] = {
        "f:spec": {"f:containers": {container: {"f:ports": {'k:{"containerPort":99,"protocol":"TCP"}': {}}}}}
    }
    body = {"spec": {"containers": [{"name": "httpd", "ports": [{"containerPort": 80}]}]}}
    assert named(
        managed("somebody", fields), body=body, refusal="spec.containers[0].ports[1].name: Duplicate value"
    ) == ["somebody has set spec.containers[name=httpd].ports[containerPort=99,protocol=TCP]"]


@in_virtual_time
async def test_a_refusal_comes_as_it_is_where_nobody_else_is_to_blame_or_can_be_asked_for(clock: VirtualClock) -> None:
    class Refusing(MemoryApi):
        async def send(self, operation: Operation[Any]) -> Any:
            if operation.verb == "patch":
                raise Invalid(REFUSED, status=422, reason="Invalid")
            return await super().send(operation)

    class Secretive(Refusing):
        async def send(self, operation: Operation[Any]) -> Any:
            if operation.verb == "get":
                raise Forbidden("get services home: 403", status=403)
            return await super().send(operation)

    class Edited(Refusing):
        async def send(self, operation: Operation[Any]) -> Any:
            if operation.verb == "get":
                return {"metadata": {"name": "home", "managedFields": [EDITED]}}
            return await super().send(operation)

    server = MemoryServer()
    said = []
    for kind in (Refusing, Secretive, Edited):
        with pytest.raises(Invalid) as raised:
            await send_apply(kind(server, clock), SERVICES, "home", "default", OURS, owner="websites", force=True)
        said.append((str(raised.value), raised.value.status, raised.value.reason))
    assert said[0] == said[1] == (REFUSED, 422, "Invalid")
    assert said[2][0].startswith(f"{REFUSED} — kubectl-edit has set spec.ports[port=99,protocol=TCP], and what is")
    assert said[2][1:] == (422, "Invalid")


@in_virtual_time
async def test_texts_of_a_secret_are_applied_as_data_so_that_one_that_is_left_out_goes_away(
    clock: VirtualClock,
) -> None:
    api = MemoryApi(MemoryServer(), clock)

    async def apply(**fields: Any) -> Any:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "home"}, **fields}
        sent = dict(body)
        secret = await send_apply(api, SECRETS, "home", "default", body, owner="us", model=dict, force=True)
        assert body == sent
        return secret["data"]

    old, new = {"user": "dQ==", "token": "b2xk"}, {"user": "dQ==", "new": "bmV3"}
    assert await apply(stringData={"user": "u", "token": "old"}) == old
    assert await apply(stringData={"new": "new"}, data={"user": "dQ==", "new": ""}) == new
    assert await apply(data={"user": "dQ=="}) == {"user": "dQ=="}


@pytest.mark.parametrize("texts", [{"a": 1}, ["a"], None])
@in_virtual_time
async def test_what_is_no_text_is_left_to_the_api_server(clock: VirtualClock, texts: Any) -> None:
    class Refusing(MemoryApi):
        async def send(self, operation: Operation[Any]) -> Any:
            assert operation.body == {"stringData": texts}
            raise Forbidden("patch secrets home: 403", status=403)

    api = Refusing(MemoryServer(), clock)
    with pytest.raises(Forbidden):
        await send_apply(api, SECRETS, "home", "default", {"stringData": texts}, owner="us", force=True)


THERE: dict[str, Any] = {"spec": {"limits": {"cpu": 1}, "parts": [{"name": "a/b", "limits": {"~/": 1}}]}}
APPLIED = {
    "f:limits": {"f:cpu": {}},
    "f:parts": {'k:{"name":"a/b"}': {".": {}, "f:name": {}, "f:limits": {"f:~/": {}}}},
}
LIMITS = 'spec.limits: Invalid value: "null": spec.limits in body must be of type object: "null"'
PART = LIMITS.replace("spec.limits", "spec.parts[0].limits")
UNCHECKED = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct"


def refused_for(*problems: str) -> str:
    said = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    return f'Engine.example.com "home" is invalid: {said}'


def to_empty(refusal: str, *others: dict[str, Any], **more: Any) -> list[str]:
    ours = {"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": APPLIED}}
    there = {"metadata": {"managedFields": [*others, ours]}, **THERE}
    body = {"spec": {"limits": {}, "parts": [{"name": "a/b", "limits": {}}], **more}}
    return list(parts_to_empty(there, body, "us", "", refusal))


@pytest.mark.parametrize("problems", [(LIMITS,), (PART,), (LIMITS, PART), (LIMITS, UNCHECKED)])
def test_an_apply_that_is_refused_for_null_alone_has_all_its_maps_emptied(problems: tuple[str, ...]) -> None:
    assert to_empty(refused_for(*problems)) == ["/spec/limits", "/spec/parts/0/limits"]


@pytest.mark.parametrize(
    "refusal",
    [
        refused_for(LIMITS, "spec.image: Required value"),
        refused_for("spec.image: Required value"),
        refused_for(LIMITS.replace("limits", "others")),
        refused_for(UNCHECKED),
        "the server rejected our request due to an error in our request",
    ],
)
def test_one_that_is_refused_for_something_else_is_left_as_it_is(refusal: str) -> None:
    assert to_empty(refusal) == []


@pytest.mark.parametrize("more", [{"manager": "kubectl"}, {"operation": "Update"}, {"subresource": "status"}])
def test_a_map_in_which_others_have_something_is_not_emptied(more: dict[str, str]) -> None:
    theirs = {"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": {"f:limits": {"f:cpu": {}}}}, **more}
    assert to_empty(refused_for(PART), theirs) == ["/spec/parts/0/limits"]
    assert to_empty(refused_for(LIMITS), theirs) == []


def test_a_map_whose_name_has_brackets_is_emptied() -> None:
    ours = {"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": {"f:named": {"f:a[0]": {"f:cpu": {}}}}}}
    there = {"metadata": {"managedFields": [ours]}, "spec": {"named": {"a[0]": {"cpu": 1}}}}
    body: dict[str, Any] = {"spec": {"named": {"a[0]": {}}}}
    refusal = refused_for(LIMITS.replace("spec.limits", "spec.named.a[0]"))
    assert parts_to_empty(there, body, "us", "", refusal) == {"/spec/named/a[0]": {}}


@pytest.mark.parametrize(
    ("fields", "entries"), [({'k:{"name":"a"}': {}}, [{"name": "a"}]), ({'v:"a"': {}}, ["a"])], ids=["keys", "set"]
)
def test_a_list_that_is_required_is_emptied(fields: dict[str, Any], entries: list[Any]) -> None:
    ours = {"manager": "us", "operation": "Apply", "fieldsV1": {"f:spec": {"f:all": fields}}}
    there = {"metadata": {"managedFields": [ours]}, "spec": {"all": entries}}
    refusal = refused_for("spec.all: Required value")
    assert parts_to_empty(there, {"spec": {"all": []}}, "us", "", refusal) == {"/spec/all": []}
    assert parts_to_empty(there, {"spec": {}}, "us", "", refusal) == {}


def test_an_entry_that_leaves_out_a_default_key_is_not_taken_for_another() -> None:
    udp = 'k:{"port":80,"protocol":"UDP"}'
    ours = {
        "manager": "us",
        "operation": "Apply",
        "fieldsV1": {"f:spec": {"f:ports": {udp: {"f:limits": {"f:a": {}}}}}},
    }
    ports = [{"port": 80, "protocol": protocol, "limits": {"a": 1}} for protocol in ("TCP", "UDP")]
    there = {"metadata": {"managedFields": [ours]}, "spec": {"ports": ports}}
    body = {"spec": {"ports": [{"port": 80, "limits": {"a": 1}}, {"port": 80, "protocol": "UDP", "limits": {}}]}}
    refusal = refused_for(LIMITS.replace("spec.limits", "spec.ports[1].limits"))
    assert parts_to_empty(there, body, "us", "", refusal) == {"/spec/ports/1/limits": {}}


def test_labels_stay_as_they_are() -> None:
    fields = {"f:spec": APPLIED, "f:metadata": {"f:labels": {"f:a": {}}}}
    ours = {"manager": "us", "operation": "Apply", "fieldsV1": fields}
    there = {"metadata": {"managedFields": [ours], "labels": {"a": "1"}}, **THERE}
    body: dict[str, Any] = {"metadata": {"labels": {}}, "spec": {"limits": {}}}
    assert parts_to_empty(there, body, "us", "", refused_for(LIMITS)) == {"/spec/limits": {}}


def test_a_map_that_is_applied_with_something_in_it_or_not_at_all_is_not_emptied() -> None:
    assert to_empty(refused_for(LIMITS), limits={"cpu": 2}) == to_empty(refused_for(LIMITS), limits=None) == []
    assert to_empty(refused_for(PART), parts=[{"name": "c", "limits": {}}], limits={"cpu": 1}) == []
