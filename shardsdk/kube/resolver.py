"""Addresses of hosts, looked up in threads that no end of a process waits for.

The event loop's own threads, in which asyncio and aiohttp look them up, have to end before the loop is closed.  While
DNS hangs, a lookup takes half a minute, and a process that is to end would end by force, as if a function of its
program still ran.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

#: No addresses of a family that this machine has none of; where the system takes only some flags, it says which.
_FLAGS: Final = socket.AI_ADDRCONFIG & getattr(socket, "AI_MASK", -1)
#: Numbers, as they are connected to; those of a link with its zone, which `getaddrinfo` leaves out.
_NUMERIC: Final = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


class Resolver(AbstractResolver):
    """What aiohttp asks for addresses; `looking_up` are the hosts that it waits for."""

    def __init__(self) -> None:
        self.looking_up: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Its addresses, as the system has them.  Raises: OSError."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[ResolveResult]] = loop.create_future()

        def tell(addresses: list[ResolveResult], error: OSError | None) -> None:
            if found.done():
                return
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)

        def run() -> None:
            addresses: list[ResolveResult] = []
            failure: OSError | None = None
            try:
                addresses = _look_up(host, port, family)
            except OSError as error:
                failure = error
            except UnicodeError as error:  # no name of a host can be like that
                failure = _failed(f"{host!r} is no name of a host: {error}")
            except Exception as error:  # whoever waits must be told: all who want this address wait with it
                failure = _failed(f"the address of {host} could not be looked up: {error!r}")
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tell, addresses, failure)

        self.looking_up.append(host)
        try:
            threading.Thread(target=run, name=f"address of {host}", daemon=True).start()
            return await found
        except RuntimeError as error:
            raise _failed(f"the address of {host} could not be looked up: {error}") from error
        finally:
            self.looking_up.remove(host)

    async def close(self) -> None:
        """Nothing is kept open."""


def _failed(text: str) -> OSError:
    return socket.gaierror(socket.EAI_FAIL, text)  # aiohttp tells of an error what `strerror` has


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    try:
        infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, _FLAGS)
    except socket.gaierror:
        if host != "localhost":
            raise
        infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)  # without a network it is there all the same
    found = []
    for kind, _, protocol, _, address in infos:
        number, service = socket.getnameinfo(address, _NUMERIC)
        found.append(
            ResolveResult(
                hostname=host,
                host=number,
                port=int(service),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
        )
    return found
