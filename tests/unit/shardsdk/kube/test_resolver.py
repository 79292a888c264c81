"""Addresses: what is said while DNS hangs, and that no process waits for it at its end."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shardsdk.errors import ConnectionFailed
from shardsdk.kube.client import Client
from shardsdk.kube.resolver import Resolver
from shardsdk.kube.server import direct_access
from tests.kube_fakes import CONFIGMAPS

ROOT = Path(__file__).parents[4]


async def test_a_name_has_the_addresses_that_the_system_has_for_it() -> None:
    found = await Resolver().resolve("localhost", 443, socket.AF_INET)
    assert [(each["hostname"], each["host"], each["port"]) for each in found] == [("localhost", "127.0.0.1", 443)]


async def test_a_name_that_there_is_not_says_so() -> None:
    resolver = Resolver()
    with pytest.raises(OSError, match="is no name of a host"):
        await resolver.resolve("a" * 64 + ".example", 443)
    assert resolver.looking_up == []


async def test_whatever_a_lookup_raises_whoever_waits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its thread nobody would hear of it, and all who want that address would wait for ever."""

    def fail(*_: object) -> list[object]:
        raise ValueError("a name of another kind")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    async with asyncio.timeout(5), Client(direct_access("http://api.example:6443")) as client:
        with pytest.raises(ConnectionFailed, match=r"api\.example could not be looked up.*a name of another kind"):
            await client.get(CONFIGMAPS, "a", "n")


async def test_while_dns_hangs_nobody_blames_the_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    def hang(*_: object) -> list[object]:
        answers.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    async with Client(direct_access("http://api.example:6443")) as client:
        with pytest.raises(ConnectionFailed, match=r"no address of api\.example within 0\.1 s"):
            await client.get(CONFIGMAPS, "a", "n", timeout_seconds=0.1)
    answers.set()


async def test_who_connects_to_what_does_not_answer_says_so() -> None:
    """Its queue is full, so the system answers nobody."""
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    host, port = full.getsockname()
    with full:
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex((host, port))
        await asyncio.sleep(0.05)
        async with Client(direct_access(f"http://{host}:{port}")) as client:
            with pytest.raises(ConnectionFailed, match=r"no connection to http://127.* within 0\.2 s"):
                await client.get(CONFIGMAPS, "a", "n", timeout_seconds=0.2)
        for each in waiting:
            each.close()


async def test_what_is_sent_again_over_another_connection_says_what_it_waits_for() -> None:
    """aiohttp does so with a read whose kept connection breaks; here nobody answers who connects once more."""
    loop = asyncio.get_running_loop()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    listener.setblocking(False)
    host, port = listener.getsockname()
    waiting = [socket.socket() for _ in range(4)]

    async def serve() -> None:
        first, _ = await loop.sock_accept(listener)
        with first:
            first.setblocking(False)
            for each in waiting:  # its queue is full from now on
                each.setblocking(False)
                each.connect_ex((host, port))
            await loop.sock_recv(first, 65536)
            body = b'{"metadata": {"name": "a"}}'
            await loop.sock_sendall(first, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await loop.sock_recv(first, 65536)

    with listener:
        async with Client(direct_access(f"http://{host}:{port}")) as client, asyncio.TaskGroup() as group:
            group.create_task(serve())
            await client.get(CONFIGMAPS, "a", "n")
            with pytest.raises(ConnectionFailed, match=r"no connection to http://127.* within 2\.0 s"):
                await client.get(CONFIGMAPS, "a", "n", timeout_seconds=2.0)
    for each in waiting:
        each.close()


#: A process in which somebody's lookup hangs as it ends.
HANGS = """
import asyncio, pathlib, socket, sys, threading
from shardsdk.commands.asking import Address, ask
from shardsdk.contrib.kopf_relay import Relay
from shardsdk.cache.objects import Request
from shardsdk.kube.client import Client
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.openid import OpenId
from shardsdk.kube.server import direct_access
from shardsdk.process.process import ExitCode, run_process
from tests.kube_fakes import CONFIGMAPS

hangs = threading.Event()
socket.getaddrinfo = lambda *_: hangs.set() or threading.Event().wait()

async def client():
    async with Client(direct_access("http://api.example")) as client:
        await client.get(CONFIGMAPS, "a", "n")

async def relay():
    async with Relay(direct_access("http://api.example")) as relay:
        await relay.request("GET", "http://api.example/api")

async def asking():
    await ask(Address(host="api.example", port=8081), Request("n", "a"))

async def openid():
    config = {"idp-issuer-url": "https://api.example", "client-id": "a", "refresh-token": "b"}
    await OpenId(config, pathlib.Path("none"), SystemClock()).token()

async def main(user):
    looking_up = asyncio.ensure_future(user())
    while not hangs.is_set():
        assert not looking_up.done(), looking_up.result()
        await asyncio.sleep(0.02)
    return ExitCode.OK

raise SystemExit(run_process(main(globals()[sys.argv[1]])))
"""


@pytest.mark.parametrize("user", ["client", "relay", "asking", "openid"])
def test_no_process_ends_by_force_for_it(user: str) -> None:
    done = subprocess.run([sys.executable, "-c", HANGS, user], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
