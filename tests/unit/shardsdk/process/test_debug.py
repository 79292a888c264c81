"""What objects wait for can be asked over HTTP, by whoever is on this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import aiohttp
import pytest

from shardsdk import Context, Election, Manager, PartialObject, RateLimit, Resource, controller_for
from shardsdk.kube.api import Api, Fence
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.store import Key
from shardsdk.lease.shardlease import ShardLease
from shardsdk.process import debug
from shardsdk.process.debug import LISTED_MAX, DebugObjects
from shardsdk.process.health import Address, Checks, Endpoints, serve, serve_in_thread
from shardsdk.process.process import ExitCode
from shardsdk.process.world import World
from shardsdk.protocol.objects import LEASES
from shardsdk.queueing.item import ItemState
from shardsdk.reconcile.explain import Admission, Facts, explain
from shardsdk.testing.memory import MemoryServer
from shardsdk.testing.memoryapi import MemoryApi
from tests.ports import free_port

SECRETS = Resource("", "v1", "secrets", "Secret")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)


async def get(url: str, accept: str = "*/*") -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url, headers={"Accept": accept}) as answer:
        return answer.status, await (answer.json() if "json" in accept else answer.text())


@asynccontextmanager
async def running(server: MemoryServer, manager: Manager) -> AsyncIterator[None]:
    """A process with an API server in memory, and real time and ports."""
    clock = SystemClock()

    @asynccontextmanager
    async def client(_: ShardLease | Fence | None = None) -> AsyncIterator[Api]:
        yield MemoryApi(server, clock)

    def die(code: int, why: str) -> None:
        raise AssertionError(why)

    world = World(client, client, clock, Random(1), threaded=False, signals=False, die=die, open=client)
    process = asyncio.create_task(manager.run_async(world))
    try:
        yield
    finally:
        manager.stopping.set()
        assert await process is ExitCode.OK


async def test_a_process_says_what_each_of_its_objects_waits_for() -> None:
    failed = asyncio.Event()

    async def fail(context: Context[PartialObject]) -> None:
        failed.set()
        raise RuntimeError("the bucket is full")

    async def rest(context: Context[PartialObject]) -> None:
        return None

    server = MemoryServer()
    server.create(SECRETS, {"metadata": {"name": "a", "namespace": "default"}})
    server.create(NODES, {"metadata": {"name": "one"}})
    port = free_port()
    manager = Manager(health_address=f"127.0.0.1:{port}", metrics_address="0")
    slow = RateLimit(base_seconds=1000)
    manager.add(controller_for(SECRETS).reconcile(fail).options(rate_limit=slow))
    manager.add(controller_for(NODES).reconcile(rest))
    here = f"http://127.0.0.1:{port}/debug/objects"
    async with running(server, manager):
        await failed.wait()
        status, text = await get(f"{here}/default/a")
        assert status == 200
        assert text.startswith(
            "secrets: default/a: has failed once, the last time with RuntimeError: the bucket is full; tried again in 1"
        )
        assert await get(f"{here}/one") == (200, "nodes: one: waits for its next event\n")
        assert (await get(f"{here}/default/nobody"))[1].startswith("secrets: default/nobody: is not in this controller")
        status, body = await get(f"{here}/default/a", "application/json")
        (found,) = body["objects"]
        assert (found["waitsFor"], found["failures"], found["error"]) == (
            "BACKOFF", 1, "RuntimeError: the bucket is full",
        )  # fmt: skip
        assert 900 < found["againSeconds"] < 1000
        status, text = await get(f"{here}?limit=10")
        first, second, end = text.split("\n")
        assert (status, first, end) == (200, "1 objects wait for more than their next event", "")
        assert second.startswith("secrets: default/a: has failed once")
        assert (await get(here, "application/json"))[1]["total"] == 1


async def test_a_process_that_does_not_work_yet_says_what_it_waits_for() -> None:
    lacking = {"lease": "waits for the lease", "caches": "secrets is not synced"}
    answers = DebugObjects(lacking=Checks({name: partial(lacking.get, name) for name in lacking}).failing)
    more = {"/debug/objects/{name}": answers.answer_object}
    async with serve(Address("127.0.0.1", 0), Endpoints(more=more)) as port:
        url = f"http://127.0.0.1:{port}/debug/objects/a"
        assert await get(url) == (
            503, "no controller runs here: lease: waits for the lease; caches: secrets is not synced\n",
        )  # fmt: skip
        lacking.clear()
        answers.lease = ("team", "websites")
        status, text = await get(url)
        assert (status, "`kubectl get lease websites -n team` says who does" in text) == (503, True)


async def test_a_shard_says_which_one_it_is_and_where_its_lease_is() -> None:
    shard = {"ring": "sites", "name": "one", "namespace": "team", "instance": "uid-1"}
    lease = ShardLease(lambda: None, "sites", "one", "team", instance="uid-1", fenced=True)  # type: ignore[arg-type,return-value]
    answers = DebugObjects(lacking=Checks({"lease": lambda: "waiting"}).failing)
    answers.shard_lease = lease

    class Rests:
        def explain(self, request: Any) -> list[Any]:
            return [explain(Facts("secrets", SECRETS.group_resource, Key("", "a"), 0.0, Admission(None), ItemState()))]

        def not_at_rest(self, limit: int) -> tuple[list[Any], int]:
            return [], 0

    async with serve(Address("127.0.0.1", 0), Endpoints(more={"/debug/objects/{name}": answers.answer_object})) as port:
        url = f"http://127.0.0.1:{port}/debug/objects/a"
        status, text = await get(url)
        assert (status, "`kubectl get lease one -n team` says who has this shard's Lease" in text) == (503, True)
        with answers.answering_for(Rests()):
            assert (await get(url, "application/json"))[1]["shard"] == shard


async def test_a_replica_that_does_not_lead_names_the_lease() -> None:
    async def rest(context: Context[PartialObject]) -> None:
        raise AssertionError("it does not lead")

    server = MemoryServer()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    held = {"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now}
    server.create(LEASES, {"metadata": {"name": "sites", "namespace": "team"}, "spec": held})
    port = free_port()
    health, election = f"127.0.0.1:{port}", Election("sites", namespace="team")
    manager = Manager(health_address=health, metrics_address="0", election=election)
    manager.add(controller_for(SECRETS).reconcile(rest))
    async with running(server, manager):
        status, text = 0, ""
        async with asyncio.timeout(60):
            while "it waits to lead" not in text:
                with contextlib.suppress(aiohttp.ClientConnectorError):  # it does not listen yet
                    status, text = await get(f"http://{health}/debug/objects/default/a")
                await asyncio.sleep(0.02)
        assert (status, "`kubectl get lease sites -n team`" in text) == (503, True)


@pytest.mark.parametrize("limit", ["0", str(LISTED_MAX + 1), "9" * 5000, "-1", "many", "²"])
async def test_a_limit_that_is_none_is_refused(limit: str) -> None:
    async with serve(Address("127.0.0.1", 0), Endpoints(more={"/debug/objects": DebugObjects().answer_all})) as port:
        status, text = await get(f"http://127.0.0.1:{port}/debug/objects?limit={limit}")
        assert (status, "not a number from 1 to" in text) == (400, True)


@pytest.mark.parametrize(
    ("remote", "here"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.7", False), ("fd00::7", False),
     ("::ffff:10.0.0.7", False), ("", False), (None, False)],
)  # fmt: skip
def test_this_machine_is_told_from_others(remote: str | None, here: bool) -> None:
    assert debug._is_here(remote) is here


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("localhost", True), ("localhost:8081", True), ("LOCALHOST", True), ("a.localhost:8081", True),
        ("127.0.0.1:8081", True), ("[::1]:8081", True), ("10.0.0.7", True), ("evil.example:8081", False),
        ("evil.example", False), ("localhost.evil.example", False), ("notlocalhost", False), ("a b", False),
        ("127.0.0.1.evil.example", False), ("[::1", False),
    ],
)  # fmt: skip
async def test_a_web_page_whose_name_leads_here_is_told_nothing(host: str, told: bool) -> None:
    async def ask(answers: DebugObjects) -> tuple[int, str]:
        more = {"/debug/objects": answers.answer_all}
        async with serve(Address("127.0.0.1", 0), Endpoints(more=more)) as port, aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}/debug/objects"
            async with session.get(url, headers={"Host": host}) as answer:
                return answer.status, await answer.text()

    status, text = await ask(DebugObjects())
    assert (status, "as localhost" in text) == ((200, False) if told else (403, True))
    assert (await ask(DebugObjects(to_all=True)))[0] == 200


@pytest.mark.parametrize(("to_all", "status"), [(False, 403), (True, 503)])
async def test_others_are_not_told_unless_the_manager_says_so(
    to_all: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503: nothing runs here that could explain an object."""
    monkeypatch.setattr(debug, "_is_here", lambda remote: False)
    answers = DebugObjects(to_all=to_all)
    more = {"/debug/objects": answers.answer_all, "/debug/objects/{name}": answers.answer_object}
    async with serve(Address("127.0.0.1", 0), Endpoints(more=more)) as port:
        assert (await get(f"http://127.0.0.1:{port}/debug/objects/a"))[0] == status
        assert (await get(f"http://127.0.0.1:{port}/debug/objects"))[0] == (200 if to_all else 403)


async def test_a_blocked_event_loop_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "ANSWER_SECONDS", 0.05)
    answers = DebugObjects()

    class Nothing:
        def explain(self, request: Any) -> list[Any]:
            return []

        def not_at_rest(self, limit: int) -> tuple[list[Any], int]:
            return [], 0

    more = {"/debug/objects/{name}": answers.answer_object}
    with answers.answering_for(Nothing()), serve_in_thread(Address("127.0.0.1", 0), Endpoints(more=more)) as port:
        url = f"http://127.0.0.1:{port}/debug/objects/a"
        with ThreadPoolExecutor() as pool:
            status, text = pool.submit(asyncio.run, get(url)).result()  # this loop takes no turns meanwhile
    assert (status, "event loop is blocked" in text) == (503, True)
