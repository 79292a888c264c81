"""Where an item of a work queue is: what the queue answers when it is asked, and what it is asked with.

It is apart from the queue so that whoever explains an object needs no event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Priority(IntEnum):
    """Which items come first: smaller is sooner.

    `FRESH` is what has changed, `BULK` what was listed (at a start, with what a shard is given by a range) and what a
    timer brings.  An item that comes back, by `Requeue`, `RequeueAfter` or an error, has the priority it had, unless it
    is named another; a change makes it fresh.  While fresh items wait, bulk items keep a share of the turns, and a
    greater one once they have waited for long (docs/sdk/reconciles.md).
    """

    FRESH = 0
    BULK = 1


@dataclass(frozen=True, slots=True)
class ItemState:
    """An item as its queue has it; moments are monotonic, `None`: it does not.

    `queued_since` it waits to be handed out with `priority` (or, while it is being
    worked on, to be handed out again), `started` it was handed out, `due` it
    comes back, `failures` it was added through the rate limit in a row.
    """

    queued_since: float | None = None
    priority: Priority = Priority.FRESH
    started: float | None = None
    due: float | None = None
    failures: int = 0

    def __bool__(self) -> bool:
        return (self.queued_since, self.started, self.due) != (None, None, None)
