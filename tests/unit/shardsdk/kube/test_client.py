"""The client against a server on the loopback interface: what it sends, and what it makes of the answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from shardsdk.errors import (
    ConfigurationError,
    Conflict,
    ConnectionFailed,
    Forbidden,
    NotFound,
    ServerError,
    StreamInterrupted,
    TooManyRequests,
    Unauthorized,
)
from shardsdk.kube import reading, received, sessions
from shardsdk.kube.api import PatchKind
from shardsdk.kube.client import Client
from shardsdk.kube.selectors import Selector, equals
from shardsdk.kube.server import direct_access
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, NAMESPACES, GroupResource, Resource
from tests.kube_fakes import CONFIGMAPS, InstantClock
from tests.kube_server import (
    breaks_off,
    config_map,
    hangs,
    page,
    refuses,
    says,
    serving,
    streams,
    talking,
)

SITES = Resource("example.com", "v1", "sites", "Site")


async def test_a_request_says_who_it_is_and_what_it_wants() -> None:
    async with talking(says(config_map("a"))) as (client, server):
        found = await client.get(CONFIGMAPS, "a", "default")
        assert found.metadata.resource_version == "1"
        seen = server.seen[0]
        assert (seen.method, seen.path) == ("GET", "/api/v1/namespaces/default/configmaps/a")
        assert seen.headers["Authorization"] == "Bearer secret"
        assert seen.headers["User-Agent"].startswith("shardsdk/")
        assert seen.headers["Accept"] == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        assert seen.headers["Accept-Encoding"] == "identity"


async def test_a_model_of_ones_own_gets_the_whole_object() -> None:
    class Data(msgspec.Struct):
        data: dict[str, str]

    body = config_map("a", data={"k": "v"}, unknown={"more": 1})
    async with talking(says(body)) as (client, server):
        assert (await client.get(CONFIGMAPS, "a", "default", model=Data)).data == {"k": "v"}
        assert (await client.get(CONFIGMAPS, "a", "default", model=dict))["unknown"] == {"more": 1}
        assert [each.headers["Accept"] for each in server.seen] == ["application/json"] * 2


async def test_a_class_with_from_dict_is_a_model_too() -> None:
    class Typed:
        def __init__(self, name: str) -> None:
            self.name = name

        @classmethod
        def from_dict(cls, body: dict[str, Any]) -> Typed:
            return cls(body["metadata"]["name"])

    async with talking(says(config_map("a")), says(page(["a", "b"]))) as (client, _):
        assert (await client.get(CONFIGMAPS, "a", "default", model=Typed)).name == "a"
        names = [each.name async for things in client.pages(CONFIGMAPS, model=Typed) for each in things]
        assert names == ["a", "b"]


async def test_an_empty_name_never_becomes_a_request() -> None:
    async with talking(says({})) as (client, server):
        with pytest.raises(ConfigurationError, match="all of them"):
            await client.delete(CONFIGMAPS, "", "default")
        with pytest.raises(ConfigurationError, match="all of them"):
            await client.update(CONFIGMAPS, {"metadata": {"namespace": "default"}})
        assert server.seen == []


async def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    async with talking(says(config_map("a"))) as (client, server):
        await client.get(CONFIGMAPS, "../secrets?x=1", "default")
        assert server.seen[0].path == "/api/v1/namespaces/default/configmaps/..%2Fsecrets%3Fx%3D1"
        assert server.seen[0].query == {}


async def test_find_needs_no_more_than_list_and_reads_consistently() -> None:
    async with talking(says(page(["a"])), says(page([]))) as (client, server):
        found = await client.find(CONFIGMAPS, "a", "default")
        assert found is not None
        assert found.metadata.name == "a"
        assert await client.find(CONFIGMAPS, "b", "default") is None
        assert server.seen[0].query == {"fieldSelector": "metadata.name=a"}


async def test_pages_are_one_snapshot() -> None:
    versions: list[str] = []
    answers = says(page(["a", "b"], token="more")), says(page(["c"]))
    async with talking(*answers) as (client, server):
        selector = Selector(labels="team notin (a,b)", fields=equals("metadata.namespace", "x"))
        pages = [
            [each.metadata.name for each in things]
            async for things in client.pages(CONFIGMAPS, selector=selector, limit=2, on_version=versions.append)
        ]
        assert pages == [["a", "b"], ["c"]]
        assert versions == ["10"]
        first, second = server.seen
        assert first.query == {
            "labelSelector": "team notin (a,b)",
            "fieldSelector": "metadata.namespace=x",
            "limit": "2",
        }
        assert second.query == {**first.query, "continue": "more"}
        assert first.headers["Accept"].startswith("application/json;as=PartialObjectMetadataList")


async def test_an_empty_list_may_be_null() -> None:
    versions: list[str] = []
    async with talking(says(page([]))) as (client, _):
        assert [each async for each in client.pages(CONFIGMAPS, on_version=versions.append)] == []
        assert versions == ["10"]


async def test_a_snapshot_that_runs_out_is_no_list() -> None:
    gone = refuses(410, "Expired", "The provided continue parameter is too old", metadata={"continue": "inconsistent"})
    async with talking(says(page(["a"], token="more")), gone) as (client, _):
        with pytest.raises(StreamInterrupted, match="snapshot"):
            _ = [each async for each in client.pages(CONFIGMAPS)]


async def test_a_large_page_is_decoded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE_AT_ONCE_BYTES", 1_000)
    monkeypatch.setattr(reading, "SLICE_BYTES", 500)
    names = [f"o{number}" for number in range(50)]
    async with talking(says(page(names))) as (client, _):
        pages = [things async for things in client.pages(CONFIGMAPS, model=dict)]
        assert [each["metadata"]["name"] for each in pages[0]] == names


async def test_an_object_that_does_not_fit_does_not_hold_up_the_others(caplog: pytest.LogCaptureFixture) -> None:
    odd = page(["a", "odd", "b"])
    odd["items"][1]["metadata"]["labels"] = ["not", "a", "map"]
    async with talking(says(odd)) as (client, _):
        names = [each.metadata.name async for things in client.pages(CONFIGMAPS) for each in things]
        assert names == ["a", "b"]
    assert "left out" in caplog.text


async def test_an_answer_that_is_no_json_is_the_servers_error() -> None:
    async with talking(streams(b"<html>")) as (client, _):
        with pytest.raises(ServerError, match="cannot be read"):
            await client.get(CONFIGMAPS, "a", "default")


async def test_writes_say_what_they_mean() -> None:
    async with talking(says(config_map("a"), 201)) as (client, server):
        await client.create(CONFIGMAPS, {"metadata": {"name": "a"}}, "default", field_manager="me")
        await client.patch(CONFIGMAPS, "a", "default", {"metadata": {"labels": {"x": None}}})
        await client.patch(CONFIGMAPS, "a", "default", [{"op": "remove", "path": "/x"}], kind=PatchKind.JSON)
        applied = {"apiVersion": "v1", "kind": "ConfigMap"}
        await client.patch(CONFIGMAPS, "a", "default", applied, kind=PatchKind.APPLY, field_manager="me", force=True)
        await client.patch(CLUSTERRINGS, "r", None, {"status": {}}, subresource="status")
        await client.update(LEASES, {"metadata": {"name": "l", "namespace": "n", "resourceVersion": "7"}}, model=Lease)
        await client.delete(CONFIGMAPS, "a", "default", resource_version="7", uid="u", propagation="Background")
        create, merge, json_patch, apply, status, update, delete = server.seen
        assert (create.method, create.path) == ("POST", "/api/v1/namespaces/default/configmaps")
        assert create.query["fieldManager"] == "me"
        assert (merge.method, merge.headers["Content-Type"]) == ("PATCH", "application/merge-patch+json")
        assert merge.json == {"metadata": {"labels": {"x": None}}}
        assert json_patch.headers["Content-Type"] == "application/json-patch+json"
        assert apply.headers["Content-Type"] == "application/apply-patch+yaml"
        assert (apply.query["fieldManager"], apply.query["force"]) == ("me", "true")
        assert status.path == "/apis/sharding.timebertt.dev/v1alpha1/clusterrings/r/status"
        assert (update.method, update.path) == ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/l")
        assert update.headers["Accept"] == "application/json"
        assert delete.method == "DELETE"
        assert delete.json["preconditions"] == {"resourceVersion": "7", "uid": "u"}
        assert delete.json["propagationPolicy"] == "Background"


async def test_an_object_is_written_in_the_namespace_that_it_names_unless_another_is_given() -> None:
    """As `set_controller_reference` and every manifest have it; one that is given beside the body goes first."""
    async with talking(says(config_map("a"), 201)) as (client, server):
        body = {"metadata": {"name": "a", "namespace": "team"}}
        await client.create(CONFIGMAPS, body)
        await client.create(CONFIGMAPS, body, "other")
        await client.create(NAMESPACES, body)
        await client.update(CONFIGMAPS, body)
        await client.update(CONFIGMAPS, {"metadata": {"name": "a"}}, "other")
        paths = [each.path for each in server.seen]
    assert paths == [
        "/api/v1/namespaces/team/configmaps",
        "/api/v1/namespaces/other/configmaps",
        "/api/v1/namespaces",
        "/api/v1/namespaces/team/configmaps/a",
        "/api/v1/namespaces/other/configmaps/a",
    ]


async def test_what_is_written_whole_names_its_type() -> None:
    """An API server answers `Object 'Kind' is missing` to a custom resource that does not."""
    async with talking(says(config_map("a"), 201)) as (client, server):
        await client.create(SITES, {"metadata": {"name": "a"}}, "team")
        await client.update(SITES, {"metadata": {"name": "a", "namespace": "team"}})
        await client.create(SITES, {"apiVersion": "example.com/v2", "kind": "Site", "metadata": {"name": "a"}}, "team")
        said = [each.json for each in server.seen]
    assert [(each["apiVersion"], each["kind"]) for each in said] == [
        ("example.com/v1", "Site"),
        ("example.com/v1", "Site"),
        ("example.com/v2", "Site"),
    ]


async def test_permissions_are_asked_for_without_writing() -> None:
    async with talking(says({"status": {"allowed": True}}, 201), says({"status": {}}, 201)) as (client, server):
        assert await client.allowed("patch", GroupResource("apps", "deployments"), subresource="status")
        assert not await client.allowed("list", GroupResource("", "secrets"), namespace="n")
        attributes = server.seen[0].json["spec"]["resourceAttributes"]
        assert attributes["verb"] == "patch"
        assert (attributes["group"], attributes["resource"], attributes["subresource"]) == (
            "apps",
            "deployments",
            "status",
        )


async def test_discovery_prefers_the_preferred_version_and_tries_the_others() -> None:
    group = says({"preferredVersion": {"version": "v2"}, "versions": [{"version": "v2"}, {"version": "v1"}]})
    nothing = says({"resources": None})
    old = says({"resources": [{"name": "things/status", "kind": "Thing"}, {"name": "things", "kind": "Thing"}]})
    async with talking(group, nothing, old, refuses(500)) as (client, server):
        expected = Resource("example.com", "v1", "things", "Thing", namespaced=False)
        assert await client.discover("example.com", "things") == expected
        assert await client.discover("example.com", "things") == expected
        assert [each.path for each in server.seen] == [
            "/apis/example.com",
            "/apis/example.com/v2",
            "/apis/example.com/v1",
        ]


async def test_what_is_not_served_is_asked_for_again_soon() -> None:
    clock = InstantClock()
    async with talking(refuses(404), clock=clock) as (client, server):
        assert await client.discover("example.com", "things") is None
        assert await client.discover("example.com", "things") is None
        assert len(server.seen) == 1
        clock.at += 2
        assert await client.discover("example.com", "things") is None
        assert len(server.seen) == 2


async def test_discovery_that_fails_is_no_absence() -> None:
    async with talking(refuses(503)) as (client, _):
        with pytest.raises(ServerError):
            await client.discover("example.com", "things")


async def test_patience_is_granted_a_bounded_number_of_times() -> None:
    clock = InstantClock()
    busy = refuses(429, "TooManyRequests", retry_after=3)
    async with talking(busy, busy, says(config_map("a")), clock=clock) as (client, server):
        await client.create(CONFIGMAPS, {"metadata": {"name": "a"}}, "default")
        assert len(server.seen) == 3
        assert clock.pauses == [3.0, 3.0]
        server.answers = [busy]
        with pytest.raises(TooManyRequests) as caught:
            await client.get(CONFIGMAPS, "a", "default")
        assert len(server.seen) == 3 + sessions.ATTEMPTS
        assert caught.value.retry_after_seconds == 3.0


async def test_what_may_have_happened_is_never_sent_again() -> None:
    for answer in (refuses(500), refuses(503, retry_after=1), refuses(504, "Timeout"), refuses(409, "Conflict")):
        async with talking(answer) as (client, server):
            with pytest.raises((ServerError, Conflict)):
                await client.patch(CONFIGMAPS, "a", "default", {})
            assert len(server.seen) == 1


async def test_a_rejected_token_is_renewed_once() -> None:
    class Rotating:
        tokens: tuple[str, ...] = ("old", "new")

        async def header(self) -> str:
            return f"Bearer {self.tokens[0]}"

        async def renew(self, rejected: str | None) -> bool:
            assert rejected == f"Bearer {self.tokens[0]}"
            self.tokens = self.tokens[1:] or self.tokens
            return True

    async with serving(refuses(401, "Unauthorized"), says(config_map("a")), refuses(401)) as server:
        access = direct_access(server.url)
        rotating = Rotating()
        async with Client(replace(access, credentials=rotating)) as client:
            await client.patch(CONFIGMAPS, "a", "default", {})
            assert [each.headers["Authorization"] for each in server.seen] == ["Bearer old", "Bearer new"]
            with pytest.raises(Unauthorized):
                await client.get(CONFIGMAPS, "a", "default")
            assert len(server.seen) == 4


async def test_a_token_that_is_renewed_late_takes_no_attempt_from_patience() -> None:
    """It runs out while the API server is busy: each attempt but the last is answered with 429, the last with 401."""

    class Rotating:
        renewals: int = 0

        async def header(self) -> str:
            return f"Bearer {self.renewals}"

        async def renew(self, rejected: str | None) -> bool:
            self.renewals += 1
            return True

    busy, rotating = refuses(429, retry_after=3), Rotating()
    async with serving(*[busy] * (sessions.ATTEMPTS - 1), refuses(401), says(config_map("a")), refuses(401)) as server:
        access = replace(direct_access(server.url), credentials=rotating)
        async with Client(access, clock=InstantClock()) as client:
            await client.patch(CONFIGMAPS, "a", "default", {})
            assert rotating.renewals == 1
            assert len(server.seen) == sessions.ATTEMPTS + 1
            server.answers, before = [*[busy] * (sessions.ATTEMPTS - 1), refuses(401), busy], len(server.seen)
            with pytest.raises(TooManyRequests):
                await client.get(CONFIGMAPS, "a", "default")
            assert len(server.seen) == before + sessions.ATTEMPTS + 1


async def test_a_missing_permission_names_the_rule() -> None:
    said = (
        'configmaps "a" is forbidden: User "u" cannot patch resource "configmaps" in API group "" in the namespace "n"'
    )
    async with talking(refuses(403, "Forbidden", said), refuses(403, "Forbidden", "exceeded quota")) as (client, _):
        with pytest.raises(Forbidden, match=r'apiGroups: \[""\], resources: \["configmaps"\], verbs: \["patch"\]'):
            await client.patch(CONFIGMAPS, "a", "n", {})
        with pytest.raises(Forbidden) as quota:
            await client.create(CONFIGMAPS, {"metadata": {"name": "a"}}, "n")
        assert "apiGroups" not in str(quota.value)


async def test_no_answer_is_a_failed_connection() -> None:
    async with talking(hangs()) as (client, _):
        with pytest.raises(ConnectionFailed, match=r"within 0\.1 s"):
            await client.raw("GET", "/version", timeout_seconds=0.1)
    async with talking(breaks_off()) as (client, _):
        with pytest.raises(ConnectionFailed, match="broke during the answer"):
            await client.get(CONFIGMAPS, "a", "default")
    async with Client(direct_access("http://127.0.0.1:1")) as client:
        with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
            await client.get(CONFIGMAPS, "a", "default")


async def test_an_endless_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "ANSWER_MAX_BYTES", 100)
    async with talking(says(page([f"o{number}" for number in range(10)]))) as (client, _):
        with pytest.raises(ConnectionFailed, match="smaller pages"):
            _ = [each async for each in client.pages(CONFIGMAPS)]


async def test_redirects_are_not_followed() -> None:
    async with talking(says({}, 302, Location="http://127.0.0.1:1/")) as (client, server):
        with pytest.raises(ServerError):
            await client.raw("GET", "/version")
        assert len(server.seen) == 1


async def test_every_request_is_told_about() -> None:
    told: list[tuple[str, int]] = []
    answers = says(config_map("a")), refuses(404)
    async with talking(*answers, on_call=lambda verb, status, _: told.append((verb, status))) as (client, _):
        await client.get(CONFIGMAPS, "a", "default")
        with pytest.raises(NotFound):
            await client.patch(CONFIGMAPS, "b", "default", {})
    assert told == [("get", 200), ("patch", 404)]


async def test_a_pace_is_kept() -> None:
    clock = InstantClock()
    async with talking(says(config_map("a")), clock=clock, qps=10, burst=3) as (client, _):
        for _ in range(5):
            await client.get(CONFIGMAPS, "a", "default")
        assert clock.pauses == [pytest.approx(0.1), pytest.approx(0.1)]


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client(direct_access("http://127.0.0.1:1")).get(CONFIGMAPS, "a", "default")
