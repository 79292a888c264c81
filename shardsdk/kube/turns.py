"""Who is next: the connections of a lane, shared out in turns.

aiohttp's pool gives a connection that is free to whoever asks next, not to
whoever has waited longest; with more writers than connections some wait until
their time is over.  So nobody asks the pool before it is their turn.

Guarantees (tests/unit/shardsdk/kube/test_turns.py):

- Within a flow, first come, first served; a turn that is given back goes to
  whoever waits, never to whoever asks just then.
- Between flows, one after the other; and a flow leaves some turns to others, even
  if none of its own ever end.  So one ring whose writes hang keeps no other waiting.
- A turn that is given to somebody who is cancelled meanwhile is not lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from contextvars import ContextVar
from typing import Final

#: What a request belongs to (a ring's name), for turns between rings.  Tasks inherit it from who makes them.
FLOW: Final[ContextVar[str]] = ContextVar("flow", default="")

#: A flow takes another turn only while it has fewer than so many times what is free.  Alone it has up to three
#: quarters of all; k busy flows leave one part of 3k + 1.
#: Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches".
SHARE_OF_FREE: Final = 3


class Turns:
    """`limit` turns at once."""

    __slots__ = ("_free", "_held", "_waiting")

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._held: Counter[str] = Counter()
        #: Flows in the order of their next turns, each with who waits in it.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def held(self) -> int:
        """How many turns are taken."""
        return self._held.total()

    def turn(self) -> Turn:
        """A turn of the current flow; not taken yet."""
        return Turn(self, FLOW.get())

    async def take(self, flow: str) -> None:
        """Wait for a turn."""
        if flow not in self._waiting and self._may_take(flow):
            self._give(flow)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(flow, deque()).append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.give_back(flow)  # it came too late
            else:
                self._forget(flow, waiter)
            raise

    def give_back(self, flow: str) -> None:
        """End a turn of `flow`; whoever is next has it before this returns."""
        self._free += 1
        self._held[flow] -= 1
        if not self._held[flow]:
            del self._held[flow]
        while (after := next(filter(self._may_take, self._waiting), None)) is not None:
            waiters = self._waiting[after]
            waiter = waiters.popleft()
            if waiters:
                self._waiting.move_to_end(after)
            else:
                del self._waiting[after]
            if not waiter.done():  # cancelled, and has not noticed
                self._give(after)
                waiter.set_result(None)

    def _may_take(self, flow: str) -> bool:
        return self._held[flow] < SHARE_OF_FREE * self._free

    def _give(self, flow: str) -> None:
        self._free -= 1
        self._held[flow] += 1

    def _forget(self, flow: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiting.get(flow)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[flow]


class Turn:
    """One request's turn: taken before it is sent, given back once its connection is free again."""

    __slots__ = ("_flow", "_turns", "taken")

    def __init__(self, turns: Turns, flow: str) -> None:
        self._turns = turns
        self._flow = flow
        self.taken: bool = False

    async def take(self) -> None:
        """Wait until it has come."""
        await self._turns.take(self._flow)
        self.taken = True

    def give_back(self) -> None:
        """Let somebody else have it; no matter if it never came."""
        if self.taken:
            self.taken = False
            self._turns.give_back(self._flow)
