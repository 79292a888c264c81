"""The connections of one server that wait for a request, of which those go first that keep it waiting.

Whoever opens connections and says nothing on them would keep everybody else out, and
could take all file descriptors of the process.  Here a connection that has not sent a
whole request is one that waits; there is room for so many of those, and one that has
waited longest is closed for a new one.  Whoever asks regularly opens a connection anew
when one was closed while idle; but one that is closed while a request is on its way costs
the answer, so whoever has never asked anything makes room before whoever has.
"""

from __future__ import annotations

import asyncio


class Waiting:
    """Connections in the order in which they began to wait: those that have been answered, and strangers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._strangers: dict[asyncio.Transport, None] = {}
        self._answered: dict[asyncio.Transport, None] = {}

    def add(self, connection: asyncio.Transport, *, answered: bool = False) -> None:
        """It waits from now on; a stranger that has waited longest makes room.

        Those that have been answered have half of the room for themselves.  Who goes on in the other half makes room
        like a stranger: there is always some for a caller that is new.  One that is being closed is a stranger.
        """
        self.remove(connection)
        (self._answered if answered else self._strangers)[connection] = None
        if len(self._strangers) + len(self._answered) > self._most:
            many = self._answered if len(self._answered) > self._most // 2 else self._strangers
            longest = next(iter(many))
            del many[longest]
            # Not an orderly end: the caller need not take part in it.
            longest.abort()

    def remove(self, connection: asyncio.Transport) -> None:
        """It has sent its request, or is gone."""
        self._strangers.pop(connection, None)
        self._answered.pop(connection, None)
