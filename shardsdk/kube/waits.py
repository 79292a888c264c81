"""What a request waits for, so that one whose time is over can say what has not come."""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from shardsdk.errors import ConnectionFailed

#: What a request waits for once it is under way: before it is sent, and from then on.
ADDRESS: Final = "address of"
CONNECTION: Final = "connection to"
ANSWER: Final = "answer from"


class Unanswered(ConnectionFailed):
    """A request was sent, and no answer came in time: a hung API server, or a proxy that holds answers back."""


@dataclass(slots=True)
class Wait:
    """How long a request may still wait, by the monotonic clock, and what it waits for: `no ... HOST within 30 s`.

    `sent_at`: since when that is an answer, by the event loop's clock.
    """

    until: float
    what: str = CONNECTION
    sent_at: float = math.inf


#: Of the request that the current task sends, perhaps more than once.  That it needs a connection aiohttp tells its
#: connector alone (`shardsdk.kube.sockets`), and that it has one its request (`shardsdk.kube.fencing.GuardedRequest`),
#: which it builds itself.
WAIT: Final[ContextVar[Wait | None]] = ContextVar("wait", default=None)
