"""A map that is applied empty once its content was: of it an API server makes null, which the child is spared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import pytest
import pytest_asyncio

from localcluster import ControlPlane
from shardsdk import CustomResource, Model
from shardsdk.errors import Conflict, Invalid
from shardsdk.kinds import Length, ListType, Rule, body_of, crd_of
from shardsdk.kube.access import load_access
from shardsdk.kube.api import Operation
from shardsdk.kube.client import Client
from shardsdk.reconcile.serverside import send_apply
from tests.integration.served import served


class Limits(Model, rules=[Rule("!has(self.cpu) || self.cpu != 'none'", "no cpu")]):
    cpu: str = ""
    tags: dict[str, str] = {}


class Entry(Model):
    name: str
    limits: Limits | None = None


class Lists(Model):
    entries: Annotated[list[Entry], ListType("map", ("name",))]
    names: frozenset[str]
    title: str


class EngineSpec(Model, rules=[Rule("self.image != 'cpu' || has(self.limits.cpu)", "no cpu")]):
    needed: Limits
    image: Annotated[str, Length(high=3)]
    limits: Limits = msgspec.field(default_factory=Limits)
    maybe: Limits | None = None
    named: dict[str, Limits] = {}
    entries: Annotated[list[Entry], ListType("map", ("name",))] = []
    free: dict[str, Any] = {}
    lists: Lists | None = None


class Engine(CustomResource[EngineSpec], group="emptied.example.com", version="v1"):
    """With objects in its spec, all of which may be empty."""


ONE, NONE = Limits("1", {"a": "1"}), Limits()
CASES = {
    "with a default": (EngineSpec(NONE, "a", ONE), EngineSpec(NONE, "b", NONE)),
    "required": (EngineSpec(ONE, "a"), EngineSpec(NONE, "b")),
    "where null may be": (EngineSpec(NONE, "a", maybe=ONE), EngineSpec(NONE, "b", maybe=NONE)),
    "in a map": (
        EngineSpec(NONE, "a", named={"a.b/c~d": ONE, "a[0]": ONE}),
        EngineSpec(NONE, "b", named={"a.b/c~d": NONE, "a[0]": NONE}),
    ),
    "in a list with keys": (
        EngineSpec(NONE, "a", entries=[Entry("a", ONE), Entry("b", ONE), Entry("c", ONE)]),
        EngineSpec(NONE, "b", entries=[Entry("b", NONE), Entry("a", ONE), Entry("c", NONE)]),
    ),
    "required lists": (
        EngineSpec(NONE, "a", lists=Lists([Entry("a")], frozenset({"a"}), "a")),
        EngineSpec(NONE, "b", lists=Lists([], frozenset(), "a")),
    ),
    "of any content": (EngineSpec(NONE, "a", free={"a": {"b": 1}}), EngineSpec(NONE, "b", free={"a": {}})),
    "several": (EngineSpec(ONE, "a", ONE, ONE), EngineSpec(NONE, "b", NONE, NONE)),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """With the kind served."""
    async with served(control_plane, crd_of(Engine)):
        yield control_plane


@pytest_asyncio.fixture
async def client(plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(await load_access(str(plane.admin_kubeconfig))) as client:
        yield client


async def apply(client: Client, namespace: str, spec: Any, owner: str = "engines") -> Engine:
    body = body_of(Engine("a", EngineSpec(NONE, ""))) | {
        "spec": spec if isinstance(spec, dict) else msgspec.to_builtins(spec)
    }
    return await send_apply(client, Engine.resource, "a", namespace, body, owner=owner, model=Engine, force=True)


@pytest.mark.parametrize("case", CASES)
async def test_a_child_follows_when_what_was_set_is_empty_again(client: Client, namespace: str, case: str) -> None:
    before, after = CASES[case]
    for spec in (before, after, before, after, after):
        assert (await apply(client, namespace, spec)).spec == spec
    there = await client.get(Engine.resource, "a", namespace, model=dict)
    owners = [(entry["manager"], entry["operation"]) for entry in there["metadata"]["managedFields"]]
    assert owners == [("engines", "Apply")]


async def test_what_others_have_in_the_map_stays(client: Client, namespace: str) -> None:
    await apply(client, namespace, EngineSpec(NONE, "a", ONE))
    await apply(client, namespace, {"limits": {"tags": {"b": "2"}}}, "somebody")
    assert (await apply(client, namespace, EngineSpec(NONE, "b"))).spec == EngineSpec(NONE, "b", Limits("", {"b": "2"}))


async def test_what_is_refused_for_more_than_that_changes_nothing(client: Client, namespace: str) -> None:
    made = await apply(client, namespace, EngineSpec(NONE, "a", ONE))
    with pytest.raises(Invalid, match=r"spec\.image: Too long"):
        await apply(client, namespace, {"needed": {}, "image": "long", "limits": {}})
    there = await client.get(Engine.resource, "a", namespace, model=Engine)
    assert (there.spec, there.metadata.resource_version) == (made.spec, made.metadata.resource_version)


async def test_what_may_not_be_empty_beside_what_is_there_is_told_so(client: Client, namespace: str) -> None:
    await apply(client, namespace, EngineSpec(NONE, "cpu", ONE))
    with pytest.raises(Invalid, match=r"spec\.limits: .* — emptying /spec/limits first, .* refused as well: .*no cpu"):
        await apply(client, namespace, EngineSpec(NONE, "b"))


async def test_what_stands_behind_an_entry_of_others_is_applied_once(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(client, namespace, {"needed": {}, "image": "a", "entries": [{"name": "z"}]}, "somebody")
    sent, send = [], client.send

    async def counted(operation: Operation[Any]) -> Any:
        sent.append(operation.verb)
        return await send(operation)

    monkeypatch.setattr(client, "send", counted)
    await apply(client, namespace, EngineSpec(NONE, "a", entries=[Entry("a", NONE)]))
    assert sent == ["patch"]


async def test_what_somebody_puts_into_it_meanwhile_is_a_conflict(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(client, namespace, EngineSpec(NONE, "a", ONE))
    send = client.send

    async def interrupted(operation: Operation[Any]) -> Any:
        answer = await send(operation)
        if operation.verb == "get":
            monkeypatch.undo()
            await apply(client, namespace, {"limits": {"tags": {"b": "2"}}}, "somebody")
        return answer

    monkeypatch.setattr(client, "send", interrupted)
    with pytest.raises(Conflict):
        await apply(client, namespace, EngineSpec(NONE, "b"))
    assert (await apply(client, namespace, EngineSpec(NONE, "b"))).spec == EngineSpec(NONE, "b", Limits("", {"b": "2"}))
