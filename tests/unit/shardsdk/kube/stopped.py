"""A machine that is stopped together with its clock, and what it is told by API servers whose clocks may differ."""

from __future__ import annotations

import math

from shardsdk.kube.lapses import Lapses, ServerClock


class Machine:
    """A machine that asks API servers, each with a clock of its own; `found` is what was taken for a stop, and when."""

    def __init__(self, *, rate: float = 1.0) -> None:
        self.true = 1000.0
        self.stopped = 0.0
        self.rate = rate
        self.lapses = Lapses()
        self.clock = ServerClock()
        self.found: list[tuple[float, float]] = []

    def monotonic(self) -> float:
        return (self.true - self.stopped) * self.rate + self.lapses.least

    def stop(self, seconds: float) -> None:
        self.true += seconds
        self.stopped += seconds

    def ask(self, connection: object, *, ahead: float = 0.0, way: float = 0.0) -> float:
        """An exchange over a connection to a server whose clock is so far ahead; what was noticed."""
        sent = self.monotonic()
        self.true += way
        date = math.floor(self.true + ahead)
        self.true += way
        missed = self.clock.heard(connection, sent, self.monotonic(), date)
        if missed.seconds:
            self.found.append((self.true, missed.seconds))
            self.lapses.note(*missed)
        return missed.seconds


def behind_a_proxy(differ: float, *, turns: int = 100) -> Machine:
    """A machine that has asked two API servers in turn over one connection."""
    machine = Machine()
    for turn in range(turns):
        machine.true += 1
        machine.ask("proxy", ahead=differ * (turn % 2))
    return machine
