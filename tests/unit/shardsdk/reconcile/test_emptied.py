"""What an API server makes null is emptied and applied again; what ends that tells of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from shardsdk.cache.objects import Request, metadata_of
from shardsdk.errors import Conflict, Forbidden, Invalid, TooManyWrites
from shardsdk.kinds import CustomResource, Model, body_of
from shardsdk.kube.answers import Status, Target, explain_status
from shardsdk.kube.api import Api, Operation, PatchKind
from shardsdk.protocol.objects import GroupResource, Resource
from shardsdk.reconcile.ownapi import OwnApi
from shardsdk.reconcile.serverside import send_apply
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

ENGINES = Resource("example.com", "v1", "engines", "Engine")
HOME = (ENGINES, "home", "default")
NULL = (
    'Engine.example.com "home" is invalid: spec.limits: Invalid value: "null": spec.limits in body must be of type'
    ' object: "null"'
)


def engine(**limits: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Engine",
        "metadata": {"name": "home"},
        "spec": {"limits": limits},
    }


async def apply(api: Api, **limits: Any) -> Any:
    return await send_apply(api, ENGINES, "home", "default", engine(**limits), owner="us", model=dict, force=True)


class Strict(MemoryApi):
    """Null is no value of an engine's limits; something may happen behind a read, and emptying be refused."""

    refusal = ""
    meanwhile: dict[str, Any] | None = None

    def stored(self) -> Any:
        return self.server.get(ENGINES, "home", "default")

    async def send(self, operation: Operation[Any]) -> Any:
        body = operation.body
        if isinstance(body, Mapping) and body.get("spec") == {"limits": {}} and self.stored()["spec"]["limits"]:
            raise Invalid(NULL, status=422, reason="Invalid")
        if self.refusal and operation.verb == "patch" and operation.kind is PatchKind.JSON:
            raise Invalid(self.refusal, status=422, reason="Invalid")
        if operation.verb == "get" and self.meanwhile:
            self.server.patch(ENGINES, "home", "default", self.meanwhile)
        return await super().send(operation)


async def own_api(api: Api, max_writes: int | None = None) -> OwnApi:
    """As a reconcile of the engine has it."""
    owner = metadata_of(await api.get(ENGINES, "home", "default"))
    return OwnApi(api, None, ENGINES, owner, frozenset(), NoNotes(), max_writes)


class NoNotes:
    def wrote(self, resource: GroupResource, request: Request, version: str) -> None: ...

    def deleting(self, resource: GroupResource, request: Request) -> Callable[[], None]:
        raise AssertionError

    def outcome_unknown(self) -> None: ...


@in_virtual_time
async def test_a_map_that_is_applied_empty_becomes_so_and_stays_its_owners(clock: VirtualClock) -> None:
    server = MemoryServer()
    api = MemoryApi(server, clock)
    story: list[dict[str, Any]] = [{"cpu": "1"}, {}, {}, {"cpu": "2", "tags": {"a": "1"}}, {"tags": {}}]
    for limits in story:
        assert (await apply(api, **limits))["spec"] == {"limits": limits}
    owners = server.get(ENGINES, "home", "default")["metadata"]["managedFields"]
    assert [each["fieldsV1"] for each in owners if each["manager"] == "us"] == [
        {"f:spec": {"f:limits": {"f:tags": {}}}}
    ]


class Wordy(MemoryApi):
    """An API server to which null is no value, and which says so of each map."""

    async def send(self, operation: Operation[Any]) -> Any:
        body = operation.body
        if operation.verb == "patch" and isinstance(body, Mapping) and (there := self.server.find(*HOME)):
            nulls = [name for name, value in body["spec"].items() if value == {} and there["spec"][name]]
            said = ", ".join(
                f'spec.{name}: Invalid value: "null": spec.{name} in body must be of type object: "null"'
                for name in nulls
            )
            if said:
                refusal = Status(422, "Invalid", f'Engine.example.com "home" is invalid: [{said}]')
                raise explain_status(Target("patch", "example.com", "engines", "default", "home"), refusal)
        return await super().send(operation)


@in_virtual_time
async def test_so_do_many_at_once_whose_refusal_is_not_shown_whole(clock: VirtualClock) -> None:
    server = MemoryServer()
    api = Wordy(server, clock)

    async def apply_to_all(**entries: str) -> Any:
        body = engine() | {"spec": {f"map{number}": entries for number in range(20)}}
        return await send_apply(api, ENGINES, "home", "default", body, owner="us", model=dict, force=True)

    await apply_to_all(a="1")
    assert (await apply_to_all())["spec"] == {f"map{number}": {} for number in range(20)}


@in_virtual_time
async def test_the_reconciled_object_is_not_emptied_once_it_is_another_than_was_read(clock: VirtualClock) -> None:
    api = Strict(MemoryServer(), clock)
    await apply(api, cpu="1")
    own = await own_api(api)
    api.meanwhile = {"metadata": {"labels": {"shard": "another"}}}
    with pytest.raises(Conflict):
        await apply(own)
    assert api.stored()["spec"] == {"limits": {"cpu": "1"}}
    api.meanwhile = None
    assert (await apply(await own_api(api)))["spec"] == {"limits": {}}


@in_virtual_time
async def test_what_refuses_to_be_emptied_by_itself_is_told_beside_the_refusal(clock: VirtualClock) -> None:
    api = Strict(MemoryServer(), clock)
    await apply(api, cpu="1")
    api.refusal = "no cpu"
    with pytest.raises(Invalid, match=r"of type object.* — emptying /spec/limits first, .* refused as well: no cpu"):
        await apply(api)


@in_virtual_time
async def test_too_few_writes_to_empty_something_are_told_with_the_refusal(clock: VirtualClock) -> None:
    api = Strict(MemoryServer(), clock)
    await apply(api, cpu="1")
    with pytest.raises(TooManyWrites, match=r"max_writes.*; the next was to empty what was refused: .*spec\.limits"):
        await apply(await own_api(api, max_writes=1))
    with pytest.raises(TooManyWrites):
        await apply(await own_api(api, max_writes=2))
    assert (await apply(await own_api(api, max_writes=1)))["spec"] == {"limits": {}}


@in_virtual_time
async def test_where_the_object_may_not_be_read_the_refusal_says_so_if_that_would_help(clock: VirtualClock) -> None:
    class Secretive(MemoryApi):
        said = NULL

        async def send(self, operation: Operation[Any]) -> Any:
            if operation.verb == "get":
                raise Forbidden("grant get", status=403)
            raise Invalid(self.said, status=422, reason="Invalid")

    api = Secretive(MemoryServer(), clock)
    with pytest.raises(Invalid, match=r"of type object.*: grant get"):
        await apply(api)
    api.said = "another"
    with pytest.raises(Invalid, match=r"^another$"):
        await apply(api)


class Limits(Model):
    cpu: str = ""


class Part(Model):
    name: str
    limits: Limits | None = None


class EngineSpec(Model):
    limits: Limits | None = None
    parts: list[Part] = []


class Engine(CustomResource[EngineSpec], group="example.com", version="v1"):
    """Null is a value of its limits."""


@pytest.mark.parametrize("model", [Engine, dict])
@in_virtual_time
async def test_where_null_is_a_value_it_is_applied_once_more(clock: VirtualClock, model: Any) -> None:
    said: list[Any] = [{"limits": None}, {"limits": {}}, {"limits": {"cpu": "1"}}]

    class Nullable(MemoryApi):
        async def send(self, operation: Operation[Any]) -> Any:
            answer = {"metadata": {"name": "home"}, "spec": said.pop(0)}
            return answer if model is dict else msgspec.convert(answer, Engine)

    api = Nullable(MemoryServer(), clock)
    for sent in (Engine("home", EngineSpec(Limits())), Engine("home", EngineSpec(Limits("1")))):
        body = body_of(sent)
        made = await send_apply(api, ENGINES, "home", "default", body, owner="us", model=model, force=True)
        assert (made["spec"] if model is dict else msgspec.to_builtins(made.spec)) == body["spec"]
    assert said == []


PARTS = [{"name": "theirs"}, {"name": "a", "limits": {}}]


@pytest.mark.parametrize("model", [Engine, dict])
@pytest.mark.parametrize(
    ("sent", "answer", "times"),
    [
        ({"parts": PARTS[1:]}, {"parts": PARTS}, 1),
        ({"parts": PARTS[1:]}, {"parts": [*PARTS[:1], {"name": "a", "limits": None}]}, 2),
        ({"other": {}}, {}, 1),
        ({"parts": [{"name": "a"}]}, {"parts": PARTS}, 1),
    ],
    ids=["behind somebody else's", "null behind somebody else's", "dropped", "not empty"],
)
@in_virtual_time
async def test_what_is_not_null_is_applied_once(
    clock: VirtualClock, model: Any, sent: Any, answer: Any, times: int
) -> None:
    class Counting(MemoryApi):
        applies = 0

        async def send(self, operation: Operation[Any]) -> Any:
            self.applies += 1
            made = {"metadata": {"name": "home"}, "spec": answer}
            return made if model is dict else msgspec.convert(made, Engine)

    api = Counting(MemoryServer(), clock)
    body = {**engine(), "spec": sent}
    await send_apply(api, ENGINES, "home", "default", body, owner="us", model=model, force=True)
    assert api.applies == times
