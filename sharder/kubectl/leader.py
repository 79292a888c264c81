"""Whether a sharder leads, as its lease shows it.

The lease's time is compared with this machine's clock, so a leader counts as
gone only when it is late by more than a whole duration.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sharder.kubectl.text import span
from shardsdk.protocol.leases import Lease, parse_micro_time

#: What a gap is called where that lease could not be read; its namespace and name follow.
LEADERS_LEASE: Final = "the sharder's lease"
#: And where those could not be listed by which any sharder leads.
LEADERS_LEASES: Final = "the leases of all sharders"


@dataclass(frozen=True, slots=True)
class Leading:
    """A leader's lease; `words` says how it stands.  `late`: it has run out, and may not have been renewed since."""

    alive: bool
    words: str
    holder: str = ""
    late: bool = False


@dataclass(frozen=True, slots=True)
class Sharder:
    """Where the sharder is: ServiceAccount and leader's lease, each as namespace and name."""

    account: tuple[str, str]
    lease: tuple[str, str]


def read_leading(lease: Lease | None, where: str, now: datetime) -> Leading:
    """What the lease at `where` (NAMESPACE/NAME) says; None: there is none."""
    if lease is None:
        return Leading(False, f"there is no lease {where}: no sharder has ever led here")
    if not lease.holder:
        return Leading(False, f"nobody holds the lease {where}")
    renewed = parse_micro_time(lease.spec.renew_time)
    if renewed is None:
        return Leading(True, f"{lease.holder} leads", lease.holder)
    seconds = (now - renewed).total_seconds()
    ago = span(max(seconds, 0.0))
    if seconds > 2 * lease.duration_seconds:
        return Leading(False, f"{lease.holder} last renewed the lease {where} {ago} ago", lease.holder)
    late = seconds > lease.duration_seconds
    return Leading(True, f"{lease.holder} leads, renewed {ago} ago", lease.holder, late)
