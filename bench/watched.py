"""`python -m bench.watched --config FILE`: the sharder, which tells how long its requests wait for a connection.

A line of JSON for each `LOOK_SECONDS` goes to the file that WATCHED names; see `Look`.  Its moments
are those of the machine's monotonic clock, so that another process can tell what happened when.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from sharder.cli import main
from shardsdk.kube.sessions import CONNECTIONS, Lane, Sessions
from shardsdk.kube.turns import Turns

#: Names the file in the process's environment.
WATCHED: Final = "BENCH_WATCHED"
LOOK_SECONDS: Final = 0.05


class Look(msgspec.Struct, frozen=True):
    """What was seen at `at` (monotonic); seconds.

    `write_waited`: the longest that a write has waited for a connection since the last look, or waits now.
    """

    at: float
    write_waited: float
    loop_late: float


class WatchedTurns(Turns):
    """Turns that remember how long they were waited for."""

    __slots__ = ("_longest", "_since")

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._longest = 0.0
        self._since: dict[object, float] = {}

    async def take(self, flow: str) -> None:
        """Wait for a turn."""
        who, began = object(), time.monotonic()
        self._since[who] = began
        try:
            await super().take(flow)
        finally:
            del self._since[who]
            self._longest = max(self._longest, time.monotonic() - began)

    def look(self) -> float:
        """The longest that anybody has waited since the last look, or waits now."""
        oldest = next(iter(self._since.values()), time.monotonic())
        found = max(self._longest, time.monotonic() - oldest)
        self._longest = 0.0
        return found


class WatchedSessions(Sessions):
    """Connections of a client that write down a `Look` all the time."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._turns = {lane: WatchedTurns(CONNECTIONS[lane]) for lane in self._turns}
        self._looking = asyncio.create_task(self._look(Path(os.environ[WATCHED])))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._looking.cancel()
        await super().__aexit__(*error)

    async def _look(self, path: Path) -> None:
        turns: Any = self._turns[Lane.WRITES]
        with path.open("ab", buffering=0) as file:
            while True:
                due = time.monotonic() + LOOK_SECONDS
                await asyncio.sleep(LOOK_SECONDS)
                now = time.monotonic()
                file.write(msgspec.json.encode(Look(now, turns.look(), max(now - due, 0.0))) + b"\n")


def read_looks(path: Path, since: float, until: float) -> list[Look]:
    """What was written between two moments (monotonic)."""
    looks = (msgspec.json.decode(line, type=Look) for line in path.read_bytes().splitlines())
    return [look for look in looks if since <= look.at <= until]


if __name__ == "__main__":
    import shardsdk.kube.client as client

    vars(client)["Sessions"] = WatchedSessions
    sys.exit(main())
