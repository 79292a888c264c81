"""Default seeds hold, planted bugs are found, and a seed plays the same twice."""

from __future__ import annotations

import pytest

from tests.simulation.bugs import Bug
from tests.simulation.running import run_seeds

#: Seeds that every run of the tests plays; `make simulate` plays others.
DEFAULT_SEEDS = range(12)
#: Bugs that random schedules are too rarely in the place for; warm caches show in the order of a shard's start,
#: which tests/unit/test_manager.py holds.
UNLIKELY = frozenset({Bug.WARM_CACHES})
#: Within so many seeds each planted bug must show.
BUG_SEEDS = range(16)


@pytest.mark.timeout(180)
def test_default_seeds_hold() -> None:
    for outcome in run_seeds(DEFAULT_SEEDS):
        assert not outcome.violations, outcome.render()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("bug", [bug for bug in Bug if bug not in UNLIKELY], ids=lambda bug: bug.name)
def test_planted_bug_is_found(bug: Bug) -> None:
    assert any(outcome.violations for outcome in run_seeds(BUG_SEEDS, bug)), bug.value


def test_a_seed_plays_the_same_twice() -> None:
    one, other = run_seeds((7, 7))
    assert one.story == other.story
