"""A fence that is merely doubted is told from one that is shut for good, also when that changes as it is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shardsdk.contrib.kubernetes import FencedWrites
from shardsdk.kube.api import Fence
from shardsdk.kube.clock import SystemClock
from shardsdk.kube.doubts import FenceDoubted, check_open
from shardsdk.kube.fencing import Guard, Ledger


class Changing:
    """A fence that is doubted, or open, as in these turns: whenever it is asked anything, the next one begins."""

    name = "the lease of shard-1"

    def __init__(self, *doubts: bool) -> None:
        self._doubts = list(doubts)

    @property
    def doubted(self) -> bool:
        return self._doubts.pop(0) if len(self._doubts) > 1 else self._doubts[0]

    def remaining(self) -> float:
        return 0.0 if self.doubted else 10.0


def send(fence: Fence) -> object:
    clock = SystemClock()
    return Guard([fence], 30.0, clock, Ledger(clock)).remaining()


def begin(fence: Fence) -> None:
    check_open(fence, "nothing is begun")


def send_from_thread(fence: Fence) -> object:
    return FencedWrites(fence, SystemClock()).begin()


@pytest.mark.parametrize("ask", [send, begin, send_from_thread])
def test_one_that_a_renewal_opens_meanwhile_is_not_lost(ask: Callable[[Fence], object]) -> None:
    ask(Changing(True, False))


@pytest.mark.parametrize("ask", [send, begin])
def test_one_that_comes_into_doubt_meanwhile_is_not_lost(ask: Callable[[Fence], object]) -> None:
    with pytest.raises(FenceDoubted):
        ask(Changing(False, True))


def test_a_thread_waits_for_one_that_comes_into_doubt_meanwhile() -> None:
    send_from_thread(Changing(False, True, True, False))
