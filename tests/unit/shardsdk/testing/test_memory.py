"""The API server in memory behaves as the real one where the project depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from shardsdk.errors import (
    AlreadyExists,
    BadRequest,
    ConfigurationError,
    Conflict,
    ConnectionFailed,
    Gone,
    Invalid,
    MethodNotAllowed,
    NotFound,
)
from shardsdk.kube.api import Api, PatchKind, WatchEvent, WatchKind
from shardsdk.kube.reflector import Reflector
from shardsdk.kube.selectors import Selector, absent, differs, equals, exists, join, not_in, within
from shardsdk.protocol.objects import PartialObject, Resource
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import Fault, MemoryApi
from shardsdk.testing.patching import apply_json_patch, merge
from shardsdk.testing.selecting import matches
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")


def body(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}}


def create(server: MemoryServer, name: str, **labels: str) -> dict[str, Any]:
    return server.create(CONFIGMAPS, body(name, **labels))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (equals("a", "1"), True),
        (equals("a", "2"), False),
        (exists("a"), True),
        (absent("a"), False),
        (absent("b"), True),
        ("b!=1", True),
        (within("a", ["1", "2"]), True),
        (not_in("a", ["1"]), False),
        (not_in("b", ["1"]), True),
        (join(exists("b"), not_in("b", ["1"])), False),
        ("", True),
    ],
)
def test_label_selectors_select_as_on_a_real_server(selector: str, expected: bool) -> None:
    assert matches(body("x", a="1"), None, Selector(selector)) is expected


def test_field_selectors_and_namespaces_select() -> None:
    assert matches(body("x"), "default", Selector(fields="metadata.name=x"))
    assert not matches(body("x"), None, Selector(fields="metadata.namespace!=default"))
    assert not matches(body("x"), "other", Selector())


@pytest.mark.parametrize("name", ["a,b", "c=d", r"e\f", "n!=o", "==", "\\", r"\,=", "!", "x"])
@in_virtual_time
async def test_an_object_is_found_whatever_it_is_called(clock: VirtualClock, name: str) -> None:
    """RBAC takes almost any name."""
    roles = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
    server = MemoryServer()
    server.create(roles, body("other"))
    server.create(roles, body(name))
    found = await MemoryApi(server, clock).find(roles, name, "default")
    assert found is not None
    assert found.metadata.name == name
    others = Selector(fields=join(differs("metadata.name", name), equals("metadata.namespace", "default")))
    assert not matches(body(name), None, others)
    assert matches(body("other"), None, others)


@pytest.mark.parametrize("value", ["a=b", "a\\", r"a\b", "a,b"])
def test_a_field_selector_whose_value_is_bare_is_refused(value: str) -> None:
    with pytest.raises(BadRequest):
        matches(body("x"), None, Selector(fields=f"metadata.name={value}"))


def test_writes_are_conditional_on_the_version_they_name() -> None:
    server = MemoryServer()
    made = create(server, "x")
    changed = server.patch(CONFIGMAPS, "x", "default", {"data": {"k": "v"}})
    assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"a": "b"}}}
    with pytest.raises(Conflict):
        server.patch(CONFIGMAPS, "x", "default", stale)
    with pytest.raises(Conflict):
        server.patch(
            CONFIGMAPS,
            "x",
            "default",
            [{"op": "add", "path": "/metadata/resourceVersion", "value": "1"}, {"op": "add", "path": "/a", "value": 1}],
            PatchKind.JSON,
        )
    with pytest.raises(Conflict):
        server.delete(CONFIGMAPS, "x", "default", resource_version="1")
    with pytest.raises(AlreadyExists):
        create(server, "x")
    with pytest.raises(NotFound):
        server.patch(CONFIGMAPS, "y", "default", {})


def test_a_write_that_changes_nothing_makes_no_version() -> None:
    server = MemoryServer()
    made = create(server, "x", a="1")
    again = server.patch(CONFIGMAPS, "x", "default", {"metadata": {"labels": {"a": "1"}}})
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_finalizers_hold_an_object_until_the_last_is_gone() -> None:
    server = MemoryServer()
    server.create(CONFIGMAPS, {"metadata": {"name": "x", "namespace": "default", "finalizers": ["x.com/f"]}})
    server.delete(CONFIGMAPS, "x", "default")
    assert server.get(CONFIGMAPS, "x", "default")["metadata"]["deletionTimestamp"]
    server.patch(CONFIGMAPS, "x", "default", {"metadata": {"finalizers": None}})
    assert server.find(CONFIGMAPS, "x", "default") is None


def test_generate_name_gives_a_name_after_admission() -> None:
    seen: list[str | None] = []

    def admit(verb: str, resource: Resource, old: object, new: dict[str, Any]) -> dict[str, Any]:
        seen.append(new["metadata"].get("name"))
        return new

    server = MemoryServer(admit=admit)
    made = server.create(CONFIGMAPS, {"metadata": {"generateName": "x-", "namespace": "default"}})
    assert made["metadata"]["name"].startswith("x-")
    assert seen == [None]


def test_patches_apply_as_their_rfcs_say_but_where_api_servers_do_not() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": 1}, {"a": {"b": None}, "d": 2}) == {"a": {"c": 2}, "d": 2}
    operations: list[Mapping[str, Any]] = [
        {"op": "test", "path": "/a/0", "value": 1},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "add", "path": "/labels/x~1y", "value": "z"},
        {"op": "remove", "path": "/b"},
    ]
    assert apply_json_patch({"a": [1, 2], "labels": {}, "b": 1}, operations) == {"a": [1, 2, 3], "labels": {"x/y": "z"}}
    assert merge({}, {"a": [{"b": None, "c": 1}, None]}) == {"a": [{"c": 1}, None]}
    assert apply_json_patch({}, [{"op": "replace", "path": "/missing", "value": 1}]) == {"missing": 1}
    assert apply_json_patch({}, [{"op": "copy", "from": "/missing", "path": "/a"}]) == {"a": None}
    with pytest.raises(Invalid):
        apply_json_patch({}, [{"op": "replace", "path": "/missing/too", "value": 1}])


@in_virtual_time
async def test_a_watch_of_a_selection_sees_objects_enter_change_and_leave(clock: VirtualClock) -> None:
    server = MemoryServer()
    api = MemoryApi(server, clock)
    seen: list[tuple[WatchKind, str]] = []

    async def follow() -> None:
        event: WatchEvent[PartialObject]
        async for event in api.watch(CONFIGMAPS, selector=Selector(equals("a", "1")), initial_events=True):
            name = event.object.metadata.name if event.object else ""
            seen.append((event.kind, name))

    create(server, "before", a="1")
    watching = asyncio.create_task(follow())
    await clock.sleep(1)
    create(server, "foreign", a="2")
    server.patch(CONFIGMAPS, "foreign", "default", {"metadata": {"labels": {"a": "1"}}})
    server.patch(CONFIGMAPS, "foreign", "default", {"metadata": {"labels": {"b": "1"}}})
    server.patch(CONFIGMAPS, "foreign", "default", {"metadata": {"labels": {"a": None}}})
    server.delete(CONFIGMAPS, "before", "default")
    await clock.sleep(1)
    watching.cancel()
    assert seen == [
        (WatchKind.ADDED, "before"),
        (WatchKind.BOOKMARK, ""),
        (WatchKind.ADDED, "foreign"),
        (WatchKind.MODIFIED, "foreign"),
        (WatchKind.DELETED, "foreign"),
        (WatchKind.DELETED, "before"),
    ]


@in_virtual_time
async def test_a_write_whose_answer_is_lost_has_happened_and_settles_in_time(clock: VirtualClock) -> None:
    server = MemoryServer()
    api = MemoryApi(server, clock)
    api.fault = Fault.UNANSWERED
    with pytest.raises(ConnectionFailed):
        await api.create(CONFIGMAPS, body("x"))
    assert server.find(CONFIGMAPS, "x", "default")
    await api.writes_settled()
    assert api.inflight_writes == 0
    assert clock.monotonic() == pytest.approx(30)


@in_virtual_time
async def test_a_cancelled_write_still_happens(clock: VirtualClock) -> None:
    server = MemoryServer()
    api = MemoryApi(server, clock, delay=lambda: 1.0)
    writing = asyncio.create_task(api.create(CONFIGMAPS, body("x")))
    await clock.sleep(0.5)
    writing.cancel()
    assert api.inflight_writes == 1
    await api.writes_settled()
    assert server.find(CONFIGMAPS, "x", "default")


@in_virtual_time
async def test_old_versions_are_gone(clock: VirtualClock) -> None:
    server = MemoryServer()
    for name in "xy":
        create(server, name)
    server.compacted = server.version
    with pytest.raises(Gone):
        async for _ in MemoryApi(server, clock).watch(CONFIGMAPS, resource_version="1"):
            pass


@in_virtual_time
async def test_a_reflector_follows_it_through_silence_and_compaction(clock: VirtualClock) -> None:
    server = MemoryServer()
    client = MemoryApi(server, clock)
    api: Api = client
    reflector: Reflector[PartialObject] = Reflector(api, CONFIGMAPS, clock=clock, rng=Random(1))
    running = asyncio.create_task(reflector.run())
    for number in range(1000):
        create(server, f"x{number}")
    await clock.sleep(1)
    client.fault = Fault.LOST
    server.delete(CONFIGMAPS, "x1", "default")
    server.patch(CONFIGMAPS, "x2", "default", {"data": {"k": "v"}})
    server.compacted = server.version
    await clock.sleep(300)
    client.fault = Fault.NONE
    await clock.sleep(300)
    assert len(reflector.store) == 999
    running.cancel()


@in_virtual_time
async def test_an_object_in_no_namespace_is_refused_as_by_a_cluster(clock: VirtualClock) -> None:
    api, sites = MemoryApi(MemoryServer(), clock), Resource("example.com", "v1", "sites", "Site")
    for resource, expected in ((CONFIGMAPS, MethodNotAllowed), (sites, NotFound)):
        with pytest.raises(expected, match=r"live in namespaces, and none was given: pass namespace="):
            await api.create(resource, {"metadata": {"name": "x"}})
    for nowhere in (api.get(CONFIGMAPS, "x"), api.patch(CONFIGMAPS, "x", None, {}), api.delete(CONFIGMAPS, "x")):
        with pytest.raises(NotFound, match="pass namespace="):
            await nowhere
    assert [page async for page in api.pages(CONFIGMAPS)] in ([], [[]])


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@in_virtual_time
async def test_a_number_that_json_does_not_have_is_refused_as_by_a_client(clock: VirtualClock, number: float) -> None:
    server = MemoryServer()
    create(server, "x")
    api = MemoryApi(server, clock)
    with pytest.raises(ConfigurationError, match=rf"data\.a is {number}, and JSON has no such number"):
        await api.patch(CONFIGMAPS, "x", "default", {"data": {"a": number, "b": None}})
    assert api.writes == []
