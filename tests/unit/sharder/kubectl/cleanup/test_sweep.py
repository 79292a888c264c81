"""Labels of a ring that is gone go, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sharder.kubectl.cleanup.sweep as sweeping
from sharder.kubectl.cleanup.sweep import RingIsBack, Sweep, Swept
from shardsdk.errors import ConnectionFailed, Forbidden, ServerError, ShardingError, StreamInterrupted
from shardsdk.testing.memory import MemoryServer
from tests.unit.sharder.kubectl.rings import FAILURES, LABELS, SECRETS, RestrictedApi, Wall, manifest


async def yes() -> bool:
    return True


async def no() -> bool:
    return False


def server_with(*bodies: dict[str, Any]) -> MemoryServer:
    server = MemoryServer()
    for body in bodies:
        server.create(SECRETS, body, "default")
    return server


async def sweep(api: Any, *, apply: bool = True, still_gone: Any = yes) -> Swept:
    return await Sweep(api, LABELS, apply, None, still_gone).sweep(SECRETS)


def labels_of(server: MemoryServer) -> dict[str, dict[str, str]]:
    return {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in server.select(SECRETS)}


async def test_both_labels_go_and_others_stay() -> None:
    body = manifest("a", "one", drain=True)
    body["metadata"]["labels"]["team"] = "x"
    only_drain = manifest("b")
    only_drain["metadata"]["labels"] = {LABELS.drain: "true"}
    server = server_with(body, only_drain, manifest("c"))
    swept = await sweep(RestrictedApi(server, Wall(), set()))
    assert (swept.removed, swept.found, swept.refused) == (2, 2, {})
    assert labels_of(server) == {"a": {"team": "x"}, "b": {}, "c": {}}


async def test_a_dry_run_writes_nothing() -> None:
    server = server_with(manifest("a", "one"), manifest("b", "two"))
    api = RestrictedApi(server, Wall(), set())
    swept = await sweep(api, apply=False)
    assert (swept.left, swept.found, swept.examples) == (2, 2, ["default/a", "default/b"])
    assert api.writes == []


async def test_an_object_that_changes_meanwhile_is_read_again() -> None:
    server = server_with(manifest("a", "one"))

    class Busy(RestrictedApi):
        async def patch(self, resource: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            if not self.writes:
                server.patch(SECRETS, name, "default", {"metadata": {"labels": {"team": "x"}}})
            return await super().patch(resource, name, *args, **kwargs)

    swept = await sweep(Busy(server, Wall(), set()))
    assert (swept.removed, swept.refused) == (1, {})
    assert labels_of(server) == {"a": {"team": "x"}}


async def test_what_is_gone_or_without_labels_meanwhile_is_no_failure() -> None:
    server = server_with(manifest("deleted", "one"), manifest("unlabelled", "one"))

    class Racing(RestrictedApi):
        async def patch(self, resource: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            if name == "deleted" and server.find(SECRETS, name, "default"):
                server.delete(SECRETS, name, "default")
            elif not [write for write in self.writes if write[2] == "unlabelled"]:
                server.patch(SECRETS, name, "default", {"metadata": {"labels": {LABELS.shard: None}}})
            return await super().patch(resource, name, *args, **kwargs)

    swept = await sweep(Racing(server, Wall(), set()))
    assert (swept.gone, swept.removed, swept.refused) == (2, 0, {})


async def test_what_is_refused_is_counted_by_its_reason() -> None:
    server = server_with(*(manifest(f"object-{number}", "one") for number in range(5)))

    class Closed(RestrictedApi):
        async def patch(self, resource: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            if name == "object-0":
                raise ConnectionFailed("reset")
            raise Forbidden(f"patch secrets {name}: 403", status=403)

    swept = await sweep(Closed(server, Wall(), set()))
    assert swept.refused == {"ConnectionFailed": 1, "Forbidden": 4}
    assert swept.messages["ConnectionFailed"] == "reset"
    assert swept.found == 5


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_write_that_fails_is_counted_and_the_rest_goes_on(failure: ShardingError) -> None:
    server = server_with(*(manifest(f"object-{number}", "one") for number in range(5)))

    class Failing(RestrictedApi):
        async def patch(self, resource: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            if name == "object-1":
                raise failure
            return await super().patch(resource, name, *args, **kwargs)

    swept = await sweep(Failing(server, Wall(), set()))
    assert (swept.removed, swept.refused, swept.unread) == (4, {type(failure).__name__: 1}, "")


async def test_a_list_that_fails_on_its_way_keeps_what_was_done() -> None:
    class Failing(RestrictedApi):
        async def pages(self, resource: Any, *args: Any, **kwargs: Any) -> Any:
            async for page in super().pages(resource, *args, **kwargs | {"limit": 2}):
                yield page
                raise ServerError("list secrets: 500 InternalError: gone", status=500)

    server = server_with(*(manifest(f"object-{number}", "one") for number in range(4)))
    swept = await sweep(Failing(server, Wall(), set()))
    assert (swept.removed, swept.failed, swept.unread) == (2, True, "list secrets: 500 InternalError: gone")


async def test_no_answer_at_all_ends_it() -> None:
    api = RestrictedApi(server_with(manifest("a", "one")), Wall(), set())
    api.failing = {("list", "secrets"): ConnectionFailed("refused")}
    with pytest.raises(ConnectionFailed):
        await sweep(api)


async def test_it_stops_when_the_ring_comes_back() -> None:
    server = server_with(manifest("a", "one"))
    api = RestrictedApi(server, Wall(), set())
    with pytest.raises(RingIsBack):
        await sweep(api, still_gone=no)
    assert api.writes == []


async def test_a_resource_that_may_not_be_listed_is_said() -> None:
    server = server_with(manifest("a", "one"))
    swept = await sweep(RestrictedApi(server, Wall(), {("list", "secrets")}))
    assert (swept.found, swept.unread.startswith("list secrets: 403")) == (0, True)


async def test_a_snapshot_that_runs_out_is_begun_again_without_counting_twice() -> None:
    server = server_with(*(manifest(f"object-{number}", "one") for number in range(4)))

    class Short(RestrictedApi):
        interruptions = 1

        async def pages(self, resource: Any, *args: Any, **kwargs: Any) -> Any:
            async for page in super().pages(resource, *args, **kwargs | {"limit": 2}):
                yield page
                if self.interruptions:
                    self.interruptions -= 1
                    raise StreamInterrupted("the snapshot ran out")

    assert (await sweep(Short(server, Wall(), set()), apply=False)).found == 4
    swept = await sweep(Short(server, Wall(), set()))
    assert (swept.found, swept.removed) == (4, 4)


async def test_a_snapshot_that_always_runs_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "LISTS", 2)

    class Broken(RestrictedApi):
        async def pages(self, resource: Any, *args: Any, **kwargs: Any) -> Any:
            async for page in super().pages(resource, *args, **kwargs):
                yield page
            raise StreamInterrupted("the snapshot ran out")

    swept = await sweep(Broken(server_with(manifest("a", "one")), Wall(), set()))
    assert swept.unread == "the snapshot ran out"


KEYS = st.sampled_from([LABELS.shard, LABELS.drain, "team", "shard.alpha.sharding.timebertt.dev/clusterring-0-other"])


@given(st.lists(st.dictionaries(KEYS, st.sampled_from(["one", "true"])), max_size=6))
async def test_exactly_the_rings_two_labels_go(found: list[dict[str, str]]) -> None:
    bodies = [{"metadata": {"name": f"object-{number}", "labels": labels}} for number, labels in enumerate(found)]
    server = server_with(*bodies)
    await sweep(RestrictedApi(server, Wall(), set()))
    expected = [
        {key: value for key, value in labels.items() if key not in (LABELS.shard, LABELS.drain)} for labels in found
    ]
    assert list(labels_of(server).values()) == expected
