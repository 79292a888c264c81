"""Who is told of changes of rings and leases, and what they are told.

Refuses: to let one that fails keep the news from the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

log = logging.getLogger(__name__)


class Change:
    """What a subscriber is told of: bits of one mask."""

    RING: Final = 1
    MEMBERSHIP: Final = 2
    LEASES: Final = 4


#: Told the ring, and a mask of `Change`.
Subscriber = Callable[[str, int], None]
#: Told the ring, and namespace and name of a lease.
LeaseFollower = Callable[[str, tuple[str, str]], None]


def tell(listeners: Iterable[Callable[[str, Any], None]], ring: str, news: Any) -> None:
    """Tell each of them."""
    for listener in tuple(listeners):
        try:
            listener(ring, news)
        except Exception:
            log.exception("a change of a ring was not taken in", extra={"ring": ring})
