"""`python -m tests.simulation`: run seeds, shrink what fails to a short story, and say how to see it again.

An interrupted run goes on when it is started again with the same seeds and the
same code.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path

from tests.simulation.bugs import Bug
from tests.simulation.campaign import FOLDER, Campaign, code_now, forget, go_on
from tests.simulation.plans import KEPT, describe_plan, load_plan, save_plan
from tests.simulation.players import Players
from tests.simulation.running import Outcome, by_ranges, plan_of
from tests.simulation.shrinking import MAX_RUNS, Shrinking


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: something new)")
    parser.add_argument("--runs", type=int, default=None, help="how many seeds (default: 100, or 1 for a seed)")
    parser.add_argument("--hours", type=float, default=None, help="play for so long instead, whatever fails")
    parser.add_argument("--plan", type=Path, default=None, help="play the plan in this file instead")
    parser.add_argument("--ranges", action="store_true", help="rings assign by ranges of hashes, not by labels")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--bug", choices=[bug.name for bug in Bug], help="plant this bug into the product")
    parser.add_argument("--shrink", type=int, default=MAX_RUNS, help="shrink what fails with so many runs (0: not)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where it keeps what it has done and found")
    parser.add_argument("--verbose", action="store_true", help="tell the whole story of each, log lines included")
    options = parser.parse_args()
    bug = Bug[options.bug] if options.bug else None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Players(options.jobs) as players:
        if options.plan is not None:
            return _play_one(players, options.plan, bug, verbose=options.verbose)
        try:
            return _play_many(players, options, bug)
        except KeyboardInterrupt:
            _say("interrupted; the same command goes on from here")
            return 130


def _play_one(players: Players, path: Path, bug: Bug | None, *, verbose: bool) -> int:
    (outcome,) = players.play([load_plan(path)], bug, verbose=verbose)
    if verbose:
        _say("\n".join(outcome.story))
    if outcome.violations:
        _say(outcome.render(again=_again(f"PLAN={path}", bug)))
        return 1
    _say(_told(outcome))
    return 0


def _play_many(players: Players, options: argparse.Namespace, bug: Bug | None) -> int:
    first = time.time_ns() % 1_000_000_000 if options.seed is None else options.seed
    runs = options.runs or (100 if options.seed is None else 1)
    campaign = go_on(options.folder, options.bug, options.seed, ranges=options.ranges)
    if campaign is not None:
        _say(f"going on: {campaign.played} seeds from {campaign.first} are played")
    else:
        campaign = Campaign(code_now(), options.bug, first, options.ranges)
    start = campaign.first + campaign.played
    seeds = count(start) if options.hours else range(start, campaign.first + runs)
    plans = (plan_of(seed, bug, ranges=options.ranges) for seed in seeds)
    began = time.monotonic()
    for outcome in players.play(plans, bug, verbose=options.verbose):
        known = outcome.rule in campaign.broken
        campaign.add(outcome, time.monotonic() - began)
        began = time.monotonic()
        campaign.save(options.folder)
        if options.verbose:
            _say("\n".join(outcome.story))
        if not outcome.violations:
            _say(_told(outcome))
        elif known:
            _say(f"seed {outcome.plan.seed} fails, too: {str(outcome.violations[0]).partition(chr(10))[0]}")
        else:
            _say(outcome.render(again=_again(f"SEED={outcome.plan.seed} RUNS=1{by_ranges(outcome.plan)}", bug)))
            _shrink(players, outcome, bug, options)
        if (outcome.violations and not options.hours) or (options.hours and campaign.seconds > 3600 * options.hours):
            break
    forget(options.folder)
    _say(campaign.told())
    return 1 if campaign.broken else 0


def _shrink(players: Players, failed: Outcome, bug: Bug | None, options: argparse.Namespace) -> None:
    if options.shrink <= 0:
        return
    short = Shrinking(failed, partial(players.play, bug=bug), options.shrink).run()
    path = options.folder / f"seed-{failed.plan.seed}.json"
    save_plan(short.plan, path)
    _say(
        f"\nshrunk from {len(failed.plan.actions)} actions to {len(short.plan.actions)}:\n{describe_plan(short.plan)}\n"
    )
    _say(short.render(lines=25, again=_again(f"PLAN={path}", bug)))
    _say(f"to have the tests play it for ever: mv {path} {os.path.relpath(KEPT)}/WHAT-IT-SHOWS.json\n")


def _again(what: str, bug: Bug | None) -> str:
    return f"make simulate {what}" + (f" BUG={bug.name}" if bug is not None else "")


def _told(outcome: Outcome) -> str:
    stats = outcome.stats
    return (
        f"seed {outcome.plan.seed}: {outcome.seconds:.0f} s of virtual time, {stats.commits} writes,"
        f" {stats.takeovers} takeovers, settled after {stats.settled_after:.0f} s"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
