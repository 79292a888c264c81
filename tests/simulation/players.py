"""Processes that play plans.

Each plan is played in a fork of a process that has everything imported: what a
run leaves behind ends with it, uncollected, and one that spins or grows without
bound ends alone.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import combinations
from multiprocessing.connection import wait
from threading import Thread
from typing import Any, Final

from tests.simulation.bugs import Bug
from tests.simulation.happenings import ADDED_NAMES
from tests.simulation.liveness import ring_of
from tests.simulation.running import Outcome, plan_of, run_plan
from tests.simulation.scenarios import Scenario
from tests.simulation.schedule import Plan
from tests.simulation.vocabulary import Stats, Violation

#: What one plan may use; an ordinary one takes less than a second of CPU time and 150 MiB.
MAX_CPU_SECONDS: Final = 120.0
MAX_MEMORY_MIB: Final = 1024
#: How often that is looked at, in CPU time.
_LOOK_SECONDS: Final = 1.0
_NICE: Final = 5
#: Shards that most plans begin with: the hash rings of some of them, and of one more, are made before the first plan.
_USUAL_SHARDS: Final = {"fam": ("fam-0", "fam-1", "fam-2", "fam-3"), "pla": ("pla-0", "pla-1")}


class Players:
    """Plays plans, `jobs` at once, for as long as the context lasts.

    Strings hash alike in all of its processes, so that a plan plays the same in each.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare)

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
        waiting: deque[tuple[Plan, Future[bytes]]] = deque()
        try:
            for plan in plans:
                waiting.append((plan, self._pool.submit(play_apart, plan, bug, verbose=verbose)))
                if len(waiting) > 2 * self._jobs:
                    yield _outcome(*waiting.popleft())
            while waiting:
                yield _outcome(*waiting.popleft())
        finally:
            for _, outcome in waiting:
                outcome.cancel()


def run_seeds(
    seeds: Iterable[int],
    bug: Bug | None = None,
    scenario: Scenario | None = None,
    *,
    jobs: int = 2,
    verbose: bool = False,
) -> Iterator[Outcome]:
    """The outcomes of many seeds, in their order; `jobs` run at once."""
    with Players(jobs) as players:
        yield from players.play((plan_of(seed, bug, scenario) for seed in seeds), bug, verbose=verbose)


def play_apart(plan: Plan, bug: Bug | None, *, verbose: bool) -> bytes:
    """Have a fork play `plan`; what it tells, or nothing when it was ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _play_here(plan, bug, writing, verbose=verbose)
        finally:
            # Whatever went wrong (nobody reads any more, say): past this line the fork would be a second worker of the
            # pool, one that nobody ends.
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def _play_here(plan: Plan, bug: Bug | None, writing: int, *, verbose: bool) -> None:
    try:
        _bound(plan)
        told: Any = run_plan(plan, bug, verbose=verbose, clean_up=False)
    except BaseException:
        told = traceback.format_exc()
    with os.fdopen(writing, "wb") as pipe:
        pickle.dump(told, pipe)


def _outcome(plan: Plan, told: Future[bytes]) -> Outcome:
    answer = told.result()
    if not answer:
        ended = Violation("runs to its end", 0.0, "it took too much, or its process crashed; stderr says which")
        return Outcome(plan, (ended,), Stats(), (), 0.0)
    outcome: Outcome | str = pickle.loads(answer)
    if isinstance(outcome, str):
        raise RuntimeError(f"seed {plan.seed} could not be played:\n{outcome}")
    return outcome


def _bound(plan: Plan) -> None:
    """End this process when what it plays takes too much."""
    began = time.process_time()

    def look(*_: object) -> None:
        seconds = time.process_time() - began
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        memory = largest // (2**20 if sys.platform == "darwin" else 2**10)
        if seconds > MAX_CPU_SECONDS or memory > MAX_MEMORY_MIB:
            signal.signal(signal.SIGVTALRM, signal.SIG_IGN)  # told once
            os.write(2, f"seed {plan.seed} is ended: {seconds:.0f} s of CPU time, {memory} MiB\n".encode())
            faulthandler.dump_traceback(all_threads=False)
            os._exit(1)

    signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, _LOOK_SECONDS, _LOOK_SECONDS)


def _prepare() -> None:
    """Make a process from which one fork after the other plays a plan, with what they all need."""
    # Time is virtual here: whoever lives in real time goes first.
    os.nice(_NICE)
    # Whoever is interrupted by it is who asks for the next.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    for ring, names in _USUAL_SHARDS.items():
        added = [[f"{ring}-{number}x"] for number in range(ADDED_NAMES)]
        for number in range(len(names) + 1):
            for some in combinations(names, number):
                for more in ([], *added):
                    ring_of(frozenset((*some, *more)))
    run_plan(plan_of(0))
    gc.collect()
    gc.freeze()
    gc.disable()


def _end_with_parent() -> None:
    """Processes of a pool would wait for work for ever when whoever gives it out is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
