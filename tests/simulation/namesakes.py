"""Two processes of one name: a pod that was deleted by force and is not gone yet, and its successor."""

from __future__ import annotations

from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.machines import LEAST_SECONDS
from tests.simulation.network import CALM
from tests.simulation.shards import ShardProcess

if TYPE_CHECKING:
    from tests.simulation.happenings import Happenings


class Away(Enum):
    """Why nobody has heard that the old pod has ended."""

    HANGS = "is paused"
    CUT_OFF = "is cut off"
    STOPPED = "is on a machine that stands still"
    HERE = "runs on"


class Namesakes:
    """Starts them."""

    def __init__(self, happenings: Happenings) -> None:
        self._happenings = happenings
        self._world = happenings.world

    def force_away(self, rng: Random) -> None:
        """`kubectl delete --force`: a StatefulSet starts the pod anew, under its name, wherever the old one is.

        That comes back, or does not for as long as the run takes; and is killed sooner or later, if it does.
        """
        world, old = self._world, self._happenings.shard(rng)
        if not isinstance(old, ShardProcess) or not self._happenings.has_room:
            return
        lease, away, comes_back = world.timings.lease, rng.choice(list(Away)), rng.random() < 0.7
        seconds = LEAST_SECONDS + rng.uniform(0.0, 4.0) * lease
        world.note(f"{old.identity} {away.value}, and is deleted by force")
        world.trouble(old.identity)
        match away:
            case Away.HANGS:
                old.process.pause()
            case Away.CUT_OFF:
                old.link.cut = True
            case Away.STOPPED:
                world.machines.stop(old, seconds)
            case Away.HERE:
                pass
        world.later(rng.choice((0.1, rng.uniform(0.0, 1.5) * lease)), lambda: self._succeed(old))
        if comes_back or away is Away.STOPPED:
            world.later(seconds, lambda: self._come_back(old))
            world.later(seconds + rng.uniform(0.0, 2.0) * lease, lambda: self._end(old))

    def _succeed(self, old: ShardProcess) -> None:
        if self._happenings.has_room:
            self._world.start_shard(old.name, old.ring)

    def _come_back(self, old: ShardProcess) -> None:
        self._world.note(f"{old.identity} comes back")
        self._world.machines.resume(old)
        if old.link.cut:
            old.link.trouble, old.link.cut = CALM, False
            self._world.server.drop_link(old.link)

    def _end(self, old: ShardProcess) -> None:
        """Its node reads at last that the pod is to be gone, whichever process is in it by now."""
        for each in [*self._world.shards, old]:
            if isinstance(each, ShardProcess) and each.instance == old.instance:
                each.kill()
