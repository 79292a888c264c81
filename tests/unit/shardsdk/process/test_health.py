from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.process.health import Address, Checks, Endpoints, listen_at, parse_address, serve, serve_in_thread


async def ask(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


LOCAL = Address("127.0.0.1", 0)


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
    assert Checks({"broken": broken}).failing() == {"broken": "RuntimeError: boom"}


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
