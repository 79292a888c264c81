"""What the client of a reconcile does to the writes that go through it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from shardsdk.cache.objects import Request, controller_reference, metadata_of
from shardsdk.errors import ConfigurationError, Conflict, FenceClosed, TooManyWrites
from shardsdk.kube.api import Api, PatchKind
from shardsdk.protocol.objects import GroupResource, PartialObject
from shardsdk.reconcile.ownapi import OwnApi
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.shard_rig import CONFIGMAPS, ME, RING, SECRETS, Rig


class Notes:
    def __init__(self) -> None:
        self.written: list[str] = []
        self.doubted = 0

    def wrote(self, resource: GroupResource, request: Request, version: str) -> None:
        self.written.append(f"{resource} {request}@{version}")

    def deleting(self, resource: GroupResource, request: Request) -> Callable[[], None]:
        return lambda: None

    def outcome_unknown(self) -> None:
        self.doubted += 1


async def own_api(rig: Rig, notes: Notes | None = None) -> tuple[Api, Any]:
    rig.secret("owner")
    owner = metadata_of(await rig.api.get(SECRETS, "owner", "default", model=PartialObject))
    own = OwnApi(rig.api, ME, SECRETS, owner, frozenset({CONFIGMAPS.group_resource}), notes or Notes())
    return own, owner


def child_body(owner: Any, name: str = "child", **changes: Any) -> dict[str, Any]:
    reference = {**controller_reference(SECRETS, owner), **changes}
    return {"metadata": {"name": name, "namespace": "default", "ownerReferences": [reference]}}


@in_virtual_time
async def test_a_child_gets_the_label_of_this_shard(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api, owner = await own_api(rig)
    body = child_body(owner)
    await api.create(CONFIGMAPS, body, "default")
    assert rig.labels("child", CONFIGMAPS) == {RING.shard: "shard-1"}
    assert "labels" not in body["metadata"]  # the caller's body stays as it was


@pytest.mark.parametrize("nothing", ["", None])
@in_virtual_time
async def test_no_version_is_no_way_around_the_condition(clock: VirtualClock, nothing: str | None) -> None:
    """Models write an empty resourceVersion for none, and the API server takes that for any."""
    rig = Rig(clock)
    api, _ = await own_api(rig)
    rig.server.patch(SECRETS, "owner", "default", {"data": {"k": "newer"}})
    body = {"metadata": {"name": "owner", "namespace": "default", "resourceVersion": nothing}}
    with pytest.raises(Conflict):
        await api.update(SECRETS, body)
    with pytest.raises(Conflict):
        await api.patch(SECRETS, "owner", "default", body)


@in_virtual_time
async def test_an_applied_child_gets_it_too_and_keeps_it_when_replaced(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api, owner = await own_api(rig)
    child = {"apiVersion": "v1", "kind": "ConfigMap", **child_body(owner)}
    await api.patch(CONFIGMAPS, "child", "default", child, kind=PatchKind.APPLY, field_manager="me")
    assert rig.labels("child", CONFIGMAPS) == {RING.shard: "shard-1"}
    await api.update(CONFIGMAPS, {**child_body(owner), "data": {"k": "v"}})
    assert rig.labels("child", CONFIGMAPS) == {RING.shard: "shard-1"}


@in_virtual_time
async def test_what_is_not_its_child_is_not_labelled(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api, owner = await own_api(rig)
    await api.create(CONFIGMAPS, child_body(owner, "foreign", uid="another"), "default")
    await api.create(CONFIGMAPS, child_body(owner, "not-controlled", controller=False), "default")
    await api.create(SECRETS, child_body(owner, "not-listed"), "default")
    assert rig.labels("foreign", CONFIGMAPS) == rig.labels("not-controlled", CONFIGMAPS) == {}
    assert rig.labels("not-listed") == {}


@pytest.mark.parametrize("kind", [PatchKind.MERGE, PatchKind.JSON, PatchKind.APPLY])
@in_virtual_time
async def test_the_main_object_is_written_only_as_it_was_read(clock: VirtualClock, kind: PatchKind) -> None:
    rig = Rig(clock)
    api, _ = await own_api(rig)
    operations = [{"op": "add", "path": "/data", "value": {"k": "v"}}]
    body: Any = operations if kind is PatchKind.JSON else {"apiVersion": "v1", "kind": "Secret", "data": {"k": "v"}}
    rig.server.patch(SECRETS, "owner", "default", {"type": "theirs"})
    with pytest.raises(Conflict):
        await api.patch(SECRETS, "owner", "default", body, kind=kind, field_manager="me")
    with pytest.raises(Conflict):
        await api.update(SECRETS, {"metadata": {"name": "owner", "namespace": "default"}, "data": {}})
    with pytest.raises(Conflict):
        await api.delete(SECRETS, "owner", "default")
    assert "data" not in rig.server.get(SECRETS, "owner", "default")


@in_virtual_time
async def test_a_version_in_a_json_patch_is_no_way_around_it(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api, _ = await own_api(rig)
    newer = rig.server.patch(SECRETS, "owner", "default", {"type": "theirs"})["metadata"]["resourceVersion"]
    operations = [{"op": "add", "path": "/metadata/resourceVersion", "value": newer}]
    with pytest.raises(Conflict):
        await api.patch(SECRETS, "owner", "default", operations, kind=PatchKind.JSON)


@in_virtual_time
async def test_its_own_last_write_is_what_the_next_one_builds_on(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api, _ = await own_api(rig)
    for value in ("1", "2", "3"):
        await api.patch(SECRETS, "owner", "default", {"data": {"k": value}})
    await api.update(SECRETS, {"metadata": {"name": "owner", "namespace": "default"}, "data": {"k": "4"}})
    assert rig.server.get(SECRETS, "owner", "default")["data"] == {"k": "4"}
    assert rig.labels("owner") == {RING.shard: "shard-1"}
    await api.delete(SECRETS, "owner", "default")


@in_virtual_time
async def test_a_write_that_met_a_conflict_is_not_one_of_those_it_may_send(clock: VirtualClock) -> None:
    """Whoever sends it anew has that counted; else half of the allowance would go to what changed nothing."""
    rig = Rig(clock)
    _, owner = await own_api(rig)
    controlled = frozenset({CONFIGMAPS.group_resource})
    api = OwnApi(rig.api, ME, SECRETS, owner, controlled, Notes(), max_writes=2)
    newer = rig.server.patch(SECRETS, "owner", "default", {"type": "theirs"})["metadata"]["resourceVersion"]
    for _ in range(3):
        with pytest.raises(Conflict):
            await api.patch(SECRETS, "owner", "default", {"data": {"k": "v"}})
        assert api.writes_left == 2
    await api.patch(SECRETS, "owner", "default", {"metadata": {"resourceVersion": newer}, "data": {"k": "v"}})
    await api.create(CONFIGMAPS, child_body(owner), "default")
    with pytest.raises(TooManyWrites):
        await api.create(CONFIGMAPS, child_body(owner, "other"), "default")


@in_virtual_time
async def test_a_version_that_the_caller_names_is_left_alone(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api, _ = await own_api(rig)
    newer = rig.server.patch(SECRETS, "owner", "default", {"type": "theirs"})["metadata"]["resourceVersion"]
    await api.patch(SECRETS, "owner", "default", {"metadata": {"resourceVersion": newer}, "data": {"k": "v"}})
    assert rig.server.get(SECRETS, "owner", "default")["data"] == {"k": "v"}


@in_virtual_time
async def test_other_objects_are_written_as_the_caller_says(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api, _ = await own_api(rig)
    rig.secret("other", shard=None)
    rig.server.patch(SECRETS, "other", "default", {"type": "theirs"})
    await api.patch(SECRETS, "other", "default", {"data": {"k": "v"}})
    await api.delete(SECRETS, "other", "default")


@in_virtual_time
async def test_writes_are_noted_with_their_versions(clock: VirtualClock) -> None:
    rig, notes = Rig(clock), Notes()
    api, owner = await own_api(rig, notes)
    await api.create(CONFIGMAPS, child_body(owner), "default")
    await api.patch(SECRETS, "owner", "default", {"data": {"k": "v"}})
    assert notes.written == ["configmaps default/child@3", "secrets default/owner@4"]
    assert notes.doubted == 0


@in_virtual_time
async def test_a_fence_that_is_closed_leaves_no_doubt(clock: VirtualClock) -> None:
    rig, notes = Rig(clock), Notes()
    api, owner = await own_api(rig, notes)
    rig.hold.seconds = 0
    with pytest.raises(FenceClosed):
        await api.create(CONFIGMAPS, child_body(owner), "default")
    assert notes.doubted == 0


@in_virtual_time
async def test_an_answer_that_shows_no_version_leaves_doubt(clock: VirtualClock) -> None:
    rig, notes = Rig(clock), Notes()
    api, owner = await own_api(rig, notes)

    class Blind(Struct):
        kind: str = ""

    await api.create(CONFIGMAPS, child_body(owner), "default", model=Blind)
    assert notes.doubted == 1


@in_virtual_time
async def test_a_write_on_another_event_loop_is_refused_before_it_is_noted(clock: VirtualClock) -> None:
    rig = Rig(clock)
    api, owner = await own_api(rig)

    async def write() -> None:
        with pytest.raises(ConfigurationError, match=r"'owner' calls its api on another event loop.* ctx\.run"):
            await api.create(CONFIGMAPS, child_body(owner), "default")
        with pytest.raises(ConfigurationError, match="another event loop"):
            await api.raw("DELETE", "/api/v1/namespaces/default/configmaps/child")
        with pytest.raises(ConfigurationError, match="another event loop"):
            await api.get(CONFIGMAPS, "child", "default")

    await asyncio.to_thread(asyncio.run, write())
    await api.create(CONFIGMAPS, child_body(owner), "default")
