"""Writes of the plain kubernetes client: asked about at the last moment, counted until they are answered."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3

from shardsdk.contrib.kubernetes import FencedWrites, fence_writes
from shardsdk.errors import FenceClosed
from shardsdk.kube.clock import SystemClock
from shardsdk.testing.virtual import VirtualClock, in_virtual_time


@dataclass
class Fence:
    seconds: float = 10.0
    name: str = "lease team/one"
    doubted: bool = False

    def remaining(self) -> float:
        return self.seconds


@dataclass
class Server:
    """Answers everything; `before_answer` is called first."""

    requests: list[tuple[str, str]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None
    port: int = 0


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(size)
            made.requests.append((self.command, self.path))
            made.before_answer()
            body = json.dumps({"kind": "ConfigMap", "metadata": {"name": "a"}}).encode()
            self.send_response(made.statuses.pop(0) if made.statuses else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        made.port = running.server_address[1]
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield made
        running.shutdown()
        thread.join()


@dataclass
class Rig:
    server: Server
    fence: Fence
    core: Any
    writes: FencedWrites

    def patch(self) -> None:
        self.core.patch_namespaced_config_map("a", "team", {"data": {"x": "1"}})


@pytest.fixture
def rig(server: Server) -> Iterator[Rig]:
    # Imported where it is used: workers that run other tests need not wait for it.
    from kubernetes import client

    fence = Fence()
    api_client = client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{server.port}"))
    writes = fence_writes(api_client, fence)
    yield Rig(server, fence, client.CoreV1Api(api_client), writes)
    api_client.rest_client.pool_manager.clear()


def test_the_api_server_is_told_to_give_a_write_up_before_the_hold_ends(rig: Rig) -> None:
    rig.patch()
    rig.core.create_namespaced_config_map("team", {"metadata": {"name": "a"}}, dry_run="All")
    for _, path in rig.server.requests:
        (timeout,) = parse_qs(urlsplit(path).query)["timeout"]
        assert timeout == "7500ms"
    assert "dryRun=All" in rig.server.requests[1][1]


def test_a_timeout_of_the_callers_own_does_not_outlast_the_hold(rig: Rig) -> None:
    query = [("timeout", "60s"), ("fieldManager", "a b/c")]
    rig.core.api_client.call_api(*rig.core.api_client.param_serialize("POST", "/api/v1/x", query_params=query))
    ((_, path),) = rig.server.requests  # the API server takes the first that it finds
    assert parse_qs(urlsplit(path).query) == {"timeout": ["7500ms"], "fieldManager": ["a b/c"]}


def test_without_the_hold_no_write_is_sent_but_reads_are(rig: Rig) -> None:
    rig.patch()  # there is a connection now, to be used again
    rig.fence.seconds = 0.0
    for write in (rig.patch, lambda: rig.core.delete_namespaced_config_map("a", "team")):
        with pytest.raises(FenceClosed, match="lease team/one"):
            write()
    assert rig.core.read_namespaced_config_map("a", "team").metadata.name == "a"
    assert [verb for verb, _ in rig.server.requests] == ["PATCH", "GET"]


async def test_a_write_waits_while_the_lease_is_merely_doubted(rig: Rig) -> None:
    rig.fence.seconds, rig.fence.doubted = 0.0, True
    patching = asyncio.create_task(asyncio.to_thread(rig.patch))
    await asyncio.sleep(0.1)
    assert not patching.done()
    assert rig.server.requests == []
    rig.fence.seconds = 10.0
    await patching
    rig.fence.seconds = 0.0
    patching = asyncio.create_task(asyncio.to_thread(rig.patch))
    await asyncio.sleep(0.1)
    rig.fence.doubted = False
    with pytest.raises(FenceClosed, match="lease team/one"):
        await patching


def test_another_attempt_is_asked_about_again(rig: Rig) -> None:
    def close() -> None:
        rig.fence.seconds = 0.0

    rig.server.before_answer = close
    rig.server.statuses = [503]
    pool = rig.core.api_client.rest_client.pool_manager
    pool.connection_pool_kw["retries"] = urllib3.Retry(
        3, status_forcelist=[503], allowed_methods=None, backoff_factor=0
    )
    with pytest.raises(FenceClosed):
        rig.patch()
    assert len(rig.server.requests) == 1


async def test_a_write_counts_until_it_is_answered(rig: Rig) -> None:
    began, answer = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        answer.wait()

    rig.server.before_answer = hold
    patching = asyncio.create_task(asyncio.to_thread(rig.patch))
    await asyncio.to_thread(began.wait)
    settled = asyncio.create_task(rig.writes.settled())
    await asyncio.sleep(0)
    assert not settled.done()
    answer.set()
    await patching
    await settled


async def test_a_write_that_the_fence_lets_through_as_it_closes_is_waited_for() -> None:
    """Python may go to another thread between the fence's answer and what is done with it."""
    asked = threading.Event()

    class Slow(Fence):
        def remaining(self) -> float:
            asked.set()
            time.sleep(0.1)
            return super().remaining()

    writes = FencedWrites(Slow(10.0), SystemClock())
    beginning = asyncio.create_task(asyncio.to_thread(writes.begin))
    await asyncio.to_thread(asked.wait)
    settled = asyncio.create_task(writes.settled())
    await asyncio.wait([settled], timeout=0.05)
    key, _ = await beginning
    await asyncio.wait([settled], timeout=0.05)
    assert not settled.done()
    writes.answered(key)
    await settled


@in_virtual_time
async def test_a_write_that_is_never_answered_counts_until_the_hold_would_have_ended(clock: VirtualClock) -> None:
    """The API server gives it up after 7.5 s, counted from its arrival, and etcd may have it in hand then."""
    writes = FencedWrites(Fence(10.0), clock)
    writes.begin()
    await writes.settled()
    assert 10.0 <= clock.monotonic() < 10.1


@in_virtual_time
async def test_writes_that_are_never_answered_are_not_kept_for_ever(clock: VirtualClock) -> None:
    writes = FencedWrites(Fence(10.0), clock)
    for _ in range(100):
        writes.begin()
        await clock.sleep(1)
    assert len(writes._open) <= 10
    await writes.settled()
    assert 109.0 <= clock.monotonic() < 109.1, "the last still counts"


async def test_an_answer_that_says_nothing_about_the_write_does_not_settle_it(rig: Rig) -> None:
    writes = FencedWrites(Fence(40.0), SystemClock())
    key, granted = writes.begin()
    assert granted == pytest.approx(30.0)
    writes.answered(key + 1)
    settled = asyncio.create_task(writes.settled())
    await asyncio.sleep(0)
    assert not settled.done()
    writes.answered(key)
    await settled
