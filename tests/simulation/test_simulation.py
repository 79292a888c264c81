"""Default seeds hold, planted bugs are found, and a seed plays the same twice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.bugs import Bug
from tests.simulation.running import run_seeds
from tests.simulation.scenarios import Scenario

#: Each test plays many seeds, on a machine that others use as well.
pytestmark = pytest.mark.timeout(900)

#: Seeds that every run of the tests plays; `make simulate` plays others.
DEFAULT_SEEDS = range(12)
#: And each scenario is played with these.
SCENARIO_SEEDS = range(2)
#: Within so many seeds each planted bug must show.
BUG_SEEDS = range(16)


def test_default_seeds_hold() -> None:
    for outcome in run_seeds(DEFAULT_SEEDS):
        assert not outcome.violations, outcome.render()


@pytest.mark.parametrize("scenario", list(Scenario), ids=lambda scenario: scenario.name)
def test_each_scenario_is_played_and_holds(scenario: Scenario) -> None:
    for outcome in run_seeds(SCENARIO_SEEDS, scenario=scenario):
        assert not outcome.violations, outcome.render()
        assert outcome.stats.scenarios


@pytest.mark.parametrize("bug", list(Bug), ids=lambda bug: bug.name)
def test_planted_bug_is_found(bug: Bug) -> None:
    assert any(outcome.violations for outcome in run_seeds(BUG_SEEDS, bug)), bug.value


def test_a_seed_plays_the_same_twice() -> None:
    one, other = run_seeds((7, 7))
    assert one.story == other.story


def test_a_seed_that_takes_too_much_ends_its_process_and_says_which_it_was() -> None:
    script = (
        "import tests.simulation.running as running\n"
        "running.MAX_MEMORY_MIB, running._LOOK_SECONDS = 1, 0.01\n"
        "running._run_bounded(3, None, verbose=False)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "seed 3 is ended" in ended.stderr
