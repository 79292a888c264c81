"""Which stops of a machine go unnoticed where the clocks of its API servers differ: no others than are told of."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardsdk.kube.lapses import STEADY_SECONDS
from tests.unit.shardsdk.kube.stopped import Machine, behind_a_proxy


@given(st.floats(5, 60), st.integers(0, 20), st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_of_stops_that_are_longer_than_is_said_none_is_hidden_by_clocks_that_differ(
    differ: float, more: int, before: bool, after: bool
) -> None:
    machine = behind_a_proxy(differ)
    machine.true += 1
    machine.ask("proxy", ahead=differ * before)
    machine.stop(machine.clock.hides_seconds + more)
    machine.true += 0.1
    assert machine.ask("proxy", ahead=differ * after) > 0


def test_a_stop_is_hidden_by_clocks_that_differ_by_half_as_much() -> None:
    machine = behind_a_proxy(8.0)
    assert machine.clock.apart == pytest.approx(8.0, abs=2)
    machine.true += 1
    machine.ask("proxy", ahead=8.0)
    machine.stop(15.0)
    assert machine.ask("proxy") == 0, "the one that is behind answers"
    assert machine.clock.hides_seconds > 15.0


def test_stops_that_come_more_often_than_clocks_are_given_to_agree_in_are_noticed() -> None:
    machine = Machine()

    def use(seconds: int, ahead: float = 0.0) -> int:
        noticed = len(machine.found)
        for _ in range(seconds // 2):
            machine.true += 2
            machine.ask("connection", ahead=ahead)
        return len(machine.found) - noticed

    use(20)
    machine.stop(10)
    use(100)
    use(60, ahead=-3600)  # the server's clock has been set back
    noticed = 0
    for _ in range(10):
        machine.stop(20)
        noticed += use(int(STEADY_SECONDS) - 60, ahead=-3600)
    assert noticed == 9, "all but the one of within that time"
