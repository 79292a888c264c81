"""A long run on the real thing: a fault every minute, drawn from a seed, under load; all processes are measured."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from tests.chaos.faults import FAULTS
from tests.chaos.play import recover
from tests.chaos.rig import Rig
from tests.chaos.rules import judge
from tests.chaos.setup import Setup
from tests.chaos.soak.measuring import NOISE_MIB, Judgement, Life, Lives, Sample, together

#: What a rig recovers from by itself, and after which sharders and shards are the same processes, but for the victim.
#: An outage of the API server ends every shard that loses its lease by it: then nobody lives long enough to be judged.
DRAWN: Final = (
    "shard-killed-and-back", "shard-suspended", "shard-cut-off", "shard-in-a-black-hole", "shard-half-open",
    "leader-suspended", "leader-cut-off", "labels-tampered", "leases-deleted", "lease-emptied",
    "webhook-in-a-black-hole",
)  # fmt: skip
#: How the replicas of the sharder are called, each with its number.
REPLICA: Final = "sharder-"
#: Looks at all processes in a run, about.
LOOKS: Final = 240
MOST_SECONDS_BETWEEN_LOOKS: Final = 15.0
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run; `seconds` is how long faults were done, after everything was made."""

    seconds: float
    asked_seconds: float
    objects: int
    seed: int
    date: str
    lease_seconds: int
    faults: dict[str, int]
    violations: dict[str, int]
    shown: tuple[str, ...]
    settled: bool
    moves: int
    longest: float
    reconciles: int
    writes: int
    lives: tuple[Life, ...] = field(default=())

    @property
    def held(self) -> bool:
        """Whether nothing came of it that may not, and nothing grows."""
        grown = any(is_flat(life, judged) is False for life, judged in self.judged())
        return self.settled and not self.violations and not grown

    def judged(self) -> Iterator[tuple[Life, Judgement | None]]:
        """Each process, and the sharders as one, with how it fares (`None`: it did not live for long enough)."""
        replicas = [each for each in self.lives if each.name.startswith(REPLICA)]
        both = [together("sharders together", replicas)] if replicas else []
        for life in (*both, *self.lives):
            yield life, life.judge(self.seconds)


def is_flat(life: Life, judged: Judgement | None) -> bool | None:
    """Whether it does not grow; `None`: nobody judges that.

    Etcd keeps every version for the checker, and grows by them.  A replica opens files when it comes to lead and closes
    them afterwards, so theirs are judged of all replicas together.
    """
    if judged is None or not life.name.startswith("shard"):
        return None
    return judged.memory.flat(NOISE_MIB) if life.name.startswith(REPLICA) else judged.flat


def setup_for(objects: int, lease_seconds: int = 15) -> Setup:
    """A rig with so many objects; it has long to make and place them."""
    patience = 240.0 + objects / 5
    return Setup(lease_seconds, objects, children=1, busy_seconds=0.05, patience_seconds=patience, audited=False)


async def soak(rig: Rig, seconds: float, every_seconds: float, seed: int, drawn: Sequence[str] = DRAWN) -> Outcome:
    """Do faults for so many seconds on a rig that is settled, and is again afterwards."""
    rng, lives, done = Random(seed), Lives(), Counter[str]()
    rig.begin = began = time.monotonic()
    async with _measured(rig, lives, min(seconds / LOOKS, MOST_SECONDS_BETWEEN_LOOKS)):
        rig.load()
        await rig.busy()
        while (now := time.monotonic() - began) < seconds:
            fault = FAULTS[rng.choice(drawn)]
            await fault.act(rig, rng)
            recover(rig)
            done[fault.name] += 1
            await asyncio.sleep(max(0.0, now + every_seconds - (time.monotonic() - began)))
        lasted = time.monotonic() - began
        await rig.unload()
        settled = False
        with contextlib.suppress(TimeoutError):
            await rig.settle()
            settled = True
    verdict = judge(await rig.history())
    broken = Counter(each.rule for each in verdict.violations)
    return Outcome(
        seconds=round(lasted), asked_seconds=seconds, objects=rig.owned(*rig.living), seed=seed,
        date=datetime.now(UTC).date().isoformat(), lease_seconds=rig.setup.lease_seconds,
        faults=dict(sorted(done.items())),
        violations=dict(broken), shown=tuple(f"{each.rule}: {each.what}" for each in verdict.violations[:_SHOWN]),
        settled=settled, moves=verdict.moves, longest=round(verdict.longest, 1), reconciles=verdict.reconciles,
        writes=verdict.writes, lives=tuple(lives.all),
    )  # fmt: skip


@asynccontextmanager
async def _measured(rig: Rig, lives: Lives, pause_seconds: float) -> AsyncIterator[None]:
    began = time.monotonic()

    async def look() -> None:
        while True:
            lives.look(time.monotonic() - began, pids(rig))
            await asyncio.sleep(pause_seconds)

    looking = asyncio.create_task(look())
    try:
        yield
        lives.look(time.monotonic() - began, pids(rig))
    finally:
        looking.cancel()


def pids(rig: Rig) -> dict[str, int]:
    """Who runs now, by name."""
    sharders = {name: each.process.pid for name, each in rig.installation.sharders.items() if each.process.running}
    shards = {name: each.pid for name, each in rig.installation.shards.items() if each.running}
    plane = {"etcd": rig.plane.etcd.pid, "kube-apiserver": rig.plane.apiserver.pid}
    return {**sharders, **shards, **plane}


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as it is kept."""
    fields = {name: getattr(outcome, name) for name in Outcome.__slots__ if name != "lives"}
    lives = [
        {"name": life.name, "samples": [[each.at, each.mib, each.files] for each in life.samples]}
        for life in outcome.lives
    ]
    return {**fields, "lives": lives}


def from_json(kept: dict[str, Any]) -> Outcome:
    """What was kept."""
    lives = tuple(Life(each["name"], 0, [Sample(*one) for one in each["samples"]]) for each in kept["lives"])
    return Outcome(**{**kept, "lives": lives, "shown": tuple(kept["shown"])})
