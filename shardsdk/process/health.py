"""Health, readiness and metrics over HTTP, for probes and for Prometheus.

Answers /healthz and /readyz from named checks (`?verbose` lists them,
`/readyz/<name>` asks one) and /metrics from a function.  A check that raises
counts as failed, and so does a threaded one that takes long; nobody else waits for
it.  No request bodies; TLS and a guard of the metrics where they
are handed in.

A server can live in a thread of its own (`serve_in_thread`), so that it still
answers, and says so, when the main loop is blocked; checks must then be safe to
call from another thread.
"""

from __future__ import annotations

import asyncio
import errno
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shardsdk.errors import ConfigurationError
from shardsdk.kube.access import in_pod
from shardsdk.logs import logger_of
from shardsdk.process.accepting import Acceptor, Tls, listen_at_each
from shardsdk.process.waiting import Waiting
from shardsdk.protocol.names import before_port

if TYPE_CHECKING:
    from aiohttp import web

log: Final = logger_of(__name__)

#: A check: `None` when all is well, else what is wrong, in a few words.
Check = Callable[[], str | None]
#: Renders the metrics, or has them rendered while the server goes on: content type and body.
RenderMetrics = Callable[[], tuple[str, bytes] | Awaitable[tuple[str, bytes]]]
#: Says why whoever sent this Authorization header may not read the metrics; `None`: they may.
Guard = Callable[[str], Awaitable["Refusal | None"]]
#: Answers a request for any other path.
Answer = Callable[["web.Request"], Awaitable["web.Response"]]

#: So long a threaded check may take.
CHECK_SECONDS: Final = 1.0
#: Nobody sends these endpoints a body; aiohttp refuses larger ones.
MAX_REQUEST_BYTES: Final = 1024
#: Connections of one server that wait for a request, as many handshakes, and as many requests for each path at once:
#: probes and scrapers are few.  The oldest makes room, but for a request that is being answered.
CONNECTIONS_MAX: Final = 100
#: How long one may be idle: longer than between two scrapes.
IDLE_SECONDS: Final = 180.0
#: How long a stopping server waits for its last answers.
_STOP_SECONDS: Final = 1.0
#: An IPv6 address has colons of its own, so it stands in brackets.
_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{1,5})")
#: How long a server in a thread may take to bind its port.
_START_SECONDS: Final = 10.0
_REFUSED: Final[Mapping[int, Mapping[str, str]]] = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; `host` empty: everywhere, `port` 0: any free one.

    `socket` is the path of a Unix socket instead: who may open that file may ask.
    """

    host: str
    port: int = 0
    socket: str = ""

    def __str__(self) -> str:
        return self.socket or f"{before_port(self.host)}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Read `host:port`, `:port` or `[v6]:port` as Go programs write it; `None` for "" and "0": do not listen.

    `unix:/path` is a Unix socket.  Raises: ConfigurationError for anything else.
    """
    if text in ("", "0"):
        return None
    if not isinstance(text, str):
        raise ConfigurationError(f'address {text!r} is no text: write it as "{f":{text}" if text else 0}"')
    if text.startswith("unix:/"):
        return Address("", socket=str(Path(text.removeprefix("unix:"))))
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ConfigurationError(
            f'address {text!r} is not "host:port"; write for example ":8081", "127.0.0.1:8081", "[::1]:8081", or "0" to'
            " disable"
        )
    return Address(match["six"] or match["host"] or "", int(match["port"]))


def listen_at(health: str | None, metrics: str | None) -> list[Address | None]:
    """The addresses for health and for metrics; `None`: where a pod's probes and Prometheus look, elsewhere nowhere.

    Raises: ConfigurationError.
    """
    defaults = (":8081", ":8080") if in_pod() else ("0", "0")
    given = zip((health, metrics), defaults, strict=True)
    return [parse_address(default if text is None else text) for text, default in given]


class Checks:
    """Named checks; all must pass.  Without any, all is well."""

    def __init__(self, checks: Mapping[str, Check] | None = None) -> None:
        self._checks: dict[str, Check | _Threaded] = dict(checks or {})

    def add(self, name: str, check: Check, *, threaded: bool = False) -> None:
        """Add a check; one that might block is to be `threaded`.

        Raises: ConfigurationError when there is one of that name: either would go unasked, and nobody know.
        """
        if name in self._checks:
            raise ConfigurationError(f"there are two checks called {name!r}: give the one that is yours another name")
        self._checks[name] = _Threaded(name, check) if threaded else check

    @property
    def names(self) -> list[str]:
        """What they are called."""
        return sorted(self._checks)

    async def ask(self, *names: str) -> dict[str, str | None]:
        """The answers by name, of all or of these."""
        asked = {name: check for name, check in self._checks.items() if not names or name in names}
        answers = await asyncio.gather(*(_answer(name, check) for name, check in asked.items()))
        return dict(zip(asked, answers, strict=True))

    async def failing(self) -> dict[str, str]:
        """The checks that fail, and why."""
        return {name: problem for name, problem in (await self.ask()).items() if problem is not None}


class _Threaded:
    """A check that is asked in a thread; one that hangs is not asked again before it has ended."""

    def __init__(self, name: str, check: Check) -> None:
        self._name = name
        self._check = check
        #: Guards what follows: each server asks from a thread of its own.
        self._lock: Final = threading.Lock()
        self._answer: Future[str | None] | None = None
        #: The one that somebody has waited for in vain.
        self._late: Future[str | None] | None = None

    async def ask(self) -> str | None:
        with self._lock:
            if self._answer is None or self._answer.done():
                answer: Future[str | None] = Future()
                # Running, or whoever tires of waiting would cancel it for all.
                answer.set_running_or_notify_cancel()
                # No pool: a process that ends waits for the threads of one.
                threading.Thread(target=self._run, args=(answer,), name=f"check {self._name}", daemon=True).start()
                self._answer = answer
            asked = self._answer
        late = f"did not answer within {CHECK_SECONDS:g} s"
        if asked is self._late:
            return late  # each probe that waited would be remembered by it for as long as it hangs
        try:
            return await asyncio.wait_for(asyncio.wrap_future(asked), CHECK_SECONDS)
        except TimeoutError:
            self._late = asked
            return late

    def _run(self, answer: Future[str | None]) -> None:
        try:
            answer.set_result(_ask(self._name, self._check))
        except BaseException as error:  # a panic in an extension module, say; nobody else would ever answer
            answer.set_result(_raised(self._name, error))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered: an HTTP status, and what its sender can do."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What a server answers; `None`: that path is not found."""

    healthz: Checks | None = None
    readyz: Checks | None = None
    metrics: RenderMetrics | None = None
    #: Anything else, by path; called in the server's event loop.
    more: Mapping[str, Answer] = field(default_factory=dict)
    #: What people set to have it elsewhere.
    setting: str = "its address"
    #: Asked before the metrics are shown; `None`: everybody may read them.
    guard: Guard | None = None

    @property
    def purpose(self) -> str:
        """What it is for, in a message."""
        probed = "health" if self.healthz or self.readyz else ""
        return " and ".join(filter(None, (probed, "metrics" if self.metrics else ""))) or "questions"


@asynccontextmanager
async def serve(address: Address, endpoints: Endpoints, tls: Tls | None = None) -> AsyncIterator[int]:
    """Listen while the context lasts, over TLS if it is given; gives the port (a Unix socket has none).

    Raises: ConfigurationError when the address cannot be listened on.
    """
    from shardsdk.process.answering import Connection, make_runner  # aiohttp's server costs a tenth of a second

    waiting = Waiting(CONNECTIONS_MAX)
    runner = make_runner(_routes(endpoints), MAX_REQUEST_BYTES, _STOP_SECONDS, CONNECTIONS_MAX)
    await runner.setup()
    try:
        port, close = await _listen(address, endpoints, tls, partial(Connection, waiting, runner, IDLE_SECONDS))
        try:
            yield port
        finally:
            close()
    finally:
        await runner.cleanup()
        _remove(address)


async def _listen(
    address: Address, endpoints: Endpoints, tls: Tls | None, make: Callable[[], asyncio.Protocol]
) -> tuple[int, Callable[[], None]]:
    """The port, and what ends it."""
    try:
        if address.socket:
            server = await asyncio.get_running_loop().create_unix_server(make, address.socket)
            return 0, server.close
        listeners = await listen_at_each(address.host, address.port)
    except OSError as error:
        raise ConfigurationError(_explain(address, endpoints, error)) from error
    acceptors = [Acceptor(listener, tls, make, CONNECTIONS_MAX) for listener in listeners]

    def close() -> None:
        for acceptor in acceptors:
            acceptor.close()

    return listeners[0].getsockname()[1], close


def _routes(endpoints: Endpoints) -> dict[str, Answer]:
    routes: dict[str, Answer] = {}
    for name, checks in (("healthz", endpoints.healthz), ("readyz", endpoints.readyz)):
        if checks is not None:
            routes[f"/{name}"] = routes[f"/{name}/{{check}}"] = partial(_answer_checks, name, checks)
    if endpoints.metrics is not None:
        routes["/metrics"] = partial(_answer_metrics, endpoints.metrics, endpoints.guard)
    return routes | dict(endpoints.more)


def _explain(address: Address, endpoints: Endpoints, error: OSError) -> str:
    what, setting = f"cannot listen on {address} for {endpoints.purpose}", endpoints.setting
    if address.socket:
        return f"{what}: {error}; remove that file, or set {setting} to another"
    return f"{what}: {explain_listening(error, address.port, setting, f'the port of {setting}')}"


def explain_listening(error: OSError, port: int, host_setting: str, port_setting: str) -> str:
    """Why a port cannot be listened on, and what to do about it."""
    match error.errno:
        case errno.EADDRINUSE:
            who = f"another process does, or another part of this one (`lsof -nP -iTCP:{port} -sTCP:LISTEN` says which)"
            return f"{who}; stop it or set {port_setting} to a free port"
        case errno.EACCES:
            return f"not permitted; set {port_setting} to 1024 or higher"
        case errno.EADDRNOTAVAIL:
            return f"this machine has no such address; correct {host_setting}"
        case _:
            return f"{error}; check {' and '.join(dict.fromkeys((host_setting, port_setting)))}"


@contextmanager
def serve_in_thread(address: Address, endpoints: Endpoints) -> Iterator[int]:
    """The same from a thread with an event loop of its own; gives the port.

    Raises: ConfigurationError when the address cannot be listened on.
    """
    started: Future[tuple[int, Callable[[], object]]] = Future()

    async def main() -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with serve(address, endpoints) as port:
                started.set_result((port, lambda: loop.call_soon_threadsafe(stopped.set)))
                await stopped.wait()
        except Exception as error:
            if started.done():
                log.exception("The health server failed", extra={"address": str(address)})
            else:
                started.set_exception(error)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="health", daemon=True)
    thread.start()
    try:
        port, stop = started.result(_START_SECONDS)
    except TimeoutError as error:
        raise ConfigurationError(f"listening on {address} took longer than {_START_SECONDS:.0f} s") from error
    try:
        yield port
    finally:
        stop()
        thread.join(_STOP_SECONDS + 1.0)


def _remove(address: Address) -> None:
    """Older Pythons leave a Unix socket's file behind."""
    if address.socket:
        Path(address.socket).unlink(missing_ok=True)


async def _answer(name: str, check: Check | _Threaded) -> str | None:
    return await check.ask() if isinstance(check, _Threaded) else _ask(name, check)


def _ask(name: str, check: Check) -> str | None:
    try:
        return check()
    except (Exception, SystemExit) as error:
        return _raised(name, error)


def _raised(name: str, error: BaseException) -> str:
    log.error("A health check raised", extra={"check": name}, exc_info=error)
    return f"{type(error).__name__}: {error}"


async def _answer_checks(endpoint: str, checks: Checks, request: web.Request) -> web.Response:
    from aiohttp import web

    wanted = request.match_info.get("check")
    if wanted is not None and wanted not in checks.names:
        return web.Response(status=404, text=f"no check {wanted!r}; there are: {', '.join(checks.names)}\n")
    results = await checks.ask(*filter(None, (wanted,)))
    failed = any(problem is not None for problem in results.values())
    if not failed and "verbose" not in request.query:
        return web.Response(text="ok")
    lines = [
        f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}" for name, problem in results.items()
    ]
    lines.append(f"{endpoint} check {'failed' if failed else 'passed'}")
    return web.Response(status=500 if failed else 200, text="\n".join(lines) + "\n")


async def _answer_metrics(render: RenderMetrics, guard: Guard | None, request: web.Request) -> web.Response:
    from aiohttp import web

    refusal = await guard(request.headers.get("Authorization", "")) if guard is not None else None
    if refusal is not None:
        headers = _REFUSED.get(refusal.status, {})
        return web.Response(status=refusal.status, text=f"{refusal.message}\n", headers=headers)
    rendered = render()
    content_type, body = await rendered if isinstance(rendered, Awaitable) else rendered
    return web.Response(body=body, headers={"Content-Type": content_type})
