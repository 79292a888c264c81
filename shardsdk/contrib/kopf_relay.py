"""An HTTP session for a program that brings its own Kubernetes client: credentials, TLS and fences are ours.

    async with Relay(access, [lease.fence]) as session:
        lease.settle_first(session.writes_settled)
        response = await session.request("patch", url, json=body, headers=…)

Answers with aiohttp's responses, whatever their status, as an
`aiohttp.ClientSession` would; the fences are asked about every write as its bytes
go, and one that is merely doubted is waited for.  A 401 is never shown: the identity
is renewed once, and a second refusal is a lost connection to the foreign client,
which then does not look for credentials of its own, past the fences.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from shardsdk.kube.api import Fence
from shardsdk.kube.authority import latest_of
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.doubts import past_doubts, past_owed
from shardsdk.kube.fencing import Guard, GuardedRequest, Ledger, SentTooLate, send_guarded
from shardsdk.kube.server import Access
from shardsdk.kube.sessions import CONNECT_SECONDS, KEEPALIVE_SECONDS, REQUEST_SECONDS
from shardsdk.kube.sockets import make_connector

_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_UNAUTHORIZED: Final = 401
#: Behind these answers etcd may still have the write in hand.
_SERVER_ERRORS: Final = 500


class Relay:
    """A session to the API server of `access` on the running loop; every write is fenced by all of `fences`."""

    def __init__(self, access: Access, fences: Sequence[Fence] = ()) -> None:
        self.access = access
        #: Sent with every request; the foreign client may add its own.
        self.headers: dict[str, str] = {"User-Agent": access.user_agent}
        self._fences = tuple(fences)
        self._clock = SystemClock()
        self._ledger = Ledger(self._clock)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = make_connector(limit=0, ssl=self.access.ssl, keepalive_timeout=KEEPALIVE_SECONDS)
        self._session = self.access.open_session(
            connector,
            request_class=GuardedRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close it; twice is once."""
        session, self._session = self._session, None
        if session is not None:
            connector = session.connector
            await session.close()
            if connector is not None:
                await connector.close()

    @property
    def closed(self) -> bool:
        """Whether it is not open."""
        return self._session is None

    async def writes_settled(self) -> None:
        """Return once every write sent so far is answered, or can no longer be executed."""
        await self._ledger.settled()
        await past_owed(self._fences, self._clock)

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: object | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        """The response, its body unread; the caller closes it.

        A write waits for it no longer than it may be executed, whatever `timeout` says.
        Raises: FenceClosed (nothing was sent), aiohttp.ClientError.
        """

        async def attempt(left: float) -> aiohttp.ClientResponse:
            if method.upper() not in _WRITES:
                return await self._request(None, method, url, json, headers or {}, timeout)
            guard = Guard(self._fences, left, self._clock, self._ledger)
            try:
                # kopf would wait for five minutes, and its object with it
                async with asyncio.timeout(guard.remaining()):
                    return await self._request(guard, method, url, json, headers or {}, timeout)
            except TimeoutError as error:
                raise aiohttp.ServerTimeoutError(f"{method} {url}: no answer in time") from error

        return await past_doubts(attempt, self._clock, REQUEST_SECONDS)

    async def _request(
        self,
        guard: Guard | None,
        method: str,
        url: str,
        json: object | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout | None,
    ) -> aiohttp.ClientResponse:
        for _ in range(2):
            credentials = await self.access.headers()
            sent = {**self.headers, **headers, **credentials}
            response = await self._send(guard, method, url, sent, json, timeout)
            if guard is not None and response.status < _SERVER_ERRORS:
                self._ledger.answered(guard)
            if response.status != _UNAUTHORIZED:
                return response
            response.close()
            if not await self.access.credentials.renew(credentials.get("Authorization")):
                break
        raise aiohttp.ClientConnectionError(
            f"{method} {url}: the API server does not accept the identity from {self.access.origin}"
        )

    async def _send(
        self,
        guard: Guard | None,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: object | None,
        timeout: aiohttp.ClientTimeout | None,
    ) -> aiohttp.ClientResponse:
        options: dict[str, Any] = dict(self.access.request_options)
        if timeout is not None:
            options["timeout"] = timeout
        if body is not None or guard is not None:
            # A guarded request has a body in any case: that is where it is asked for the last time.
            options["data"] = jsonlib.dumps({} if body is None else body).encode()
            headers = {"Content-Type": "application/json", **headers}
        session = self._session
        if session is None:
            raise aiohttp.ClientConnectionError("the session is closed")

        async def send() -> aiohttp.ClientResponse:
            fenced = guard is not None and guard.fenced
            return await session.request(
                method.upper(),
                URL(url),
                headers=[*headers.items(), *self.access.impersonation],
                allow_redirects=False,
                expect100=fenced,
                ssl=latest_of(self.access.ssl),
                **options,
            )

        try:
            return await send_guarded(guard, send)
        except SentTooLate as error:
            raise aiohttp.ClientConnectionError(str(error)) from None
