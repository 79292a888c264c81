"""When what changes all the time is written into a ring's status."""

from __future__ import annotations

import pytest

from sharder.rings.status import STATUS_SECONDS, due_in


@pytest.mark.parametrize(
    ("written_at", "now", "seconds"),
    [
        (float("-inf"), 0.0, 0.0),
        (10.0, 10.0, STATUS_SECONDS),
        (10.0, 11.0, STATUS_SECONDS - 1.0),
        (10.0, 10.0 + STATUS_SECONDS, 0.0),
        # Not 4e-16 s, which no clock ever sees go by.
        (0.022, 3.0219999999999994, 0.0),
    ],
)
def test_it_is_written_every_few_seconds_and_at_once_when_next_to_nothing_is_left(
    written_at: float, now: float, seconds: float
) -> None:
    assert due_in(written_at, now) == seconds
