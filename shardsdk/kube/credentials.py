"""Who we are to the API server: the `Authorization` header, always a current one.

Token files are read again (in-cluster ones rotate), exec plugins run again before
their token runs out or once it was rejected, OIDC and GCP providers renew theirs.
A renewal that takes time runs beside the requests, which go on with the old token;
so they do when a renewal fails, and the API server judges it.  A token that has run
out is worth a short wait for the next one, and then judged likewise: a lease's renewal
cannot wait for a slow plugin.

A renewal is no part of the request that needed it: it takes the time it takes (somebody
may have to log in), and who gives up waiting leaves it alone.  It ends with its event loop.

Safe to share between event loops and threads: one renewal runs at a time, and whoever
was rejected meanwhile waits for that one; but not where its loop is blocked or has stopped,
since a lease's renewal would wait for what blocks the program.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from shardsdk.errors import ConfigurationError
from shardsdk.kube.clock import Clock
from shardsdk.logs import logger_of

log: Final = logger_of(__name__)

#: How long a token from a file is used before the file is read again.
#: Source: client-go, transport/token_source.go, cachingTokenSource period.
TOKEN_FILE_PERIOD_SECONDS: Final = 60.0
#: How often a provider is asked whether its token is still good; it decides by expiry.
PROVIDER_PERIOD_SECONDS: Final = 60.0
#: Least time from the end of a renewal to the next, so that a rejected identity does not run its plugin in a loop.
RENEWAL_PAUSE_SECONDS: Final = 5.0
#: How long a request waits for the renewal of a token that has run out, by this machine's clock.
EXPIRED_WAIT_SECONDS: Final = 1.0
#: A loop that has taken no turn for so long is taken for blocked, and its renewal is not waited for.
BLOCKED_SECONDS: Final = 2.0
#: A token is renewed this long before it runs out, or when a fifth of its life is left.
EXPIRY_MARGIN: Final = timedelta(minutes=5)


class Credentials(Protocol):
    """Where the header comes from."""

    async def header(self) -> str | None:
        """The header's value; `None` when requests go without (client certificate, anonymous)."""
        ...

    async def renew(self, rejected: str | None) -> bool:
        """The API server answered 401 to `rejected`; whether there is another value now."""
        ...


@dataclass(frozen=True, slots=True)
class FixedCredentials:
    """A token or password that stays, or nothing."""

    value: str | None = field(default=None, repr=False)

    async def header(self) -> str | None:
        """What was configured."""
        return self.value

    async def renew(self, rejected: str | None) -> bool:
        """Nothing else to offer."""
        return False


class FileCredentials:
    """A bearer token in a file that somebody replaces from time to time."""

    __slots__ = ("_clock", "_path", "_read_at", "_value")

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._value = self._read()
        self._read_at = clock.monotonic()

    async def header(self) -> str | None:
        """The token, read again once a minute."""
        if self._clock.monotonic() - self._read_at >= TOKEN_FILE_PERIOD_SECONDS:
            self._reload()
        return self._value

    async def renew(self, rejected: str | None) -> bool:
        """Read the file now."""
        self._reload()
        return self._value != rejected

    def _reload(self) -> None:
        self._read_at = self._clock.monotonic()
        try:
            self._value = self._read()
        except ConfigurationError as error:
            log.warning("Token file not read, the last token is used", extra={"error": str(error)})

    def _read(self) -> str:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"token file {self._path} cannot be read: {error}") from error
        if not token or not token.isprintable() or any(character.isspace() for character in token):
            raise ConfigurationError(f"token file {self._path} does not hold a token; it must hold nothing else")
        return f"Bearer {token}"


def bearer(token: str) -> str:
    """The header that presents `token`.

    Raises: ValueError for what no header can hold.
    """
    if not token.isprintable():
        raise ValueError("its token holds control characters, which no header can")
    return f"Bearer {token}"


@dataclass(frozen=True, slots=True)
class Issued:
    """What a provider issued; `expires` None: good until it is rejected."""

    header: str | None = field(repr=False)
    expires: datetime | None = None


#: Asks the provider; `rejected` says that its last answer no longer works.
Issue = Callable[[bool], Awaitable[Issued]]


@dataclass(frozen=True, slots=True)
class _Renewal:
    """One that is under way, the how manieth; its task is that of `loop`.  `ended` never fails."""

    loop: asyncio.AbstractEventLoop
    number: int
    ended: Future[None] = field(default_factory=Future)

    def ask(self) -> threading.Event:
        """Set once its loop takes another turn."""
        turned = threading.Event()
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(turned.set)
        return turned


class IssuedCredentials:
    """A token from an exec plugin or an auth provider."""

    __slots__ = (
        "_accepted", "_begun", "_clock", "_issue", "_issued", "_lock", "_period_seconds", "_renew_at", "_renewal",
        "_renewed_at", "_tasks",
    )  # fmt: skip

    def __init__(self, issue: Issue, first: Issued, clock: Clock, *, period_seconds: float | None = None) -> None:
        """Begin with `first`; ask again before it expires, and each `period_seconds` if that is given."""
        self._issue = issue
        self._clock = clock
        self._period_seconds = period_seconds
        self._lock = threading.Lock()
        #: The last that was begun, while it is under way, in whichever loop.
        self._renewal: _Renewal | None = None
        #: How many have been begun, and which of them is the newest that has brought something.
        self._begun = self._accepted = 0
        #: When the last one ended, well or not.
        self._renewed_at = clock.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accept(first)

    async def header(self) -> str | None:
        """The token; a due renewal is started beside it, or awaited for a while if it has run out."""
        now = self._clock.now()
        if self._renew_at is not None and now >= self._renew_at:
            if self._issued.expires is not None and now >= self._issued.expires:
                with suppress(TimeoutError):
                    async with asyncio.timeout(EXPIRED_WAIT_SECONDS):
                        await self._renewed()
            else:
                self._begin(rejected=False)
        return self._issued.header

    async def renew(self, rejected: str | None) -> bool:
        """Ask the provider now, unless somebody just did; a new client certificate counts too."""
        before = self._issued
        if before.header == rejected:
            await self._renewed()
        return self._issued is not before or before.header != rejected

    async def _renewed(self) -> None:
        """Wait until what no longer works is renewed, unless it has just been."""
        renewal = self._begin(rejected=True)
        while renewal is not None:
            turned = renewal.ask()
            with suppress(TimeoutError):
                async with asyncio.timeout(BLOCKED_SECONDS):
                    await asyncio.wrap_future(renewal.ended)
                    return
            if not turned.is_set():
                renewal = self._begin(rejected=True, instead_of=renewal)

    def _begin(self, *, rejected: bool, instead_of: _Renewal | None = None) -> _Renewal | None:
        """The renewal that is under way, begun now if none is but `instead_of`; `None`: one has just been."""
        with self._lock:
            going = self._renewal
            if going is not None and going is not instead_of and not going.loop.is_closed():
                return going
            if self._clock.monotonic() - self._renewed_at < RENEWAL_PAUSE_SECONDS:
                return None
            self._begun += 1
            renewal = self._renewal = _Renewal(asyncio.get_running_loop(), self._begun)
            renewal.ended.set_running_or_notify_cancel()  # now nobody who is cancelled cancels it

        def renewed(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            with self._lock:
                if self._renewal is renewal:
                    self._renewal, self._renewed_at = None, self._clock.monotonic()
            renewal.ended.set_result(None)

        task = asyncio.ensure_future(self._ask(renewal.number, rejected=rejected))
        self._tasks.add(task)
        task.add_done_callback(renewed)
        return renewal

    async def _ask(self, number: int, *, rejected: bool) -> None:
        try:
            issued = await self._issue(rejected)
            with self._lock:
                if number > self._accepted:  # else one that was begun instead of this has been faster
                    self._accepted = number
                    self._accept(issued)
        except ConfigurationError as error:
            log.warning("Credentials not renewed, the last ones are used", extra={"error": str(error)})
        except Exception:  # nobody else would be told: whoever began it may have gone, others wait in other loops
            log.exception("A credential plugin or provider raised; the last credentials are used")

    def _accept(self, issued: Issued) -> None:
        now = self._clock.now()
        self._issued = issued
        due = [now + timedelta(seconds=self._period_seconds)] if self._period_seconds is not None else []
        if issued.expires is not None:
            due.append(issued.expires - min(EXPIRY_MARGIN, (issued.expires - now) / 5))
        self._renew_at: datetime | None = min(due, default=None)
