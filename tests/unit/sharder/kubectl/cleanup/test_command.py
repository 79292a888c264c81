"""`kubectl sharding cleanup`: what it refuses, what it says, and how it ends."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import yaml

from sharder.kubectl.cleanup.command import Wish, choose_resources, clean_up
from sharder.kubectl.cleanup.sweep import RingIsBack
from sharder.kubectl.outcomes import ExitCode
from shardsdk.errors import ConfigurationError, Forbidden, InvalidRingName, ServerError, ShardingError
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import CLUSTERRINGS, LEASES, Resource
from shardsdk.testing.memory import MemoryServer
from tests.unit.sharder.kubectl.rings import (
    FAILURES,
    SECRETS,
    RestrictedApi,
    Wall,
    lease,
    manifest,
    raw_ring,
    said,
    session_of,
)

STILL = "there still; once its shards have stopped:"
DISCOVERY = {
    "/api": [
        {"version": "v1", "resources": [{"resource": "secrets", "verbs": ["list", "patch"], "scope": "Namespaced"}]},
    ],
    "/apis": [{"version": "v1", "resources": [{"resource": "readonlies", "verbs": ["list"]}]}],
}


class Discovering(RestrictedApi):
    """Serves secrets, and something that cannot be patched."""

    async def raw(self, method: str, path: str, **_: Any) -> bytes:
        group = {"metadata": {"name": "" if path == "/api" else "example.com"}, "versions": DISCOVERY[path]}
        return json.dumps({"kind": "APIGroupDiscoveryList", "items": [group]}).encode()


def left_behind(*leases: Lease, ring: bool = False) -> Discovering:
    """Two labelled objects, one that is not."""
    server = MemoryServer()
    for body in (manifest("a", "one"), manifest("b", "two", drain=True), manifest("c")):
        server.create(SECRETS, body, "default")
    for each in leases:
        server.create(LEASES, msgspec.to_builtins(each), each.metadata.namespace)
    if ring:
        server.arrange(CLUSTERRINGS, raw_ring(), None)
    return Discovering(server, Wall(), set())


async def cleanup(api: Discovering, *, output: str = "text", **wish: Any) -> tuple[ExitCode, str]:
    session = session_of(api, output=output)
    return await clean_up(session, Wish("checksum", **wish)), said(session)


async def test_a_dry_run_comes_first_and_ends_with_one() -> None:
    api = left_behind()
    code, text = await cleanup(api)
    assert code is ExitCode.WRONG
    assert text == (
        "  secrets: 2 labelled (default/a, default/b)\n"
        "2 objects with labels of ring checksum. Dry run, nothing was changed:"
        " the same with --yes takes the labels off.\n"
    )
    assert api.writes == []


async def test_with_yes_labels_go_and_then_there_are_none() -> None:
    api = left_behind()
    assert await cleanup(api, apply=True) == (ExitCode.IN_ORDER, "  secrets: 2 of 2 cleaned\n2 objects cleaned.\n")
    assert await cleanup(api) == (ExitCode.IN_ORDER, "No object has labels of ring checksum.\n")


async def test_data_has_what_was_found() -> None:
    _, text = await cleanup(left_behind(), output="json")
    found = json.loads(text)
    assert (found["ring"], found["dryRun"]) == ("checksum", True)
    assert [(each["resource"], each["found"]) for each in found["resources"]] == [("secrets", 2)]


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_data_says_the_same_where_its_signs_cannot_be_written(output: str) -> None:
    api, why = left_behind(), "not today: ✗ → 節"
    api.failing = {("list", "secrets"): ServerError(why, status=500)}
    written = io.BytesIO()
    out = io.TextIOWrapper(written, encoding="ascii", write_through=True)
    await clean_up(replace(session_of(api, output=output), out=out), Wish("checksum"))
    assert yaml.safe_load(written.getvalue())["resources"][0]["unread"] == why


async def test_a_ring_that_is_there_is_left_alone() -> None:
    api = left_behind(ring=True)
    with pytest.raises(ConfigurationError, match="ring checksum is there: its labels say which shard works on what"):
        await cleanup(api, apply=True)
    assert api.writes == []


async def test_a_ring_that_nobody_can_see_is_left_alone_unless_forced() -> None:
    api = left_behind(ring=True)
    api.denied = {("get", "clusterrings")}
    with pytest.raises(Forbidden, match=r'get clusterrings.* the rule .*"clusterrings".*--force goes'):
        await cleanup(api, apply=True)
    assert api.writes == []
    code, text = await cleanup(api, apply=True, force=True)
    assert code is ExitCode.IN_ORDER
    assert text.startswith("! forced: it was not asked whether the ring is gone\n")


async def test_a_ring_that_comes_back_meanwhile_ends_it() -> None:
    api = left_behind()
    get, asked = api.get, 0

    async def returning(resource: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 2:
            api.server.arrange(CLUSTERRINGS, raw_ring(), None)
        return await get(resource, *args, **kwargs)

    api.get = returning  # type: ignore[method-assign]
    with pytest.raises(RingIsBack, match="ring checksum has been created again"):
        await cleanup(api, apply=True)
    assert api.writes == []


async def test_shards_that_still_run_are_named() -> None:
    _, text = await cleanup(left_behind(lease("one"), lease("two", renewed=100), lease("three", holder="")))
    assert text.startswith(
        "! shards of this ring still run (default/one); they stop working on what loses its labels\n"
    )


async def test_leases_that_nobody_will_delete_are_named_at_the_end() -> None:
    end = "kubectl delete leases -A -l alpha.sharding.timebertt.dev/clusterring=checksum"
    _, text = await cleanup(left_behind(lease("one", holder=""), lease("two", holder="")), apply=True)
    assert text.splitlines()[-1] == f"The Leases of 2 shards of it are {STILL} {end}"
    _, text = await cleanup(left_behind(lease("one", holder="")), apply=True)
    assert text.splitlines()[-1] == f"The Lease of a shard of it is {STILL} {end}"
    assert "kubectl delete" not in (await cleanup(left_behind(lease("one", holder=""))))[1]


async def test_leases_are_named_of_the_namespaces_that_were_read_for_the_same_cluster() -> None:
    api = left_behind(lease("one", holder=""), lease("two", holder="", namespace="elsewhere"))
    session = replace(session_of(api, namespace="default"), reaches=" --context 'a b'")
    selector = "-l alpha.sharding.timebertt.dev/clusterring=checksum"

    await clean_up(session, Wish("checksum", apply=True))
    assert said(session).endswith(
        f"The Leases of 2 shards of it are {STILL} kubectl delete leases -A {selector} --context 'a b'\n"
    )

    api.denied = {("list", "leases")}
    await clean_up(session, Wish("checksum", apply=True))
    command = f"kubectl delete leases -n default {selector} --context 'a b'"
    assert said(session).endswith(f"The Lease of a shard of it is {STILL} {command}\n")

    assert "kubectl delete" not in (await cleanup(api, apply=True))[1]


async def test_nobody_is_told_to_delete_leases_of_a_ring_that_may_be_there() -> None:
    api = left_behind(lease("one", holder=""), ring=True)
    assert "kubectl delete" not in (await cleanup(api, apply=True, force=True))[1]


async def test_only_the_resources_asked_for_are_looked_at() -> None:
    assert (await cleanup(left_behind(), resources=("readonlies",)))[1].startswith("No object has labels")
    with pytest.raises(ConfigurationError, match="serves no resource called 'nonsense'"):
        await cleanup(left_behind(), resources=("nonsense",))


async def test_of_a_namespace_nothing_is_touched_that_is_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = {"resource": "clusters", "verbs": ["list", "patch"], "scope": "Cluster"}
    monkeypatch.setitem(DISCOVERY, "/apis", [{"version": "v1", "resources": [clusters]}])
    api, resource = left_behind(), Resource("example.com", "v1", "clusters", "", namespaced=False)
    api.server.create(resource, manifest("everywhere", "one"), None)
    api.server.create(SECRETS, manifest("theirs", "one"), "theirs")
    untouched = api.server.get(resource, "everywhere", None), api.server.get(SECRETS, "theirs", "theirs")

    async def cleanup_in(namespace: str, **wish: Any) -> str:
        session = session_of(api, namespace=namespace)
        await clean_up(session, Wish("checksum", **wish))
        return said(session).splitlines()[-1]

    assert (await cleanup_in("default")).startswith("2 objects in namespace default with labels of ring checksum. Dry")
    assert await cleanup_in("default", apply=True) == "2 objects in namespace default cleaned."
    assert await cleanup_in("default") == "No object in namespace default has labels of ring checksum."
    with pytest.raises(ConfigurationError, match="clusters are in no namespace, so none is in default; leave out -n"):
        await cleanup_in("default", apply=True, resources=("clusters",))
    assert untouched == (api.server.get(resource, "everywhere", None), api.server.get(SECRETS, "theirs", "theirs"))
    assert (await cleanup(api, apply=True))[1].endswith("\n2 objects cleaned.\n")


async def test_of_two_resources_of_one_name_that_is_meant_which_the_namespace_can_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever of them the API server lists first."""
    secrets = {"resource": "secrets", "verbs": ["list", "patch"]}
    for path, scope in (("/api", "Cluster"), ("/apis", "Namespaced")):
        monkeypatch.setitem(DISCOVERY, path, [{"version": "v1", "resources": [secrets | {"scope": scope}]}])
    api = left_behind()
    [chosen], unread = await choose_resources(api, ("secrets",), "default")
    assert (chosen.group, chosen.namespaced, unread) == ("example.com", True, ())
    [chosen], _ = await choose_resources(api, ("secrets",))
    assert (chosen.group, chosen.namespaced) == ("", False)


async def test_a_resource_that_may_not_be_listed_leaves_it_open() -> None:
    api = left_behind()
    api.denied = {("list", "secrets")}
    code, text = await cleanup(api)
    assert code is ExitCode.UNKNOWN
    assert text == (
        "? not looked at: secrets: you may not list them, or nobody answered\n"
        "No object has labels of ring checksum where it was looked.\n"
    )


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_resource_that_fails_is_told_and_the_rest_is_cleaned(
    failure: ShardingError, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"resource": "brokens", "verbs": ["list", "patch"], "scope": "Namespaced"}
    monkeypatch.setitem(DISCOVERY, "/apis", [{"version": "v1", "resources": [broken]}])
    api = left_behind()
    api.failing = {("list", "brokens"): failure}
    code, text = await cleanup(api, apply=True)
    assert code is ExitCode.UNKNOWN
    assert text == (
        "  secrets: 2 of 2 cleaned\n"
        f"  brokens.example.com: ? not read: {failure}\n"
        "? not looked at, or not to the end: brokens.example.com: the API server failed over them; try again\n"
        "2 objects cleaned.\n"
    )
    code, text = await cleanup(api, output="json")
    assert code is ExitCode.UNKNOWN
    assert [(each["resource"], each["unread"]) for each in json.loads(text)["resources"]] == [("brokens", str(failure))]
    assert "No object has labels of ring checksum where it was looked.\n" in (await cleanup(api))[1]


async def test_nothing_is_written_while_nobody_can_tell_whether_the_ring_is_still_gone() -> None:
    api = left_behind()
    get, asked = api.get, 0

    async def failing(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise ServerError("get clusterrings checksum: 503 ServiceUnavailable: away", status=503)
        return await get(*args, **kwargs)

    api.get = failing  # type: ignore[method-assign]
    code, text = await cleanup(api, apply=True)
    assert code is ExitCode.UNKNOWN
    assert "  secrets: ? not read: get clusterrings checksum: 503" in text
    assert api.writes == []


async def test_leases_that_cannot_be_read_leave_open_whether_shards_run() -> None:
    api = left_behind(lease("one"))
    api.failing = {("list", "leases"): ServerError("list leases: 503 ServiceUnavailable: away", status=503)}
    code, text = await cleanup(api)
    assert code is ExitCode.WRONG
    assert text.startswith(
        "? whether shards of this ring still run was not read: leases of all namespaces: list leases"
    )
    assert "2 objects with labels of ring checksum" in text
    assert json.loads((await cleanup(api, output="json"))[1])["shardsRunning"] is None


async def test_leases_of_one_namespace_leave_open_which_shards_run_in_others() -> None:
    api = left_behind(lease("one", namespace="elsewhere"), lease("two"))
    api.denied = {("list", "leases")}
    for output in ("json", "text"):
        session = session_of(api, namespace="default", output=output)
        await clean_up(session, Wish("checksum"))
        if output == "json":
            assert json.loads(said(session))["shardsRunning"] is None
        else:
            assert said(session).startswith("! shards of this ring still run (default/two);")


async def test_a_name_that_no_ring_can_have_is_refused() -> None:
    with pytest.raises(InvalidRingName):
        await clean_up(session_of(left_behind()), Wish("x" * 64))
