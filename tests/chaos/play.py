"""One fault on a rig: settle, work, break, mend, settle, and judge what the history shows."""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.chaos.fault import Fault
from tests.chaos.history import History
from tests.chaos.proxy import Net
from tests.chaos.rig import Rig, rig_of
from tests.chaos.rules import Verdict, given_back, judge, moves_in
from tests.chaos.setup import Setup

#: What is told of a run that broke rules.
_SHOWN: Final = 5
BUILD: Final = Path("build/chaos")


@dataclass(frozen=True, slots=True)
class Row:
    """What was observed of one fault; `beyond`: moves that it does not excuse."""

    fault: str
    violations: dict[str, int]
    shown: tuple[str, ...]
    moves: int
    beyond: int
    longest: float
    allowed: float
    settled: bool
    reconciles: int
    writes: int
    objects: int
    lease_seconds: int
    seconds: float
    date: str
    seed: int
    #: Programs that could run at the end, for each core, over a minute: above 1 they wait for each other.
    load: float = 0.0
    assignment: str = "Labels"

    @property
    def safe(self) -> bool:
        """Whether nothing came of it that may not, but for the time that it took."""
        return self.settled and not self.violations and not self.beyond

    @property
    def passed(self) -> bool:
        """Whether nothing came of it that may not."""
        return self.safe and self.longest <= self.allowed


async def play_alone(fault: Fault, seed: int, **setup: Any) -> Row:
    """On a rig of its own; the history of one that does not hold is kept in `BUILD`, for `rules.judge`."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        made = replace(Setup(), **{**fault.setup, **setup})
        async with rig_of(made, Path(folder) / "run", seed) as rig:
            row, history = await play(rig, fault, seed)
    if not row.passed:
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / f"{fault.name}-{made.assignment}-{seed}.pickle").write_bytes(pickle.dumps(history))
    return row


async def play(rig: Rig, fault: Fault, seed: int) -> tuple[Row, History]:
    """On a rig that is settled, and is again afterwards if it can be."""
    rig.begin = began = time.monotonic()
    rig.load()
    await rig.busy()
    await fault.act(rig, Random(seed))
    recover(rig)
    await rig.unload()
    settled = False
    with contextlib.suppress(TimeoutError):
        await rig.settle()
        settled = True
    history = await rig.history()
    verdict = judge(history)
    return _row(rig, fault, verdict, history, settled, time.monotonic() - began, seed), history


def recover(rig: Rig) -> None:
    """Nothing is wrong with anything any more."""
    for proxy in rig.proxies.values():
        proxy.delay_seconds, proxy.storm = 0.0, None
        if proxy.net is not Net.OPEN:
            proxy.set(Net.OPEN)


def _row(rig: Rig, fault: Fault, verdict: Verdict, history: History, settled: bool, seconds: float, seed: int) -> Row:
    return Row(
        fault.name,
        dict(Counter(each.rule for each in verdict.violations)),
        tuple(f"{each.rule}: {each.what}" for each in verdict.violations[:_SHOWN]),
        verdict.moves,
        moves_beyond(history, fault),
        round(verdict.longest, 1),
        fault.longest_allowed(rig.setup.lease_seconds),
        settled,
        verdict.reconciles,
        verdict.writes,
        rig.owned(*rig.living),
        rig.setup.lease_seconds,
        round(seconds),
        datetime.now(UTC).date().isoformat(),
        seed,
        round(os.getloadavg()[0] / (os.cpu_count() or 1), 1),
        rig.setup.assignment,
    )


def moves_beyond(history: History, fault: Fault) -> int:
    """Moves that are neither from nor to a victim of the fault, or one too many of an object."""
    if fault.moves is None:
        return 0
    count: Counter[str] = Counter()
    beyond = 0
    for move in moves_in(history):
        if history.clock.before(move.after.at) < history.begin:
            continue
        count[move.after.uid] += 1
        if given_back(history, move):
            continue
        theirs = {move.before.shard, move.after.shard} & set(fault.victims)
        beyond += not theirs or count[move.after.uid] > fault.moves
    return beyond


def as_json(row: Row) -> dict[str, Any]:
    """The row as it is kept."""
    return asdict(row)
