"""Default seeds hold, kept plans hold, planted bugs are found, and a seed plays the same twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.bugs import Bug
from tests.simulation.marks import DECLARED, SELDOM
from tests.simulation.plans import kept_plans, load_plan
from tests.simulation.players import Players, run_seeds
from tests.simulation.running import plan_of
from tests.simulation.scenarios import Scenario

#: Each test plays many seeds, on a machine that others use as well, and lets them go first.
pytestmark = pytest.mark.timeout(1800)

#: Seeds that every run of the tests plays, and how many of them are one test; `make simulate` plays others.
DEFAULT_SEEDS = range(320)
#: And so many in which the rings assign by ranges of hashes.
RANGES_SEEDS = range(45)
CHUNK = 20
CHUNKS = [(first, False) for first in DEFAULT_SEEDS[::CHUNK]] + [(first, True) for first in RANGES_SEEDS[::CHUNK]]
#: And each scenario is played with these.
SCENARIO_SEEDS = range(2)
#: Within so many seeds each planted bug must show.
BUG_SEEDS = range(40)
#: So many plans are played at once.
PLAYERS = min(2, os.cpu_count() or 1)


@pytest.fixture(scope="module")
def players() -> Iterator[Players]:
    """Processes for all tests of this file: they play seeds, and import everything once."""
    with Players(PLAYERS) as players:
        yield players


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a chunk of the default seeds: how the first that fails is told of, and what all have reached."""

    failure: str
    drains: int
    reached: frozenset[str]


Play = Callable[[int, bool], Played]


@pytest.fixture(scope="module")
def play(players: Players) -> Play:
    """Play a chunk of the default seeds, once for all tests."""

    @cache
    def play(first: int, ranges: bool) -> Played:
        seeds = (RANGES_SEEDS if ranges else DEFAULT_SEEDS)[first : first + CHUNK]
        failure, drains, reached = "", 0, set[str]()
        for outcome in players.play(plan_of(seed, ranges=ranges) for seed in seeds):
            failure = failure or (outcome.render() if outcome.violations else "")
            drains += outcome.stats.drains
            reached |= {name for name, count in outcome.stats.marks.items() if count}
        return Played(failure, drains, frozenset(reached))

    return play


@pytest.mark.parametrize(
    ("first", "ranges"), CHUNKS, ids=[f"{first} by {'ranges' if ranges else 'labels'}" for first, ranges in CHUNKS]
)
def test_default_seeds_hold(play: Play, first: int, ranges: bool) -> None:
    played = play(first, ranges)
    assert not played.failure, played.failure
    assert played.drains, "something is taken from shards that are there"


@pytest.mark.timeout(7200)  # it may be the first, and play them all
def test_default_seeds_reach_every_mark_that_is_not_seldom(play: Play) -> None:
    reached = frozenset[str]().union(*(play(first, ranges).reached for first, ranges in CHUNKS))
    assert {*DECLARED} - reached <= SELDOM


@pytest.mark.parametrize("path", kept_plans(), ids=lambda path: path.stem)
def test_what_once_broke_a_rule_holds(players: Players, path: Path) -> None:
    (outcome,) = players.play([load_plan(path)])
    assert not outcome.violations, outcome.render(again=f"make simulate PLAN={path}")


@pytest.mark.parametrize("scenario", list(Scenario), ids=lambda scenario: scenario.name)
def test_each_scenario_is_played_and_holds(players: Players, scenario: Scenario) -> None:
    for outcome in players.play(plan_of(seed, None, scenario) for seed in SCENARIO_SEEDS):
        assert not outcome.violations, outcome.render()
        assert outcome.stats.scenarios


@pytest.mark.parametrize("scenario", list(Scenario), ids=lambda scenario: scenario.name)
def test_each_scenario_is_played_in_rings_by_ranges_and_holds(players: Players, scenario: Scenario) -> None:
    for outcome in players.play(plan_of(seed, None, scenario, ranges=True) for seed in SCENARIO_SEEDS):
        assert not outcome.violations, outcome.render()
        assert outcome.stats.scenarios


@pytest.mark.parametrize(
    ("bug", "ranges"),
    [*((bug, False) for bug in Bug), (Bug.OUTAGES_BY_ONE_MEASURE, True)],
    ids=lambda each: each.name if isinstance(each, Bug) else "by ranges" if each else "",
)
def test_planted_bug_is_found(players: Players, bug: Bug, *, ranges: bool) -> None:
    # Most show within the first seeds, and what is begun is played to its end: one round after the other.
    rounds = (BUG_SEEDS[first : first + PLAYERS] for first in BUG_SEEDS[::PLAYERS])
    plans = ([plan_of(seed, bug, ranges=ranges) for seed in seeds] for seeds in rounds)
    played = (outcome for each in plans for outcome in players.play(each, bug))
    assert any(outcome.violations for outcome in played), bug.value


def test_a_seed_plays_the_same_twice_whatever_its_process_played_before(players: Players) -> None:
    one, _, other = players.play(map(plan_of, (7, 8, 7)))
    (elsewhere,) = run_seeds((7,), jobs=1)
    assert one.story == other.story == elsewhere.story


def test_a_seed_that_takes_too_much_ends_alone_and_says_which_it_was() -> None:
    script = (
        "import tests.simulation.players as players\n"
        "from tests.simulation.running import plan_of\n"
        "players.MAX_MEMORY_MIB, players._LOOK_SECONDS = 1, 0.01\n"
        "assert players.play_apart(plan_of(3), None, verbose=False) == b''\n"
        "players.MAX_MEMORY_MIB = 10_000\n"
        "assert players.play_apart(plan_of(3), None, verbose=False)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("seed 3 is ended") == 1
