"""The client: `Api` against a real API server.

It does not retry what may have been executed, and never reads at resourceVersion 0:
such a list may miss writes and ignores `limit`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import NoneType
from typing import Self, cast

from shardsdk.kube import requests
from shardsdk.kube.api import Api, Fence, ListOptions, Operation, RawRequest, Selection, T, WatchEvent, WatchOptions
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.decoding import codec_of
from shardsdk.kube.discovery import Discovery
from shardsdk.kube.doubts import past_owed
from shardsdk.kube.pace import Pace
from shardsdk.kube.reading import Reader
from shardsdk.kube.server import Access
from shardsdk.kube.sessions import Sessions
from shardsdk.kube.warnings import Warnings
from shardsdk.protocol.objects import Resource


class Client(Api):
    """Speaks to one API server on one event loop: `async with Client(access) as client`.

    `user_agent` is how it introduces itself, if not as `access` does.
    `fence` applies to every write, in addition to those that a call names.
    `qps` is how many requests a second may go, after the first `burst` at once; those
    about Leases are not counted, and wait for no others.
    `on_call` is told verb, HTTP status (0: no answer) and seconds of each request.
    `heed_warnings`: log what the API server warns of; for what can do nothing about it, no.
    """

    def __init__(
        self,
        access: Access,
        *,
        fence: Fence | None = None,
        user_agent: str = "",
        clock: Clock | None = None,
        qps: float | None = None,
        burst: int = 1,
        on_call: Callable[[str, int, float], None] | None = None,
        heed_warnings: bool = True,
    ) -> None:
        super().__init__(self)
        self.access = access
        self._fences: tuple[Fence, ...] = (fence,) if fence is not None else ()
        self._clock = clock = clock or SystemClock()
        self._sessions = Sessions(
            access,
            user_agent=user_agent or access.user_agent,
            clock=clock,
            on_call=on_call,
            pace=Pace(clock, qps=qps, burst=burst),
            warnings=Warnings() if heed_warnings else None,
        )
        self._discovery = Discovery(lambda path: self.exchange(RawRequest("GET", path)), clock)
        self._reader = Reader(self._sessions, self.initial_events, clock)

    async def __aenter__(self) -> Self:
        await self._sessions.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sessions.__aexit__()

    async def send(self, operation: Operation[T]) -> T:
        """One request."""
        call = requests.call_of(operation.fenced(self._fences))
        answer = await self._sessions.fetch(call)
        if operation.model is NoneType:
            return cast("T", None)
        return codec_of(operation.model).decode(call.target, answer)

    def read_pages(self, selection: Selection[T], options: ListOptions) -> AsyncIterator[list[T]]:
        """One request for each page."""
        return self._reader.pages(selection, options)

    def read_stream(self, selection: Selection[T], batch: int) -> AsyncIterator[list[T]]:
        """By initial events where they are served, else in pages."""
        return self._reader.stream(selection, batch)

    def read_events(self, selection: Selection[T], options: WatchOptions) -> AsyncIterator[WatchEvent[T]]:
        """One request that the API server answers for as long as it likes."""
        return self._reader.watch(selection, options)

    async def exchange(self, request: RawRequest) -> bytes:
        """One request as it is given."""
        return await self._sessions.fetch(requests.raw_call(request, self._fences))

    async def discover(self, group: str, plural: str) -> Resource | None:
        """The resource in the preferred version that serves it; `None`: not served."""
        return await self._discovery.find(group, plural)

    @property
    def inflight_writes(self) -> int:
        """How many writes were sent whose outcome is still open."""
        return len(self._sessions.ledger)

    async def writes_settled(self) -> None:
        """Return once every write sent so far is answered, or can no longer be executed.

        So it is for those of the process whose lease this one goes on with.
        """
        await self._sessions.ledger.settled()
        await past_owed(self._fences, self._clock)
