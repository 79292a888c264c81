"""Runs plans, and says what came of them."""

from __future__ import annotations

import faulthandler
import gc
import logging
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from threading import Thread
from typing import Final

from shardsdk.errors import ShardingError
from shardsdk.testing.virtual import VirtualClock, run_virtual
from tests.simulation.bugs import FOCUS, SCENARIOS, Bug, planted
from tests.simulation.marks import watching
from tests.simulation.scenarios import Scenario
from tests.simulation.schedule import Plan, draw_plan
from tests.simulation.vocabulary import Stats, Violation
from tests.simulation.world import World

#: What one seed may use; an ordinary one takes some seconds of CPU time and 100 MiB.
MAX_CPU_SECONDS: Final = 120.0
MAX_MEMORY_MIB: Final = 1024
#: The busiest moment of a run takes some hundreds of turns of the loop.
LIMIT_TURNS: Final = 50_000
#: How often that is looked at, in CPU time.
_LOOK_SECONDS: Final = 1.0
_NICE: Final = 10


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
        again = again or f"make simulate SEED={self.plan.seed} RUNS=1"
        return f"seed {self.plan.seed} fails:\n{wrong}\n\nreproduce: {again}\nthe last that happened:\n{told}"


def run_seed(seed: int, bug: Bug | None = None, scenario: Scenario | None = None, *, verbose: bool = False) -> Outcome:
    """One run of one seed, with a bug planted into the product, or a scenario played first, if one is named."""
    return run_plan(plan_of(seed, bug, scenario), bug, verbose=verbose)


def plan_of(seed: int, bug: Bug | None = None, scenario: Scenario | None = None) -> Plan:
    """What a seed plays; what a planted bug needs happens more often."""
    if bug is None:
        return draw_plan(seed, None, scenario)
    return draw_plan(seed, FOCUS.get(bug), scenario or SCENARIOS.get(bug))


def run_plan(plan: Plan, bug: Bug | None = None, *, verbose: bool = False) -> Outcome:
    """One run of a plan, wherever it comes from."""
    clock = VirtualClock()
    with planted(bug):
        world = World(plan, clock)
        with _listening(world, verbose=verbose), watching(world.mark), _without_collection():
            try:
                run_virtual(lambda _: world.run(), clock=clock, limit_seconds=100 * plan.ends_at,
                            limit_turns=LIMIT_TURNS)  # fmt: skip
            except ShardingError as error:
                world.checkers.violate("runs to its end", str(error)[:2000])
    story = tuple(f"{at:9.3f}  {line}" for at, line in world.story)
    return Outcome(plan, tuple(world.checkers.violations), world.stats, story, clock.monotonic())


def run_seeds(
    seeds: Iterable[int],
    bug: Bug | None = None,
    scenario: Scenario | None = None,
    *,
    jobs: int = 2,
    verbose: bool = False,
) -> Iterator[Outcome]:
    """The outcomes of many seeds, in their order; `jobs` run at once, each in a process of its own.

    Raises: BrokenProcessPool when a seed uses too much; stderr says which, and where it was.
    """
    with Players(jobs) as players:
        yield from players.play((plan_of(seed, bug, scenario) for seed in seeds), bug, verbose=verbose)


class Players:
    """Processes that play plans, `jobs` at once, for as long as the context lasts.

    Strings hash alike in all of them, so that a plan plays the same in each.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), settle_down)

    def __enter__(self) -> Players:
        before = os.environ.get("PYTHONHASHSEED")
        os.environ["PYTHONHASHSEED"] = "0"
        try:
            # The first that is asked for starts all processes.
            self._pool.submit(os.getpid).result()
        finally:
            if before is None:
                del os.environ["PYTHONHASHSEED"]
            else:
                os.environ["PYTHONHASHSEED"] = before
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def play(self, plans: Iterable[Plan], bug: Bug | None = None, *, verbose: bool = False) -> Iterator[Outcome]:
        """The outcomes of plans, in their order; no more are begun once nobody asks for another."""
        waiting: deque[Future[Outcome]] = deque()
        try:
            for plan in plans:
                waiting.append(self._pool.submit(_run_bounded, plan, bug, verbose=verbose))
                if len(waiting) > 2 * self._jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for outcome in waiting:
                outcome.cancel()


def _run_bounded(plan: Plan, bug: Bug | None, *, verbose: bool) -> Outcome:
    """`run_plan` in a process of its own, which ends when the run spins or grows without bound."""
    began = time.process_time()

    def look(*_: object) -> None:
        seconds = time.process_time() - began
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        memory = largest // (2**20 if sys.platform == "darwin" else 2**10)
        if seconds > MAX_CPU_SECONDS or memory > MAX_MEMORY_MIB:
            os.write(2, f"seed {plan.seed} is ended: {seconds:.0f} s of CPU time, {memory} MiB\n".encode())
            faulthandler.dump_traceback(all_threads=False)
            os._exit(1)

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, _LOOK_SECONDS, _LOOK_SECONDS)
    try:
        return run_plan(plan, bug, verbose=verbose)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


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


def settle_down() -> None:
    """In a process that does nothing but play seeds: never look again at what was imported for garbage.

    Its time is virtual, so that it lets whoever lives in real time go first.
    """
    os.nice(_NICE)
    # Whoever is interrupted by it is who asks for the next.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    gc.collect()
    gc.freeze()
    gc.disable()


def _end_with_parent() -> None:
    """Processes of a pool would wait for work for ever when whoever gives it out is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


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
        self._world.note(f"    {record.name.rpartition('.')[2]}: {record.getMessage()} {extra or ''}")
        if record.getMessage() in _EXPECTED:
            return
        if record.exc_info and record.exc_info[0] is not None and record.levelno >= logging.ERROR:
            text = logging.Formatter().formatException(record.exc_info)
            self._world.checkers.violate("no unexpected error", f"{record.getMessage()}\n{text}")
