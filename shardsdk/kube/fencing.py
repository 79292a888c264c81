"""The fence at the socket, and the books about writes under way.

Every fence is asked once a connection is there and again when the bytes are about
to go; the API server is granted no more time than the shortest hold; and it is
known which writes may still be executed.  No write goes that nobody asked about
(`Guard.sent` proves it was).

Why so late: before a connection is there, seconds may pass (pool, DNS, TLS,
a loop that something blocks), and a fence that was open then means nothing now.

Why in two parts: a process may be suspended between the question and the bytes,
for as long as it likes, and whatever it sends when it wakes would be new to the
API server.  So a fenced write sends its headers first, with `Expect: 100-continue`.
Once the API server has answered that, its own clock runs, by the time that the
headers grant; then the fences are asked, and the body follows.  However late that
body is, the API server has given the write up by the end of the hold.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from yarl import URL

from shardsdk.errors import FenceClosed, ShardingError
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import Clock
from shardsdk.kube.doubts import FenceDoubted, ask_fence, is_doubted
from shardsdk.kube.waits import ANSWER, WAIT
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: Part of a hold that is not granted: the bytes leave some turns of the event loop
#: after the time was computed, and on a busy loop those take long.  Granting less
#: costs nothing; sending too late costs the connection, and a new one is a
#: handshake that makes the loop busier still.
SLACK_SECONDS: Final = 0.05
SLACK_SHARE: Final = 0.25
#: How long the API server may take to say 100, as long as it never has: a proxy before it may swallow the question.
CONTINUE_SECONDS: Final = 2.0
#: So many writes in a row without a 100, and no later one waits for it.
MAX_UNCONFIRMED: Final = 3

#: Attempts at a write that the event loop held up; each was not sent.
SEND_ATTEMPTS: Final = 3

#: How long sent bytes may lack the other side's receipt before the kernel drops them with their connection.
#: Source: Linux, tcp(7); elsewhere there is none.
_TCP_USER_TIMEOUT: Final[int | None] = getattr(socket, "TCP_USER_TIMEOUT", None)


class SentTooLate(ShardingError):
    """The loop, or the API server, was held up between granting time and sending: no body was sent, ask again."""


class Confirmations:
    """Whether an API server says when it has read the headers of a write, and how long to wait for that."""

    __slots__ = ("_missed", "_seen")

    def __init__(self) -> None:
        self._missed = 0
        self._seen = False

    @property
    def patience(self) -> float | None:
        """Seconds; `None`: it has always said so, so it will, and there is no limit."""
        if self._seen:
            return None
        return CONTINUE_SECONDS if self._missed < MAX_UNCONFIRMED else 0.0

    def heard(self) -> None:
        """It has."""
        self._seen = True

    def missed(self) -> None:
        """It has not, and the patience is over."""
        self._missed += 1
        if self._missed == MAX_UNCONFIRMED:
            log.warning("The API server does not confirm fenced writes; is there a proxy before it?")

    async def wait(self, confirmed: asyncio.Future[bool]) -> None:
        """Return once it has, or when the patience is over."""
        await asyncio.wait((confirmed,), timeout=self.patience)
        if confirmed.done():
            self.heard()
        else:
            self.missed()
            confirmed.add_done_callback(lambda late: None if late.cancelled() else self.heard())


class Ledger:
    """Writes that may still be executed: sent, neither answered nor timed out at the API server."""

    __slots__ = ("_clock", "_open", "_waiters", "confirmations")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.confirmations: Confirmations = Confirmations()
        self._open: dict[Guard, float] = {}
        self._waiters: list[asyncio.Future[None]] = []

    def opened(self, write: Guard, until: float) -> None:
        """`write` leaves now; it cannot be executed after `until`, by the monotonic clock."""
        now = self._clock.monotonic()
        self._open = {each: ends for each, ends in self._open.items() if ends > now}
        self._open[write] = until

    def answered(self, write: Guard) -> None:
        """`write` has its answer: it will not be executed later."""
        if self._open.pop(write, None) is None:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def __len__(self) -> int:
        now = self._clock.monotonic()
        return sum(until > now for until in self._open.values())

    async def settled(self) -> None:
        """Wait for the writes that are open now; later ones do not count."""
        mine = set(self._open)
        while True:
            now = self._clock.monotonic()
            mine = {write for write in mine if self._open.get(write, now) > now}
            if not mine:
                return
            await self._change(max(self._open[write] for write in mine) - now)

    async def _change(self, seconds: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        pause = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((waiter, pause), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiters.remove(waiter)
            pause.cancel()


def granted_of(remaining_seconds: float) -> float:
    """How long the API server may take, of a hold that lasts for `remaining_seconds` more; zero or less: not at all."""
    return remaining_seconds - max(SLACK_SECONDS, SLACK_SHARE * remaining_seconds)


def limit_execution(url: URL, granted_seconds: float) -> URL:
    """`url` with this as the time that the API server may take; a `timeout` of the caller's own would beat it."""
    milliseconds = max(math.floor(granted_seconds * 1000), 1)
    return url.without_query_params("timeout").extend_query(timeout=f"{milliseconds}ms")


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A fence whose writes do no harm when they are late, so that they are spared the API server's confirmation.

    It is asked as any other, but a process that is suspended just then may still send the write when it wakes.
    """

    fence: Fence

    @property
    def name(self) -> str:
        """What is fenced."""
        return self.fence.name

    def remaining(self) -> float:
        """Seconds for which writes are allowed."""
        return self.fence.remaining()

    @property
    def doubted(self) -> bool:
        """Whether a renewal may open it again."""
        return is_doubted(self.fence)


class Guard:
    """Leave for one write to be sent; as often as it is sent, it is asked again.

    `sent` says whether bytes may have left: only then may the write be executed.
    """

    __slots__ = ("_clock", "_fences", "_granted", "_ledger", "_until", "_way_seconds", "refused", "sent")

    def __init__(self, fences: Sequence[Fence], limit_seconds: float, clock: Clock, ledger: Ledger) -> None:
        self._fences = fences
        self._until = clock.monotonic() + limit_seconds
        self._clock = clock
        self._ledger = ledger
        self._granted = 0.0
        self._way_seconds = 0.0
        self.refused: ShardingError | None = None
        self.sent: bool = False

    def reset(self) -> None:
        """Before it is sent (again): nobody has been asked yet."""
        self.refused = None
        self.sent = False

    @property
    def fenced(self) -> bool:
        """Whether it is to ask the API server for its confirmation before the body goes."""
        return any(not isinstance(fence, Unconfirmed) for fence in self._fences)

    async def confirmed(self, said: asyncio.Future[bool]) -> None:
        """The headers have gone; return once the API server's clock runs."""
        await self._ledger.confirmations.wait(said)

    def remaining(self) -> float:
        """Seconds that the shortest hold leaves, or the request's own limit.  Raises: FenceClosed."""
        left = max(self._until - self._clock.monotonic(), 0.0)
        for fence in self._fences:
            seconds, doubted = ask_fence(fence)
            if seconds <= SLACK_SECONDS:
                raise (FenceDoubted if doubted else FenceClosed)(
                    f"write refused before it was sent: the hold on {fence.name} has run out"
                )
            left = min(left, seconds)
        return left

    def ask(self) -> float:
        """Ask the fences now: how many seconds the API server may take."""
        remaining = self.remaining()
        self._granted = granted_of(remaining) if self._fences else remaining
        return self._granted

    def grant(self, url: URL) -> URL:
        """Ask the fences now and write into `url` how long the API server may take."""
        return limit_execution(url, self.ask())

    def admit(self) -> bool:
        """Ask once more as the bytes go; `False`: they must not, and `refused` says why."""
        try:
            left = self.remaining()
            if self._fences and left < self._granted:
                raise SentTooLate("the event loop or the API server was held up while a write was about to be sent")
        except ShardingError as error:
            self.refused = error
            return False
        self.sent = True
        # Not only as long as was granted: that counts from its arrival, and etcd may have it in hand at the end.
        self._ledger.opened(self, self._clock.monotonic() + left)
        self._way_seconds = left - self._granted if self._fences else left
        return True

    def limit_way(self, transport: asyncio.BaseTransport | None) -> None:
        """The write is about to go over `transport`: have the kernel drop it if it cannot deliver it in time."""
        if transport is not None:
            limit_way(transport.get_extra_info("socket"), self._way_seconds)


def limit_way(connection: Any, seconds: float) -> None:
    """Have the kernel drop what it cannot deliver over a socket within `seconds`.

    It would go on trying for many minutes, even for a process that has ended or
    is suspended, and the time granted to a write begins only when the API server
    reads it.  This holds until the limit is set anew, for whatever is sent over the
    socket, and for the kernel's own questions whether the other side is there.
    """
    _limit(connection, max(math.floor(seconds * 1000), 1))


def _limit(connection: Any, milliseconds: int) -> None:
    """As `limit_way`; 0: as long as the system goes on trying by itself."""
    if connection is not None and _TCP_USER_TIMEOUT is not None:
        with suppress(OSError):  # no TCP, or broken already
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, milliseconds)


#: The guard of the write that the current task is sending.  aiohttp builds its
#: request objects itself, so this is how they learn of it.
GUARD: Final[ContextVar[Guard | None]] = ContextVar("guard", default=None)


class GuardedRequest(aiohttp.ClientRequest):
    """aiohttp's request, asking the guard where it matters.

    Inherited because aiohttp offers no other place between having a connection
    and writing to it; `request_class` is its documented way in.
    """

    url: URL
    #: aiohttp's own: done when the API server has said 100, `None` if it was not asked to.
    _continue: asyncio.Future[bool] | None

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Called with a live connection in hand."""
        if (wait := WAIT.get()) is not None:
            wait.what, wait.sent_at = ANSWER, asyncio.get_running_loop().time()
        if conn.transport is not None:  # a write that went over it before, and is answered, had a limit of its own
            _limit(conn.transport.get_extra_info("socket"), 0)
        guard = GUARD.get()
        if guard is not None:
            if guard.sent:
                # aiohttp repeats PUT and DELETE by itself.  The first may have been executed.
                raise aiohttp.ServerDisconnectedError("the connection broke before the answer")
            self.url = guard.grant(self.url)
        return await super().send(conn)

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
    ) -> None:
        """Called when headers and body are to go out (every guarded request has a body)."""
        guard = GUARD.get()
        if guard is None:
            await super().write_bytes(writer, conn, content_length)
            return
        if self._continue is not None:
            try:
                writer.send_headers()
                await writer.drain()
                await guard.confirmed(self._continue)
            except (OSError, aiohttp.ClientError) as error:
                # Whoever waits for the answer is told; raised here, nobody might be there to hear it.
                if conn.protocol is not None:
                    conn.protocol.set_exception(error)
                conn.close()
                return
            except BaseException:
                conn.close()  # the API server waits for a body that will not come
                raise
            self._continue = None
        if not guard.admit():
            refused: Any = guard.refused
            if conn.protocol is not None:
                conn.protocol.set_exception(refused)
            conn.close()
            return
        guard.limit_way(conn.transport)
        await super().write_bytes(writer, conn, content_length)


async def send_guarded(
    guard: Guard | None, send: Callable[[], Awaitable[aiohttp.ClientResponse]]
) -> aiohttp.ClientResponse:
    """What `send` is answered, with `guard` asked on the way; a write that was only held up is sent anew.

    Raises: why the guard refused it (nothing was sent; `SentTooLate`: it was held up each time), what `send` raises.
    """
    for _ in range(SEND_ATTEMPTS):
        if guard is not None:
            guard.reset()
        token = GUARD.set(guard)
        try:
            response = await send()
        except (aiohttp.ClientError, OSError, ShardingError) as error:
            refused = error if guard is None or guard.refused is None else guard.refused
            if isinstance(refused, SentTooLate):
                continue
            if refused is error:
                raise
            raise refused from None
        finally:
            GUARD.reset(token)
        check_asked(guard, response)
        return response
    raise SentTooLate(f"not sent: loop or API server held up {SEND_ATTEMPTS} times")


def check_asked(guard: Guard | None, answer: aiohttp.ClientResponse) -> None:
    """Raises: RuntimeError when a write has succeeded that nobody was asked about.

    What the API server refuses without its body was not sent, and needs no question.
    """
    if guard is not None and not guard.sent and answer.status < 300:
        answer.close()
        raise RuntimeError("a write passed its fence unasked: this version of aiohttp does not fit")
