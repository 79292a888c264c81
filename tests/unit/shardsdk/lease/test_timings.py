from __future__ import annotations

import pytest

from shardsdk.errors import ConfigurationError
from shardsdk.lease.timings import LeaseTimings


def test_the_defaults_are_those_of_client_go() -> None:
    timings = LeaseTimings()
    assert (timings.lease_duration, timings.renew_deadline, timings.retry_period) == (15, 10, 2)


@pytest.mark.parametrize("seconds", [1, 2, 15, 3600, 7200])
def test_a_lease_of_some_seconds_has_the_proportions_of_client_go(seconds: int) -> None:
    timings, default = LeaseTimings.of(seconds), LeaseTimings()
    assert timings.lease_duration == seconds
    assert timings.renew_deadline / seconds == pytest.approx(default.renew_deadline / default.lease_duration)
    assert timings.retry_period / seconds == pytest.approx(default.retry_period / default.lease_duration)


@pytest.mark.parametrize("seconds", [0, -15, 1.5, float("nan")])
def test_a_lease_of_no_whole_seconds_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match=r"lease_duration is .* holds whole seconds"):
        LeaseTimings.of(seconds)


@pytest.mark.parametrize("timings", [LeaseTimings(), LeaseTimings(1, 0.6, 0.1), LeaseTimings(3, 2, 0.5)])
def test_a_holder_steps_down_before_its_hold_ends_and_that_before_the_lease_can_be_taken(
    timings: LeaseTimings,
) -> None:
    deadlines = timings.after(100.0)
    assert 100 < deadlines.step_down_at < deadlines.hold_ends_at < 100 + timings.lease_duration


@pytest.mark.parametrize("duration", [1, 3, 10, 15, 30, 60, 137])
def test_clocks_that_are_set_right_in_opposite_directions_take_no_lease_beyond_its_end(duration: float) -> None:
    """A machine's clock that is being set right runs up to 8.333 % slower or faster for that time (chrony)."""
    timings = LeaseTimings(duration, duration / 2, duration / 10)
    true_seconds_held = timings.after(0.0).hold_ends_at / (1 - 0.08333)
    true_seconds_waited = duration / (1 + 0.08333)
    assert true_seconds_held < true_seconds_waited


@pytest.mark.parametrize(
    ("durations", "complaint"),
    [
        ((15, 15, 2), "renew_deadline is 15 s.*less than 12.6 s"),
        ((15, 12.6, 2), "renew_deadline is 12.6 s"),
        ((15, 10, 9), "retry_period is 9 s.*less than 8.33"),
        ((15, 10, 0), "retry_period is 0 s.*without pause"),
        ((15, 10, -1), "retry_period is -1 s"),
        ((1.5, 1, 0.2), "lease_duration is 1.5 s.*whole seconds"),
        ((0, -1, -2), "lease_duration is 0 s"),
        ((3e9, 10, 2), "lease_duration is 3e\\+09 s.*whole seconds: use 1 to 2147483647"),
        ((float("nan"), 10, 2), "lease_duration is nan"),
        ((float("inf"), 10, 2), "lease_duration is inf"),
        ((15, float("nan"), 2), "renew_deadline is nan"),
    ],
)
def test_durations_that_do_not_fit_are_refused_with_a_sentence(
    durations: tuple[float, float, float], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        LeaseTimings(*durations)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"lease_duration.*; renew_deadline.*; retry_period"):
        LeaseTimings(0.5, 20, 30)


def test_a_slow_answer_has_half_the_deadline_and_a_hung_one_leaves_time_for_others() -> None:
    """As client-go, whose clients of leases time out after half the RenewDeadline."""
    timings = LeaseTimings()
    assert [timings.renewal_timeout(left) for left in (10, 8, 5, 4.5, 3, 1, 0)] == [5, 5, 5, 2.25, 2, 1, 0]


def test_a_pause_is_jittered_within_its_bound() -> None:
    timings = LeaseTimings()
    assert [timings.pause(chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx([2.0, 2.2, 2.4])
