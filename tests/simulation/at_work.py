"""Which reconciles run, and that no two processes are at work on one object at once, however its ring assigns.

Safety only.  Asked as a reconcile begins, and at each step that it takes: one whose
process stood still goes on beside whatever has begun meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.simulation.vocabulary import Doing

if TYPE_CHECKING:
    from tests.simulation.world import AnyShard, World

#: For so long whoever was at work on an object that a user gave to another, or to nobody, may go on.
TORN_SECONDS: Final = 60.0


@dataclass(slots=True)
class AtWork:
    """The reconciles of one run that have not ended; those of a process that was killed never do."""

    world: World
    _running: dict[int, Doing] = field(default_factory=dict)
    #: Until when an object may be at work twice because a user tore it from its shard.
    _torn: dict[str, float] = field(default_factory=dict)

    def of(self, process: str) -> list[Doing]:
        """The reconciles of one process."""
        return [each for each in self._running.values() if each.process == process]

    def tore(self, uid: str) -> None:
        """A user gave an object to another shard, or to none."""
        self._torn[uid] = self.world.now + TORN_SECONDS

    def began(self, doing: Doing) -> None:
        """A reconcile begins."""
        self._check(doing, "begins")
        self._running[doing.number] = doing

    def stepped(self, doing: Doing) -> None:
        """A reconcile goes on; one whose process does so at just this moment has had no time yet to end it."""
        if not self.world.machines.goes_on_now(doing.process):
            self._check(doing, "goes on")

    def ended(self, doing: Doing) -> None:
        """A reconcile has ended."""
        self._running.pop(doing.number, None)

    def _check(self, doing: Doing, does: str) -> None:
        checkers = self.world.checkers
        if checkers.unsure or self._torn.get(doing.uid, 0.0) > self.world.now or checkers.is_excused(doing):
            return
        for other in self._running.values():
            if other.uid == doing.uid and other.process != doing.process and self._is_at_work(other):
                checkers.violate("one at work", f"{doing} {does} while {other} runs")

    def _is_at_work(self, doing: Doing) -> bool:
        """Whether a reconcile takes steps, or may once its process goes on: one whose lease is lost takes none then."""
        process = next((each for each in self.world.shards if each.identity == doing.process), None)
        if process is None or process.main.done() or self.world.checkers.is_excused(doing):
            return False
        if not process.running:
            return self.world.checkers.relies(doing)
        return not self.world.machines.goes_on_now(doing.process) and not _was_told(process, doing)


def _was_told(process: AnyShard, doing: Doing) -> bool:
    """Whether that is all there is to it: nobody can cancel a plain function, which has what is left of the hold."""
    return doing.plain and process.hold_ends
