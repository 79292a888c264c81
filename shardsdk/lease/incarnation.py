"""Incarnation: which process of its shard's name this one is, by the instance that its Lease says.

It is to go on at once with what the last one has left, and never with what a living one has: two processes
that say the same instance both take the lease for their own.  So whoever takes an instance that others may
have as well, such as the UID of the pod whose processes they all are, takes a seat with it (shardsdk.lease.seat).
"""

from __future__ import annotations

import math
import os
import random
import threading
from typing import Final

from shardsdk.lease import pod
from shardsdk.lease.hold import Hold
from shardsdk.lease.seat import Seat, SeatTaken, instance_in_pod, take_seat
from shardsdk.logs import logger_of
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import NOWHERE

log: Final = logger_of(__name__)


def note_owed(hold: Hold, lease: Lease | None, now: float) -> bool:
    """Note in `hold` what the dead process leaves that held `lease` as it was read at `now` (`None`: none did).

    Until when its writes may be executed, by the clock of `now`, and where.  Without the lease's promise nothing bounds
    them; it is then taken for twice as long, as by whoever takes such a lease over.

    Whether the Lease is to say something else of ranges: what is owed, and once it is not any more, nothing.  Who says
    that it holds none passes for one that works by them.
    """
    if lease is not None:
        hold.owed_until = now + lease.duration_seconds * (1 if lease.fenced else 2)
        hold.owed_ranges = (lease.held_ranges or NOWHERE) | lease.left_ranges
        return True
    # Of minus infinity the body has ended, and waits for none of it; the lease is then left as it is.
    over = bool(hold.owed_ranges) and -math.inf < hold.owed_until <= now
    if over:
        hold.owed_ranges = NOWHERE
    return over


class Incarnation:
    """Of the shard `name` of `ring`, whose Lease is in `namespace` at `host` (`None`: nobody knows where).

    `given` is an instance that somebody else answers for, but not for a process that is forked.  What is made before a
    process is forked is begun by whichever process enters the lease.
    """

    def __init__(
        self, ring: str, name: str, namespace: str, host: str | None, given: str | None, rng: random.Random
    ) -> None:
        uid = "" if given else pod.uid() or ""
        place = (host or "", namespace, name, uid)
        #: What it is called; known for good once the lease is held.
        self.instance: str = given or (instance_in_pod(*place) if uid else pod.make_uuid(rng))
        self._ring, self._name = ring, name
        self._place = None if host is None and not uid else place
        self._given = bool(given)
        self._made_by = os.getpid()
        self._seat: Seat | None = None
        #: Somebody who lives has it, or may; what the kernel said instead of that; and whether it was told.
        self._taken, self._unknown, self._told = False, "", False
        self._ended = threading.Event()

    def begin(self) -> str:
        """Be the successor of whoever sat here, if he is dead; gives the instance."""
        forked = os.getpid() != self._made_by  # as others may be, which have all that was drawn until then as well
        self._taken = (forked or not self._given) and self._sit()
        if self._seat is None and (self._taken or forked):
            self.instance = pod.make_uuid(random.SystemRandom())
        return self.instance

    def succeed(self) -> bool:
        """When it has seen the Lease, and written nothing yet: whether who sat here is dead by now.

        The instance is then another one, by which it goes on with the lease at once.  Says if he is not.
        """
        if not self._taken or self._ended.is_set():
            return False
        self._taken = self._sit()
        if self._ended.is_set():  # by another thread, meanwhile
            self.end(settled=True)
        if self._taken and not self._told:
            # Not before the Lease was seen: that of another ring's shard is not waited for.
            self._told = True
            self._tell()
        return self._seat is not None

    def goes_on_with(self, lease: Lease) -> bool:
        """Whether the lease is that of a process before this one, which is dead."""
        return lease.holder == self._name and lease.instance == self.instance

    def tell_owed(self, seconds: float) -> None:
        """The lease is held; say for how long what a dead process had sent keeps it from giving anything away."""
        if seconds > 0:
            log.info(
                "Goes on with the lease of a process that is dead; gives nothing away for %.0f s, until nothing that"
                " that had sent can be executed any more",
                seconds,
                extra={"ring": self._ring, "shard": self._name},
            )

    def _tell(self) -> None:
        if self._unknown:
            log.warning(
                "Whether this shard is at work here already, in another process of its name, cannot be told; waiting"
                " for its lease: let the process bind abstract Unix sockets, and open files",
                extra={"ring": self._ring, "shard": self._name, "error": self._unknown},
            )
        else:
            log.warning(
                "This shard is at work here already, in another process or another manager of this one; waiting"
                " for its lease: run one worker of a name, or give each a shard name of its own",
                extra={"ring": self._ring, "shard": self._name},
            )

    def _sit(self) -> bool:
        """Take the seat, if there are any here; `True`: somebody who lives has it, or may."""
        if self._place is None:
            return False
        self._unknown = ""
        try:
            self._seat = take_seat(*self._place)
        except SeatTaken:
            return True
        except OSError as error:
            self._unknown = str(error)
            return True
        if self._seat is not None:
            self.instance = self._seat.instance
        return False

    def end(self, *, settled: bool) -> None:
        """Leave it to the next; not `settled`: what this process has sent may still be executed, so once it is dead."""
        self._ended.set()
        seat, self._seat = self._seat, None
        if seat is not None and settled:
            seat.give_up()
        elif seat is not None:
            seat.keep()
