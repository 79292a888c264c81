"""Runs plans, and says what came of them."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final
from unittest.mock import patch

from sharder.core import membership
from shardsdk.errors import ShardingError
from shardsdk.logs import message_of
from shardsdk.testing.virtual import VirtualClock, run_virtual
from tests.simulation.bugs import BROKEN, FOCUS, OF_RANGES, SCENARIOS, Bug, planted
from tests.simulation.limits import Timeout
from tests.simulation.liveness import ring_of
from tests.simulation.marks import watching
from tests.simulation.ranges.drawing import draw_ranges_plan
from tests.simulation.scaling import scaled
from tests.simulation.scenarios import Scenario
from tests.simulation.schedule import Plan, draw_plan
from tests.simulation.vocabulary import Stats, Violation
from tests.simulation.world import World

#: The busiest moment of a run takes some hundreds of turns of the loop.
LIMIT_TURNS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one run; `story` is what happened, for people."""

    plan: Plan
    violations: tuple[Violation, ...]
    stats: Stats
    story: tuple[str, ...]
    seconds: float

    @property
    def rule(self) -> str | None:
        """Which rule is broken first; `None`: none is."""
        return self.violations[0].rule if self.violations else None

    def render(self, *, lines: int = 60, again: str = "") -> str:
        """The violations, the end of the story, and how to see it again."""
        told = "\n".join(self.story[-lines:])
        wrong = "\n".join(map(str, self.violations))
        again = again or f"make simulate SEED={self.plan.seed} RUNS=1{by_ranges(self.plan)}"
        return f"seed {self.plan.seed} fails:\n{wrong}\n\nreproduce: {again}\nthe last that happened:\n{told}"


def by_ranges(plan: Plan) -> str:
    """What `make simulate` is told of a plan besides its seed."""
    return " RANGES=1" if plan.ranges else ""


def plan_of(seed: int, bug: Bug | None = None, scenario: Scenario | None = None, *, ranges: bool = False) -> Plan:
    """What a seed plays, with `ranges` in rings that assign by them; what a planted bug needs happens more often."""
    focus = FOCUS.get(bug) if bug is not None else None
    scenario = scenario or (SCENARIOS.get(bug) if bug is not None else None)
    if ranges or bug in OF_RANGES:
        return draw_ranges_plan(seed, focus, scenario, BROKEN.get(bug) if bug is not None else None)
    plan = draw_plan(seed, focus, scenario)
    # It concerns foreign shards alone, which most plans have none of.
    return replace(plan, foreign=1) if bug is Bug.TAKE_OVER_UNFENCED_EARLY else plan


def run_plan(plan: Plan, bug: Bug | None = None, *, verbose: bool = False, clean_up: bool = True) -> Outcome:
    """One run of a plan, wherever it comes from; with `clean_up` False in a process that ends with it."""
    clock = VirtualClock()
    with planted(bug):
        world = World(plan, clock)
        with (
            _listening(world, verbose=verbose),
            watching(world.mark),
            scaled(plan.scaled),
            # Hash rings are the same in each replica, and in each run.
            patch.object(membership, "HashRing", ring_of),
            patch.object(asyncio, "timeout", Timeout),
            _without_collection(),
        ):
            try:
                run_virtual(lambda _: world.run(), clock=clock, limit_seconds=100 * plan.ends_at,
                            limit_turns=LIMIT_TURNS, clean_up=clean_up)  # fmt: skip
            except ShardingError as error:
                world.checkers.violate("runs to its end", str(error)[:2000])
    story = tuple(f"{at:9.3f}  {line}" for at, line in world.story)
    return Outcome(plan, tuple(world.checkers.violations), world.stats, story, clock.monotonic())


@contextmanager
def _listening(world: World, *, verbose: bool) -> Iterator[None]:
    """Count what the product logs with a traceback as a violation; with `verbose` add all it logs to the story."""
    handler = _Ear(world)
    loggers = [logging.getLogger(name) for name in ("sharder", "shardsdk", "tests.simulation", "asyncio")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG if verbose else logging.ERROR)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collect nothing meanwhile: it costs time, and what it finds depends on what ran before."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.collect()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


#: Tracebacks that users' functions cause here on purpose.
_EXPECTED: Final = frozenset({"Object left out: a transform or an index of its cache raised"})


class _Ear(logging.Handler):
    """Listens to the product's log.  Inherited because logging offers nothing else."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        known = logging.makeLogRecord({}).__dict__.keys() | {"message", "taskName"}
        extra = {name: value for name, value in record.__dict__.items() if name not in known}
        self._world.note(f"    {record.name.rpartition('.')[2]}: {message_of(record)} {extra or ''}")
        if message_of(record) in _EXPECTED:
            return
        if record.exc_info and record.exc_info[0] is not None and record.levelno >= logging.ERROR:
            text = logging.Formatter().formatException(record.exc_info)
            self._world.checkers.violate("no unexpected error", f"{record.getMessage()}\n{text}")
