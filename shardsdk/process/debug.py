"""What objects wait for, over HTTP: `/debug/objects/<namespace>/<name>`, and all that do not rest at `/debug/objects`.

    $ kubectl port-forward my-controller-0 8081 &
    $ curl localhost:8081/debug/objects/default/a
    secrets: default/a: has failed 3 times in a row, the last time with …; tried again in 4 s

The answer is text, or JSON for who accepts `application/json`.  A cluster-scoped
object has no namespace: `/debug/objects/<name>`.

The controllers that run are asked in their own event loop; a server has a thread
and a loop of its own.  Whoever is not on this machine, and forwards no port to it,
is refused unless the manager says otherwise: errors quote what objects say.
`shardsdk explain` asks for you.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol

from shardsdk.cache.objects import Request
from shardsdk.reconcile.explain import Explanation

if TYPE_CHECKING:
    from aiohttp import web

    from shardsdk.lease.shardlease import ShardLease

#: So many objects are listed when nobody says how many, and at most.
LISTED: Final = 100
LISTED_MAX: Final = 1000
#: An event loop that has not answered by then is blocked.
ANSWER_SECONDS: Final = 5.0


class Explains(Protocol):
    """What explains objects: controllers that run together."""

    def explain(self, request: Request) -> list[Explanation]:
        """What an object waits for, in each of its controllers."""
        ...

    def not_at_rest(self, limit: int) -> tuple[list[Explanation], int]:
        """Objects that wait for more than their next event, and how many there are."""
        ...


class DebugObjects:
    """Answers for what `explains`; `to_all`: whoever asks, from wherever.

    Before anything explains it says what is waited for: `lacking()`, by name, and `lease` where one is to be led under.
    """

    def __init__(
        self, *, to_all: bool = False, lacking: Callable[[], Awaitable[Mapping[str, str]]] | None = None
    ) -> None:
        self._to_all = to_all
        self._lacking = lacking
        #: Namespace and name of an election's Lease; `None`: there is no election.
        self.lease: tuple[str, str] | None = None
        #: Of the shard that this process is; `None`: it is none.
        self.shard_lease: ShardLease | None = None
        #: The Leases of the operator's other form, while that is waited for, and who holds them.
        self.held_by_other_form: Callable[[], str] = str
        self._explains: list[Explains] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def answering_for(self, explains: Explains) -> Iterator[None]:
        """Objects of `explains` are answered for within this context, in the event loop that it is entered in."""
        self._loop = asyncio.get_running_loop()
        self._explains.append(explains)
        try:
            yield
        finally:
            self._explains.remove(explains)

    def explain(self, request: Request) -> list[Explanation]:
        """What an object waits for; to be asked in the event loop of the controllers."""
        return [each for explains in self._explains for each in explains.explain(request)]

    def not_at_rest(self, limit: int) -> tuple[list[Explanation], int]:
        """The same of all that do not rest, and how many there are."""
        found: list[Explanation] = []
        total = 0
        for explains in self._explains:
            some, count = explains.not_at_rest(limit - len(found))
            found, total = found + some, total + count
        return found, total

    # -- over HTTP -----------------------------------------------------------

    async def answer_object(self, request: web.Request) -> web.Response:
        """One object; called in the loop of the server."""
        asked = Request(request.match_info.get("namespace", ""), request.match_info["name"])
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        found = await self._in_loop(lambda: self.explain(asked))
        if found is None:
            return _say(503, "the event loop is blocked; /healthz says for how long")
        if not found:
            return _say(503, f"no controller runs here: {await self._waits()}")
        return _render(request, {"objects": [each.as_json() for each in found], "shard": self._shard()}, found)

    async def answer_all(self, request: web.Request) -> web.Response:
        """All that do not rest; called in the loop of the server."""
        limit = request.query.get("limit", str(LISTED))
        digits = limit.isascii() and limit.isdecimal() and len(limit) <= len(str(LISTED_MAX))
        if not digits or not 1 <= int(limit) <= LISTED_MAX:
            return _say(400, f"limit {limit!r} is not a number from 1 to {LISTED_MAX}")
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        answer = await self._in_loop(lambda: self.not_at_rest(int(limit)))
        if answer is None:
            return _say(503, "the event loop is blocked; /healthz says for how long")
        found, total = answer
        first = f"{total} objects wait for more than their next event{_shown(found, total)}"
        return _render(request, {"total": total, "objects": [each.as_json() for each in found]}, found, first)

    def _shard(self) -> dict[str, str] | None:
        lease = self.shard_lease
        if lease is None:
            return None
        return {
            "ring": lease.ring.ring, "name": lease.name, "namespace": lease.namespace, "instance": lease.instance
        }  # fmt: skip

    async def _waits(self) -> str:
        """What keeps the controllers of this process from running."""
        if held := self.held_by_other_form():
            return f"it waits until this operator has ended in its other form, which holds {held}"
        if lacking := await self._lacking() if self._lacking else None:
            waits = "; ".join(f"{name}: {problem}" for name, problem in lacking.items())
            if (lease := self.shard_lease) is None:
                return waits
            return f"{waits}; `kubectl get lease {lease.name} -n {lease.namespace}` says who has this shard's Lease"
        if self.lease is None:
            return "it begins, or is about to end"
        namespace, name = self.lease
        return f"it waits to lead; `kubectl get lease {name} -n {namespace}` says who does, ask that one"

    def _refusal(self, request: web.Request) -> web.Response | None:
        if self._to_all or _by_socket(request):
            return None
        if _is_here(request.remote):
            if _is_named_here(request.headers.get("Host")):
                return None
            return _say(403, "only by this machine's address, or as localhost: a page in a browser could ask otherwise")
        return _say(
            403,
            "only for this machine: use `kubectl port-forward`, or let everybody ask by Manager(debug_to_all=True)",
        )

    async def _in_loop(self, ask: Callable[[], Any]) -> Any:
        """What `ask` says in the controllers' event loop; `None`: that takes no turns, or is not there yet."""

        async def answer() -> Any:
            return ask()

        if self._loop is None:
            return ask()
        asked = asyncio.run_coroutine_threadsafe(answer(), self._loop)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asyncio.wrap_future(asked)
        except TimeoutError:
            return None


def _by_socket(request: web.Request) -> bool:
    """Whether somebody asks by a Unix socket, whose file says who may."""
    return request.transport is not None and isinstance(request.transport.get_extra_info("sockname"), str)


def _is_here(remote: str | None) -> bool:
    """Whether an address is this machine's own."""
    try:
        address = ip_address(remote or "")
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _is_named_here(host: str | None) -> bool:
    """Whether a `Host` is an address, or localhost.

    Any other name may have been made to lead here by whoever has it: a browser takes what it finds for that one's page,
    and hands it over.
    """
    from yarl import URL

    try:
        name = URL(f"http://{host or 'localhost'}").host or ""
        return name == "localhost" or name.endswith(".localhost") or bool(ip_address(name))
    except ValueError:
        return False


def _shown(found: Sequence[Explanation], total: int) -> str:
    return f"; here are {len(found)} (?limit= shows up to {LISTED_MAX})" if len(found) < total else ""


def _say(status: int, text: str) -> web.Response:
    from aiohttp import web

    return web.Response(status=status, text=text + "\n")


def _render(request: web.Request, body: dict[str, Any], found: Sequence[Explanation], first: str = "") -> web.Response:
    from aiohttp import web

    if "application/json" in request.headers.get("Accept", ""):
        return web.json_response(body)
    lines = [first] if first else []
    lines += [f"{each.controller}: {each.text}" for each in found]
    return web.Response(text="\n".join(lines) + "\n")
