from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import aiohttp
import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.process import answering, health
from shardsdk.process.health import Address, Checks, Endpoints, listen_at, parse_address, serve, serve_in_thread
from shardsdk.process.waiting import Waiting
from shardsdk.serving.published import Published
from tests.unit.shardsdk.serving.serving import connect, make_certificates, publish, trusting


async def ask(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


LOCAL = Address("127.0.0.1", 0)


class Panic(BaseException):
    """As extension modules raise it."""


async def ended(check: str) -> None:
    """Return when no thread asks this check any more."""
    for thread in threading.enumerate():
        if thread.name == f"check {check}":
            await asyncio.to_thread(thread.join)


def broken() -> str | None:
    raise RuntimeError("boom")


async def test_probes_get_ok_while_all_checks_pass() -> None:
    async with serve(LOCAL, Endpoints(healthz=Checks({"loop": lambda: None}), readyz=Checks())) as port:
        assert await ask(port, "/healthz") == (200, "ok")
        assert await ask(port, "/readyz") == (200, "ok")
        assert await ask(port, "/healthz?verbose") == (200, "[+]loop ok\nhealthz check passed\n")
        assert (await ask(port, "/metrics"))[0] == 404


async def test_a_failed_check_says_which_and_why() -> None:
    checks = Checks({"lease": lambda: "not held", "caches": lambda: None})
    async with serve(LOCAL, Endpoints(readyz=checks)) as port:
        expected = "[-]lease failed: not held\n[+]caches ok\nreadyz check failed\n"
        assert await ask(port, "/readyz") == (500, expected)
        assert (await ask(port, "/readyz/caches"))[0] == 200
        assert (await ask(port, "/readyz/lease"))[0] == 500
        assert (await ask(port, "/readyz/unknown"))[0] == 404


async def test_a_check_that_raises_is_a_failed_check() -> None:
    assert await Checks({"broken": broken}).failing() == {"broken": "RuntimeError: boom"}


async def test_a_check_that_hangs_fails_is_not_asked_again_meanwhile_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, begun, go_on, asked = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), list[str]()

    def hang() -> None:
        asked.append("hang")
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(10)

    ready = Checks({"lease": lambda: None})
    ready.add("backend", hang, threaded=True)
    async with serve(LOCAL, Endpoints(healthz=Checks(), readyz=ready)) as port, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(ask(port, "/readyz"))
        await asyncio.wait_for(begun.wait(), 10)
        assert await ask(port, "/healthz") == (200, "ok")
        assert await ask(port, "/readyz/lease") == (200, "ok")
        expected = "[+]lease ok\n[-]backend failed: did not answer within 1 s\nreadyz check failed\n"
        assert await first == (500, expected)
        monkeypatch.setattr(health, "CHECK_SECONDS", 0.01)
        assert (await ask(port, "/readyz/backend"))[0] == 500
        assert asked == ["hang"]
        go_on.set()
        await ended("backend")
        monkeypatch.setattr(health, "CHECK_SECONDS", 10)
        assert await ask(port, "/readyz") == (200, "ok")


async def test_a_threaded_check_that_raises_is_a_failed_check_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "CHECK_SECONDS", 10)
    problems = [RuntimeError("boom"), SystemExit(1), Panic("at src/lib.rs:7"), asyncio.CancelledError()]
    checks = Checks()

    def check() -> None:
        if problems:
            raise problems.pop(0)

    checks.add("broken", check, threaded=True)
    assert [await checks.failing() for _ in range(5)] == [
        {"broken": "RuntimeError: boom"}, {"broken": "SystemExit: 1"}, {"broken": "Panic: at src/lib.rs:7"},
        {"broken": "CancelledError: "}, {},
    ]  # fmt: skip


async def test_nobody_waits_for_a_check_that_was_late_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    checks, go_on = Checks(), threading.Event()
    checks.add("backend", lambda: None if go_on.wait(10) else "still waits", threaded=True)
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.01)
    assert await checks.failing() == {"backend": "did not answer within 0.01 s"}
    monkeypatch.setattr(health, "CHECK_SECONDS", 10)
    async with asyncio.timeout(5):
        for _ in range(50):
            assert "did not answer" in (await checks.failing())["backend"]
    go_on.set()
    await ended("backend")
    assert await checks.failing() == {}


async def test_metrics_are_served_as_they_are_rendered() -> None:
    async with serve(LOCAL, Endpoints(metrics=lambda: ("text/plain; version=0.0.4", b"up 1\n"))) as port:
        assert await ask(port, "/metrics") == (200, "up 1\n")


async def test_metrics_may_take_their_time_while_probes_are_answered() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def render() -> tuple[str, bytes]:
        begun.set()
        await go_on.wait()
        return "text/plain", b"up 1\n"

    async with serve(LOCAL, Endpoints(healthz=Checks(), metrics=render)) as port, asyncio.TaskGroup() as tasks:
        page = tasks.create_task(ask(port, "/metrics"))
        await asyncio.wait_for(begun.wait(), 10)
        assert await ask(port, "/healthz") == (200, "ok")
        go_on.set()
        assert await page == (200, "up 1\n")


async def test_a_server_in_a_thread_answers_while_the_main_loop_is_blocked() -> None:
    def fetch(port: int) -> str:
        import urllib.request

        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return str(answer.read().decode())

    with serve_in_thread(LOCAL, Endpoints(healthz=Checks({"clock": lambda: None}))) as port:
        assert fetch(port) == "ok"  # blocks this loop; a server inside it would never answer


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_until(end: contextlib.AsyncExitStack, port: int) -> Streams:
    """A connection that is there until `end`: since Python 3.11.4 a writer that nobody has any more closes its own."""
    streams = await asyncio.open_connection("127.0.0.1", port)
    end.callback(lambda: streams[1].transport.abort())
    return streams


async def keep_asking(streams: Streams, count: int) -> None:
    for _ in range(count):
        streams[1].write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await streams[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await streams[0].readexactly(2) == b"ok"


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTT", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"])
async def test_who_opens_connections_keeps_nobody_out(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CONNECTIONS_MAX", 3, raising=False)
    async with serve(LOCAL, Endpoints(healthz=Checks())) as port, contextlib.AsyncExitStack() as held:
        opened = []
        for _ in range(8):
            streams = await open_until(held, port)
            streams[1].write(said)
            opened.append(streams)
        async with asyncio.timeout(10):
            for reader, _ in opened[:5]:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
        assert await ask(port, "/healthz") == (200, "ok")


async def test_who_has_asked_before_is_not_closed_for_who_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CONNECTIONS_MAX", 3, raising=False)
    async with serve(LOCAL, Endpoints(healthz=Checks())) as port, contextlib.AsyncExitStack() as held:
        scraper = await open_until(held, port)
        await keep_asking(scraper, 2)
        for _ in range(8):
            await open_until(held, port)
        await keep_asking(scraper, 2)


@pytest.mark.parametrize(
    "said", [b"GET /healthz HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"]
)
async def test_who_sends_headers_without_end_is_not_listened_to(said: bytes) -> None:
    page = Page()
    async with serve(LOCAL, Endpoints(healthz=Checks(), metrics=page)) as port, contextlib.AsyncExitStack() as held:
        reader, writer = await open_until(held, port)
        writer.write(said + (b"X-A: " + b"a" * 1000 + b"\r\n") * (answering.HEAD_BYTES_MAX // 1000 + 1))
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        page.go_on.set()
        assert await ask(port, "/metrics") == (200, "up 1\n")


async def test_who_asks_again_and_again_is_answered_however_much_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "HEAD_BYTES_MAX", 100)
    async with serve(LOCAL, Endpoints(healthz=Checks())) as port, contextlib.AsyncExitStack() as held:
        await keep_asking(await open_until(held, port), 10)


class Page:
    """Metrics that are rendered as soon as `go_on` is set; `asked` counts who waits for them."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.asked = asyncio.Semaphore(0)

    async def __call__(self) -> tuple[str, bytes]:
        self.asked.release()
        await self.go_on.wait()
        return "text/plain", b"up 1\n"


async def test_a_request_that_is_being_answered_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CONNECTIONS_MAX", 3)
    page = Page()
    async with (
        serve(LOCAL, Endpoints(healthz=Checks(), metrics=page)) as port,
        asyncio.TaskGroup() as tasks,
        contextlib.AsyncExitStack() as held,
    ):
        scrape = tasks.create_task(ask(port, "/metrics"))
        await asyncio.wait_for(page.asked.acquire(), 10)
        for _ in range(8):
            await keep_asking(await open_until(held, port), 2)
        page.go_on.set()
        assert await scrape == (200, "up 1\n")


async def test_who_has_too_much_answered_at_once_is_refused_and_keeps_no_probe_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "CONNECTIONS_MAX", 3)
    page = Page()
    endpoints = Endpoints(healthz=Checks(), metrics=page)
    async with serve(LOCAL, endpoints) as port, asyncio.TaskGroup() as tasks:
        scrapes = [tasks.create_task(ask(port, "/metrics")) for _ in range(3)]
        for _ in scrapes:
            await asyncio.wait_for(page.asked.acquire(), 10)
        assert await ask(port, "/metrics") == (503, "3 requests for this are being answered; ask again later\n")
        assert await ask(port, "/healthz") == (200, "ok")
        page.go_on.set()
        assert [await each for each in scrapes] == [(200, "up 1\n")] * 3
        assert await ask(port, "/metrics") == (200, "up 1\n")


async def test_nothing_is_kept_of_who_is_gone_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    made, page = list[Waiting](), Page()

    def make(most: int) -> Waiting:
        made.append(Waiting(most))
        return made[-1]

    monkeypatch.setattr(health, "Waiting", make)
    async with serve(LOCAL, Endpoints(healthz=Checks(), metrics=page)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.wait_for(page.asked.acquire(), 10)
        writer.transport.abort()
        assert await ask(port, "/healthz") == (200, "ok")  # by now it is known
        page.go_on.set()
        assert await ask(port, "/metrics") == (200, "up 1\n")
    assert not made[0]._strangers
    assert not made[0]._answered


async def test_who_does_not_even_begin_a_handshake_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CONNECTIONS_MAX", 3, raising=False)
    stored = make_certificates()
    published = Published()
    publish(published, stored)
    tls = published.newest
    async with serve(LOCAL, Endpoints(healthz=Checks()), tls) as port, contextlib.AsyncExitStack() as held:
        opened = [await open_until(held, port) for _ in range(8)]
        async with asyncio.timeout(10):
            for reader, _ in opened[:5]:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
        async with connect(trusting(stored)) as client, client.get(f"https://127.0.0.1:{port}/healthz") as answer:
            assert await answer.text() == "ok"


@pytest.mark.parametrize("wrong", [b"Content-Length: many", b"Expect: \xff"])
async def test_what_is_no_request_is_refused_and_not_told(wrong: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(LOCAL, Endpoints(healthz=Checks())) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + wrong + b"\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 10))[:12] in (b"HTTP/1.0 400", b"HTTP/1.1 400")
        writer.close()
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("0", None),
        (":8081", Address("", 8081)),
        ("unix:/run/a.sock", Address("", socket="/run/a.sock")),
        ("unix:///run/a.sock", Address("", socket="/run/a.sock")),
        ("127.0.0.1:80", Address("127.0.0.1", 80)),
        ("[::1]:80", Address("::1", 80)),
        (":0", Address("", 0)),
    ],
)
def test_addresses_as_go_programs_write_them(text: str, expected: Address | None) -> None:
    assert parse_address(text) == expected
    if expected and not text.startswith("unix://"):
        assert str(expected) in (text, text.removeprefix("unix:"))


@pytest.mark.parametrize(
    ("host", "health", "metrics"),
    [("", None, None), ("10.0.0.1", Address("", 8081), Address("", 8080))],
    ids=["a machine", "a pod"],
)
def test_ports_are_a_pods(
    host: str, health: Address | None, metrics: Address | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    assert listen_at(None, None) == [health, metrics]
    assert listen_at("0", ":9090") == [None, Address("", 9090)]


@pytest.mark.parametrize(
    "text",
    [
        "unix:here.sock",
        "8081",
        "host:",
        "host:http",
        ":70000",
        "a:-1",
        ":²",
        "::1",
        "::1:80",
        "[::1",
        "[::1]",
        "[::1:80",
    ],
)
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r'":8081".*"\[::1\]:8081"'):
        parse_address(text)


@pytest.mark.parametrize(
    ("endpoints", "purpose", "setting"),
    [
        (Endpoints(healthz=Checks(), setting="--health"), "health", "--health"),
        (Endpoints(metrics=lambda: ("", b""), setting="--metrics"), "metrics", "--metrics"),
        (Endpoints(Checks(), Checks(), lambda: ("", b"")), "health and metrics", "its address"),
    ],
)
async def test_a_port_that_is_taken_is_named_with_what_sets_it(
    endpoints: Endpoints, purpose: str, setting: str
) -> None:
    async with serve(Address("127.0.0.1"), Endpoints()) as port:
        with pytest.raises(ConfigurationError) as caught:
            async with serve(Address("127.0.0.1", port), endpoints):
                raise AssertionError("it listens")
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{port} for {purpose}: another process does, or another part of this one"
        f" (`lsof -nP -iTCP:{port} -sTCP:LISTEN` says which); stop it or set the port of {setting}"
        " to a free port"
    )


async def test_an_address_that_this_machine_has_not_is_said() -> None:
    with pytest.raises(ConfigurationError, match=r"192.0.2.1:0 for questions: this machine has no such address; corr"):
        async with serve(Address("192.0.2.1"), Endpoints()):
            raise AssertionError("it listens")


async def test_a_path_where_something_else_is_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    with pytest.raises(ConfigurationError, match=r"there for health: .*; remove that file, or set --health to another"):
        async with serve(Address("", socket=str(tmp_path / "there")), Endpoints(healthz=Checks(), setting="--health")):
            raise AssertionError("it listens")
