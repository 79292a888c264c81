"""One HTTP exchange with the API server.

A request goes with current credentials, through the fences when it writes, waits as long as Retry-After says on 429
(such a request was not executed) if it has the time, and renews the identity once on 401.  Everything else that is no
success becomes one of the project's errors; nothing whose outcome is unknown is tried again.

Leases, reads, pages of lists, writes and watches each have connections of their own, so that
however many objects are written or watched, no lease renewal and no read that an
admission request waits for has to wait for a connection.  Within a lane they are
taken in turns (`shardsdk.kube.turns`).  The pace (`shardsdk.kube.pace`) holds up all
but leases: a lease that waits behind the writes that it covers is lost to them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final, Self
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from shardsdk.errors import ApiError, ConnectionFailed, TooManyRequests, Unauthorized, may_be_executed
from shardsdk.kube.answers import Target, explain
from shardsdk.kube.api import Fence
from shardsdk.kube.authority import latest_of
from shardsdk.kube.clock import Clock
from shardsdk.kube.doubts import past_doubts
from shardsdk.kube.fencing import Guard, GuardedRequest, Ledger, SentTooLate, send_guarded
from shardsdk.kube.lapses import ServerClock, lapses_of, parse_date
from shardsdk.kube.openstreams import OpenStreams
from shardsdk.kube.outage import Outage, remedy_of
from shardsdk.kube.pace import Pace
from shardsdk.kube.received import read_whole, words_of
from shardsdk.kube.resolver import Resolver
from shardsdk.kube.server import Access
from shardsdk.kube.sockets import doubt_idle, make_connector
from shardsdk.kube.turns import Turn, Turns
from shardsdk.kube.waits import ADDRESS, ANSWER, CONNECTION, WAIT, Unanswered, Wait
from shardsdk.kube.warnings import Warnings
from shardsdk.logs import logger_of
from shardsdk.protocol.objects import LEASES

log: Final = logger_of(__name__)

#: How long a request may take in all, waiting for a connection and for 429 included.
REQUEST_SECONDS: Final = 30.0
#: TCP and TLS to an API server that answers; one that is stopped accepts and says nothing.
CONNECT_SECONDS: Final = 10.0
#: Whoever has waited so long for an answer, and gives up, does not try connections that were idle meanwhile.
SILENT_SECONDS: Final = 0.5


class Lane(Enum):
    """What shares connections."""

    LEASES = "leases"
    READS = "reads"
    PAGES = "pages"
    WRITES = "writes"
    STREAMS = "streams"


#: How many there may be.  Three quarters of them for one flow (see `turns`): 48 writes at once are more than a
#: process of Python keeps busy.
CONNECTIONS: Final = {Lane.LEASES: 16, Lane.READS: 128, Lane.PAGES: 16, Lane.WRITES: 64, Lane.STREAMS: 1_024}
#: Idle connections are dropped by us before the API server drops them (90 s).
#: Source: Go net/http, IdleTimeout of k8s.io/apiserver.
KEEPALIVE_SECONDS: Final = 60.0
#: What aiohttp reads ahead; a watch is decoded in pieces of at most twice that.
READ_BUFFER_BYTES: Final = 256 * 1024
#: Attempts at a request that is answered with 429 and Retry-After.
ATTEMPTS: Final = 6


@dataclass(frozen=True, slots=True)
class Call:
    """One request.  `fences` is `None` for what does not write."""

    target: Target
    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    fences: Sequence[Fence] | None = None
    timeout_seconds: float = REQUEST_SECONDS
    #: A page of a list.  Large answers have few connections: each keeps a buffer as large as the largest that it has
    #: brought, and idle ones take turns, so one list would make all of them large.
    page: bool = False
    #: Whether it can be asked for again with less in it, should it be large.
    divisible: bool = False

    @property
    def lane(self) -> Lane:
        """Whose connections it uses, unless it is a watch."""
        if self.target.resource == LEASES.plural and self.target.group == LEASES.group:
            return Lane.LEASES
        if self.page:
            return Lane.PAGES
        return Lane.READS if self.fences is None else Lane.WRITES


class Answer(aiohttp.ClientResponse):
    """aiohttp's response, remembering its connection: a small one has given it back to the pool before we can look.

    Inherited because `response_class` is aiohttp's documented way in.
    """

    came_over: ResponseHandler | None = None

    async def start(self, connection: Connection) -> Self:
        """Called with the connection that the answer comes over."""
        self.came_over = connection.protocol
        await super().start(connection)
        return self

    def close_connection(self) -> None:
        """Have nobody use that connection again."""
        self.close()
        if self.came_over is not None:
            self.came_over.close()


class Sessions:
    """Sessions to one API server; use it as a context manager, on one event loop."""

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str,
        clock: Clock,
        on_call: Callable[[str, int, float], None] | None,
        pace: Pace,
        warnings: Warnings | None,
    ) -> None:
        self.access = access
        self.ledger: Ledger = Ledger(clock)
        self.streams: OpenStreams = OpenStreams(access.host)
        self._clock = clock
        self._on_call = on_call
        self._outage = Outage(access.host, clock)
        self._pace = pace
        self._lapses = lapses_of(clock)
        self._server_clock = ServerClock()
        #: How far apart the clocks were that its log has told of.
        self._told_apart = 0.0
        self._warnings = warnings
        self._connections: WeakKeyDictionary[ResponseHandler, int] = WeakKeyDictionary()
        self._numbers = itertools.count()
        self._headers = {
            "Accept": "application/json",
            # Compressing costs both sides more than it saves inside a cluster, and blocks the loop.
            "Accept-Encoding": "identity",
            "User-Agent": user_agent,
        }
        self._resolver = Resolver()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: dict[Lane, aiohttp.ClientSession] = {}
        self._turns: dict[Lane, Turns] = {}

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self.streams.run_on(self._loop)
        self._sessions = {lane: self._open(limit) for lane, limit in CONNECTIONS.items()}
        self._turns = {lane: Turns(limit) for lane, limit in CONNECTIONS.items() if lane is not Lane.STREAMS}
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._sessions.values():
            connector = session.connector
            await session.close()
            if connector is not None:
                await connector.close()
        self._sessions, self._loop = {}, None
        self.streams.run_on(None)

    def _open(self, limit: int) -> aiohttp.ClientSession:
        connector = make_connector(
            limit=limit,
            ssl=self.access.ssl,
            keepalive_timeout=KEEPALIVE_SECONDS,
            happy_eyeballs_delay=0.25,
            resolver=self._resolver,
        )
        return self.access.open_session(
            connector,
            headers=self._headers,
            request_class=GuardedRequest,
            response_class=Answer,
            read_bufsize=READ_BUFFER_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        )

    async def fetch(self, call: Call) -> bytes:
        """Send `call`, return the body of its success.  Raises: ApiError, ConnectionFailed, FenceClosed."""
        return await past_doubts(partial(self._fetch, call), self._clock, call.timeout_seconds)

    async def _fetch(self, call: Call, limit: float) -> bytes:
        guard = None
        if call.fences is not None:
            guard = Guard(call.fences, limit, self._clock, self.ledger)
            limit = guard.remaining()
        self._check_loop()
        turn = self._turns[call.lane].turn()
        wait = Wait(self._clock.monotonic() + limit)
        try:
            async with asyncio.timeout(limit):
                response = await self._succeed(call, guard, turn, wait)
                try:
                    body = await read_whole(response, call.target, divisible=call.divisible)
                finally:
                    response.release() if response.content.at_eof() else response.close()
        except (TimeoutError, asyncio.CancelledError) as error:  # whoever renews a lease limits that by itself
            silent = wait.what == ANSWER and asyncio.get_running_loop().time() - wait.sent_at >= SILENT_SECONDS
            if silent and (session := self._sessions.get(call.lane)) is not None:
                doubt_idle(session.connector, wait.sent_at)
                self.streams.unanswered(wait.sent_at)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise self._too_late(call, wait, limit) from error
        finally:
            turn.give_back()
        if guard is not None:
            self.ledger.answered(guard)
        return body

    async def open(self, call: Call, *, answer_seconds: float) -> aiohttp.ClientResponse:
        """The successful response to a watch, its body unread; the caller closes it.

        Raises: ApiError; ConnectionFailed when no answer begins within `answer_seconds`.
        """
        self._check_loop()
        wait = Wait(self._clock.monotonic() + answer_seconds)
        try:
            async with asyncio.timeout(answer_seconds):
                return await self._succeed(call, None, None, wait)
        except TimeoutError as error:
            raise self._too_late(call, wait, answer_seconds) from error

    def _too_late(self, call: Call, wait: Wait, seconds: float) -> ConnectionFailed:
        what, of = wait.what, self.access.host
        if what == CONNECTION and self._resolver.looking_up:
            what, of = ADDRESS, self._resolver.looking_up[0]
        said = f"no {what} {of} within {seconds:.1f} s"
        if what in (ADDRESS, CONNECTION, ANSWER):  # the rest it waits for is this process's own
            self._outage.failed(said)
        return (Unanswered if what == ANSWER else ConnectionFailed)(f"{call.target}: {said}")

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:  # its connections would break, for others as well
            raise RuntimeError(
                "the client is not open on this event loop: use it as `async with Client(...) as client`, and elsewhere"
                " (asyncio.run in a plain function) by ctx.run or asyncio.run_coroutine_threadsafe"
            )

    async def _succeed(self, call: Call, guard: Guard | None, turn: Turn | None, wait: Wait) -> aiohttp.ClientResponse:
        """The response, its body unread; `turn` (`None`: a stream) is taken with it, for the caller to give back.

        Raises: TooManyRequests rather than wait for longer than it may, where nobody would learn of it.
        """
        attempts, renewed = 0, False  # a renewal is one more request, and no attempt
        while True:
            if call.lane is not Lane.LEASES:
                wait.what = "turn by its own qps to ask"
                await self._pace.wait()
            wait.what = "credentials to show to"
            credentials = await self.access.headers()
            if turn is not None:
                wait.what = "connection was free to"
                await turn.take()
            token = WAIT.set(wait)
            try:
                response = await self._send(call, guard, credentials, stream=turn is None)
            finally:
                WAIT.reset(token)
            if response.status < 500 and response.status != 429:  # else a watch that ends might not begin anew
                self.streams.answered(wait.sent_at)
            if 200 <= response.status < 300:
                return response
            error = await self._refuse(call, response)
            if turn is not None:
                turn.give_back()
            if guard is not None and not may_be_executed(error):
                self.ledger.answered(guard)
            if isinstance(error, Unauthorized) and not renewed:
                renewed = True
                wait.what = "other credentials to show to"
                if await self.access.credentials.renew(credentials.get("Authorization")):
                    continue
            attempts += 1
            pause = error.retry_after_seconds if isinstance(error, TooManyRequests) else None
            if not pause or attempts == ATTEMPTS or self._clock.monotonic() + pause >= wait.until:
                raise error
            wait.what = "end of the pause that was asked for by"  # it has answered: no connection is silent
            await self._clock.sleep(pause)

    async def _refuse(self, call: Call, response: aiohttp.ClientResponse) -> ApiError:
        """Read an answer that is no success."""
        try:
            body = await read_whole(response, call.target)
        finally:
            # A rejected client certificate belongs to the connection: do not use that one again.
            if response.status == 401 and isinstance(response, Answer):
                response.close_connection()
            else:
                response.release()
        return explain(call.target, response.status, body, response.headers)

    async def _send(
        self, call: Call, guard: Guard | None, credentials: Mapping[str, str], *, stream: bool
    ) -> aiohttp.ClientResponse:
        async def send() -> aiohttp.ClientResponse:
            began = self._clock.monotonic()
            sent = began + self._lapses.least
            status = 0
            try:
                response = await self._request(call, guard, credentials, stream=stream)
                status = response.status
                self._outage.answered()
                self._compare_clocks(response, sent)
                if self._warnings is not None:
                    self._warnings.tell(call.target, response.headers.getall("Warning", ()))
                return response
            finally:
                if self._on_call is not None:  # status 0: no answer
                    self._on_call(call.target.verb.lower(), status, self._clock.monotonic() - began)

        try:
            return await send_guarded(guard, send)
        except SentTooLate as error:
            raise ConnectionFailed(f"{call.target}: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            said = words_of(error) + remedy_of(error, self.access)
            self._outage.failed(said)
            raise ConnectionFailed(f"{call.target}: {self.access.host}: {said}") from error

    def _compare_clocks(self, response: aiohttp.ClientResponse, sent: float) -> None:
        """Notice from an answer that this machine was stopped together with its clocks."""
        if not hasattr(self._clock, "lapses"):
            return
        date = parse_date(response.headers.get("Date", ""))
        connection = response.came_over if isinstance(response, Answer) else None
        if date is None or connection is None:
            return
        number = self._connections.setdefault(connection, next(self._numbers))
        missed = self._server_clock.compare(number, sent, self._clock.monotonic, date, self._lapses)
        if about := missed.seconds:
            log.warning("This machine was stopped for about %.1f s; leases are confirmed before the next write", about)
        if (apart := self._server_clock.apart) > 2 * self._told_apart:
            self._told_apart = apart
            log.warning(
                "The clock of the API server %s goes to and fro by up to %.1f s, and stops of this machine of up to"
                " %.1f s may go unnoticed; are the clocks of your API servers right?",
                self.access.host,
                apart,
                self._server_clock.hides_seconds,
            )

    async def _request(
        self, call: Call, guard: Guard | None, credentials: Mapping[str, str], *, stream: bool
    ) -> aiohttp.ClientResponse:
        self._check_loop()  # it may have been closed meanwhile
        query = f"?{urlencode(call.query)}" if call.query else ""
        return await self._sessions[Lane.STREAMS if stream else call.lane].request(
            call.method,
            URL(f"{self.access.host}{call.path}{query}", encoded=True),
            data=call.body,
            headers=[*{**call.headers, **credentials}.items(), *self.access.impersonation],
            allow_redirects=False,
            expect100=guard is not None and guard.fenced,
            ssl=latest_of(self.access.ssl),
            **self.access.request_options,
        )
