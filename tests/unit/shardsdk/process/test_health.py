from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import aiohttp
import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.process import health
from shardsdk.process.health import Address, Checks, Endpoints, listen_at, parse_address, serve, serve_in_thread


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


async def test_a_threaded_check_that_raises_is_a_failed_check_and_is_asked_again() -> None:
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


@pytest.mark.parametrize("text", ["unix:here.sock", "8081", "host:", "host:http", ":70000", "a:-1", ":²"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match='":8081"'):
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
        f"cannot listen on 127.0.0.1:{port} for {purpose}: another process does (`lsof -nP -iTCP:{port} -sTCP:LISTEN`"
        f" says which); stop it or set the port of {setting} to a free port"
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
