"""A host whose name has several addresses is served at each of them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.process.health import Address, Checks, Endpoints, serve
from tests.unit.shardsdk.process.test_health import LOCAL, keep_asking


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """The host `here` has these addresses."""
    resolve = socket.getaddrinfo

    def answer(host: str, *given: Any, **more: Any) -> list[Any]:
        return [each for address in addresses for each in resolve(address if host == "here" else host, *given, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize("absent", [[], ["192.0.2.1"]], ids=["", "but for those that this machine lacks"])
async def test_a_host_is_served_at_each_of_its_addresses(absent: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, *absent, "127.0.0.1", "127.0.0.2", "127.0.0.1")
    async with serve(Address("here"), Endpoints(healthz=Checks())) as port:
        monkeypatch.undo()
        for address in ("127.0.0.1", "127.0.0.2"):
            reader, writer = await asyncio.open_connection(address, port)
            await keep_asking((reader, writer), 1)
            writer.close()
    for address in ("127.0.0.1", "127.0.0.2"):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address, port)


async def test_one_of_several_addresses_that_is_taken_is_said_and_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.0.2", "127.0.0.1")
    async with serve(LOCAL, Endpoints()) as port:
        with pytest.raises(ConfigurationError, match=f"cannot listen on here:{port} for health: another process does"):
            async with serve(Address("here", port), Endpoints(healthz=Checks())):
                raise AssertionError("it listens")
        monkeypatch.undo()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", port)


async def test_a_host_that_is_not_there_is_said() -> None:
    with pytest.raises(ConfigurationError, match=r"listen on nowhere\.invalid:0 for questions: .*; check its addr"):
        async with serve(Address("nowhere.invalid"), Endpoints()):
            raise AssertionError("it listens")
