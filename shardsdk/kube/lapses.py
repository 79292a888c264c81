"""Time that this machine has missed, as the API server's clock shows.

A hypervisor may stop a virtual machine together with its clocks: when it goes on,
no clock of the machine knows that others have waited meanwhile.  The `Date` of
every answer does.

`Lapses` is what is missing by now; whoever measures a time that others measure
too (a hold) takes off what may have been missed since.  `ServerClock` finds it, by
comparing the answers of one client; it does no I/O and reads no clock.

Guarantees (tests/unit/shardsdk/kube/test_lapses.py, as properties):

- A stop of more than `NOTICED_SECONDS` is noticed at the first answer to a request
  that was sent after it over a connection in use.  One that nothing came over for a
  while tells less, by a fifth to a third of that time, and after `MEMORY_SECONDS` nothing.
- Of a stop that is noticed `Lapses.seconds` counts the most that may have been missed
  since the answer that it was found by comparing with.
- Clocks that are merely set right, however fast (chrony), are no stop.
- Several API servers behind one address whose clocks differ, or one whose clock is
  set forward, are mistaken for a stop at most once in `STEADY_SECONDS` for each clock
  behind each connection, and once a `STRANGERS_SECONDS` for new connections; one such
  mistake shortens a hold until its next renewal, which is due at once, and cannot lose
  the lease.  Over a connection whose clocks were found to differ a stop is noticed when
  it is longer than that explains (`ServerClock.hides_seconds`), and any stop again once none
  has gone back for `STEADY_SECONDS`.
- A process that is forked while others compare goes on comparing by itself.

Refuses: to set anything back; what was found missing stays missing, and only what
is found after a moment counts from then on.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from threading import RLock
from typing import Final, NamedTuple

#: A `Date` has whole seconds, so what it says may be late by so much.
RESOLUTION_SECONDS: Final = 1.0
#: By how much the clocks of API servers behind one address may differ.
TOLERANCE_SECONDS: Final = 0.5
#: More than this is noticed; less than half of that, with answers that come at once, mostly too.
NOTICED_SECONDS: Final = 2 * RESOLUTION_SECONDS + TOLERANCE_SECONDS
#: How fast two clocks drift apart at most: both are being set right, in opposite directions (see `MARGIN_SHARE`).
DRIFT: Final = 0.17
#: A connection that was last used longer ago says nothing any more: by then the drift may be larger than any hold.
MEMORY_SECONDS: Final = 60.0
#: How often an answer over a new connection may count as a sign of a stop.
STRANGERS_SECONDS: Final = 60.0
#: For so long a step back tells that a step forward over the same connection may have been another clock's.
STEADY_SECONDS: Final = 300.0
#: Connections remembered.  Source: more than `sessions.CONNECTIONS` has in lanes with short requests.
MAX_REMEMBERED: Final = 256


class Lapses:
    """How many seconds this process has missed in all; listeners are told of more, on whatever thread found them."""

    __slots__ = ("_listeners", "comparing", "least", "seconds")

    def __init__(self) -> None:
        #: Held from the look at `least` until what was found by it is noted: two clients in two threads that find one
        #: stop would both note it.
        self.comparing: RLock = RLock()
        #: At most so many: what a hold is shorter by.
        self.seconds: float = 0.0
        #: About so many, and rather fewer: what clocks are compared by.
        self.least: float = 0.0
        self._listeners: list[Callable[[], None]] = []

    def note(self, seconds: float, most: float = 0.0) -> None:
        """About so many more were missed, and `most` at most."""
        with self.comparing:
            self.least += seconds
            self.seconds += max(seconds, most)
        for listener in tuple(self._listeners):
            listener()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called whenever more is missed; call what is returned to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def subscribe_here(self, listener: Callable[[], None]) -> Callable[[], None]:
        """As `subscribe`, but `listener` is called on the event loop that runs now, as long as that is not closed."""
        loop = asyncio.get_running_loop()

        def post() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(listener)

        return self.subscribe(post)

    def forked(self) -> None:
        """This process was forked, and the thread that was comparing just then is not here to give the lock back."""
        self.comparing = RLock()


#: Those of this machine.
MACHINE: Final = Lapses()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=MACHINE.forked)


def lapses_of(clock: object) -> Lapses:
    """What `clock` has missed; a clock that says nothing of it (a virtual one) misses nothing."""
    found: Lapses | None = getattr(clock, "lapses", None)
    return Lapses() if found is None else found


class Missed(NamedTuple):
    """How many seconds were missed: about `seconds`, and `most` at most; both zero: none were noticed."""

    seconds: float
    most: float


NOTHING: Final = Missed(0.0, 0.0)


@dataclass(slots=True)
class _Heard:
    """Between which bounds the server's clock was ahead of ours at `at`, as one connection showed it."""

    at: float
    least: float
    most: float
    #: Until then a step back means that there are several clocks behind it: it has told of a stop, or they have shown.
    unsteady_until: float = -math.inf
    #: By how many seconds those differ at most; a step forward that is no longer is no stop.
    apart: float = 0.0


class ServerClock:
    """What the answers to one client tell about this machine's clock.

    All moments are by the monotonic clock plus what was found missing so far (`Lapses.least`),
    so that a stop which one client has noticed is none for the others.
    """

    __slots__ = ("_heard", "_last", "_strangers_at", "apart")

    def __init__(self) -> None:
        #: By how many seconds, at most, the clocks behind one connection were found to differ.
        self.apart: float = 0.0
        self._heard: dict[Hashable, _Heard] = {}
        self._last: _Heard | None = None
        self._strangers_at = -math.inf

    @property
    def hides_seconds(self) -> float:
        """A stop that is no longer may go unnoticed.

        What shows of it is less by what the clocks differ by, if one that is behind answers next, and as much is
        explained by their difference.
        """
        return 2 * self.apart + NOTICED_SECONDS

    def compare(
        self, connection: Hashable, sent: float, monotonic: Callable[[], float], date: float, lapses: Lapses
    ) -> Missed:
        """As `heard`, for an answer that has just come, and note in `lapses` what was missed; from any thread."""
        with lapses.comparing:
            missed = self.heard(connection, sent, monotonic() + lapses.least, date)
            if missed.seconds:
                lapses.note(*missed)
        return missed

    def heard(self, connection: Hashable, sent: float, answered: float, date: float) -> Missed:
        """An answer with this `Date` (seconds since any epoch) came over `connection`: how much was missed.

        `sent` is any moment before the server wrote it, `answered` any after.
        """
        now = _Heard(answered, date - answered, date + RESOLUTION_SECONDS - sent)
        known = self._heard.pop(connection, None)
        before = known if known is not None else self._last
        if before is None or answered - before.at > MEMORY_SECONDS:
            missed = NOTHING
        else:
            now, missed = self._compare(before, now, stranger=known is None)
        self._heard[connection] = self._last = now
        if len(self._heard) > MAX_REMEMBERED:
            del self._heard[next(iter(self._heard))]
        return missed

    def _compare(self, before: _Heard, now: _Heard, *, stranger: bool) -> tuple[_Heard, Missed]:
        """What is known after an answer, and how much was missed before it."""
        drift = DRIFT * max(now.at - before.at, 0.0)
        least, most = before.least - drift, before.most + drift
        if not stranger and now.at < before.unsteady_until:
            now.unsteady_until, now.apart = before.unsteady_until, before.apart
        if now.least > most + TOLERANCE_SECONDS:
            missed = now.least - most + RESOLUTION_SECONDS
            if stranger:
                if now.at - self._strangers_at < STRANGERS_SECONDS:
                    return now, NOTHING
                self._strangers_at = now.at + missed
            elif now.least - most <= now.apart:
                return now, NOTHING
            # By the time that counts what was missed, it was as far ahead as before.
            at = now.at + missed
            heard = _Heard(at, now.least - missed, now.most - missed, at + STEADY_SECONDS, now.apart)
            return heard, Missed(missed, now.most - least + now.apart)
        if now.most < least - TOLERANCE_SECONDS:
            if now.at < now.unsteady_until:
                now.unsteady_until = now.at + STEADY_SECONDS
                now.apart = max(now.apart, most - now.least)
                self.apart = max(self.apart, now.apart)
            return now, NOTHING
        if not stranger:
            now.least, now.most = max(now.least, least), min(now.most, most)
        return now, NOTHING


@lru_cache(maxsize=4)
def parse_date(text: str) -> float | None:
    """A `Date` header in seconds since 1970; `None`: it is none."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return None
