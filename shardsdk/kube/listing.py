"""Lists in pages, into a mirror, and who waits for which list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from shardsdk.errors import (
    ConnectionFailed,
    ServerError,
    ShardingError,
    StreamInterrupted,
    TooManyRequests,
    Unauthorized,
)
from shardsdk.kube.api import Api, Selection, Unfit, WatchEvent, WatchKind
from shardsdk.kube.identity import identify
from shardsdk.kube.mirror import Listing, Mirror
from shardsdk.kube.waits import Unanswered
from shardsdk.protocol.objects import PartialObject

T = TypeVar("T")

#: Events handled before other tasks get a turn.
TURN_EVENTS: Final = 128


class Epochs:
    """Which complete lists were asked for, by number, and who waits for them."""

    __slots__ = ("_listed", "_waiters", "latest")

    def __init__(self) -> None:
        #: The number of the latest that was asked for.
        self.latest: int = 0
        self._listed = -1
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def complete(self, number: int) -> None:
        """A list that was begun when `number` was the latest is complete."""
        self._listed = number
        for wanted, waiter in self._waiters:
            if wanted <= number and not waiter.done():
                waiter.set_result(None)

    async def listed(self, number: int) -> None:
        """Wait until one is that was begun when `number`, or a later one, was the latest."""
        if self._listed >= number:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (number, waiter)
        self._waiters.append(entry)
        try:
            await waiter
        finally:
            self._waiters.remove(entry)


async def list_into(
    mirror: Mirror[T],
    listing: Listing,
    api: Api,
    selection: Selection[T],
    *,
    name: str,
    takes: Callable[[object], bool],
) -> str:
    """Apply all that is selected and that `takes` takes; the list's version.

    Raises: StreamInterrupted and whatever else a list may raise; then a part of it was applied.
    """
    versions: list[str] = []

    def leave_out(unfit: Unfit) -> None:
        if takes(PartialObject(unfit.metadata)):
            mirror.apply(WatchEvent(WatchKind.BOOKMARK, None, "", unfit=unfit), listing)

    pages = api.pages(
        selection.resource,
        selection.namespace,
        selector=selection.selector,
        model=selection.model,
        metadata_only=selection.metadata_only,
        on_version=versions.append,
        on_unfit=leave_out,
    )
    async with closing(pages):
        async for page in pages:
            for count, thing in enumerate(page, start=1):
                if takes(thing):
                    mirror.apply(WatchEvent(WatchKind.ADDED, thing, identify(thing).resource_version), listing)
                if count % TURN_EVENTS == 0:
                    await asyncio.sleep(0)
    if not versions or not versions[0]:
        raise StreamInterrupted(f"{name}: the list came without a resourceVersion")
    return versions[0]


async def forget_unseen(mirror: Mirror[T], listing: Listing) -> None:
    """The list is complete: what it has not shown has vanished."""
    for count, key in enumerate(mirror.unseen(listing), start=1):
        mirror.forget(key)
        if count % TURN_EVENTS == 0:
            await asyncio.sleep(0)


def leaves_position(error: ShardingError, *, opened: bool, unheard: bool) -> bool:
    """Whether an error says nothing about the version that a watch began at; `opened`: the watch was accepted.

    `unheard`: there was a list, and watches since have had no answer.  Where lists are answered and watches are not, as
    behind a proxy that holds answers back until they are complete, only lists tell what is new.
    """
    match error:
        case Unanswered():
            return not unheard
        case ConnectionFailed() | StreamInterrupted() | TooManyRequests() | Unauthorized():
            return True
        case ServerError():
            return not opened
        case _:
            return False


@asynccontextmanager
async def closing(stream: AsyncIterator[object]) -> AsyncIterator[None]:
    """Close the connection under `stream` when the block is left, not when it is collected."""
    try:
        yield
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
