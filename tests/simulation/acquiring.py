"""How the lease of a shard gets from one process of its name to another: given back, or not before it has run out.

All processes of a name are the same holder to the lease, and have the same objects, by labels and by ranges: only
what they wait for each other keeps them apart.  And it is given back, to whomever, only once nothing that any of them
had sent can be executed any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardsdk.kube.store import Key
from shardsdk.lease.claim import released
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.objects import LEASES
from tests.simulation.storage import Commit
from tests.simulation.vocabulary import RATES

if TYPE_CHECKING:
    from tests.simulation.checkers import Checkers


@dataclass(frozen=True, slots=True)
class _Renewal:
    """Which process has renewed a lease last, and when it may be acquired at the earliest, by the fastest clock."""

    process: str
    until: float


class Acquisitions:
    """Looks at each lease that goes from one process of a shard to another one of its name."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self._world = checkers.world
        self._last: dict[str, _Renewal] = {}
        self._world.storage.on_commit.append(self._world.names.to(self._on_commit))
        self._world.storage.on_set_back.append(lambda commits: self._last.clear())

    def _on_commit(self, commit: Commit) -> None:
        shard, process, after = commit.key.name, commit.author.name, commit.after
        if commit.resource != LEASES or after is None or after.label(LEASE_RING_LABEL) is None:
            return
        before = commit.before
        if before is not None and before.doc.get("spec") == after.doc.get("spec"):
            return  # it counts from when it counted before
        lease: Lease = after.decode(Lease)
        if commit.key != Key(self._world.namespace_of_shard(shard), shard) or process == "user":
            return  # what a backup tool puts back is nobody's renewal
        if released(lease) and process.rpartition("_")[0] == shard:
            self._check_release(shard, process)
        if lease.holder != shard:
            return
        last = self._last.get(shard)
        self._last[shard] = _Renewal(process, self._world.now + lease.duration_seconds / RATES[1] - 0.001)
        if before is None or last is None or last.process == process or self._world.now >= last.until:
            return
        was: Lease = before.decode(Lease)
        # Who finds it emptied by somebody's hand waits, as for a holder.
        given_back = was.holder not in ("", shard) or released(was) or was.instance in ("", lease.instance)
        if not given_back and not self._checkers.unsure:
            self._checkers.violate(
                "waits for its namesake",
                f"{process} acquires the lease of {shard}, which {last.process} has until {last.until:.3f}",
            )

    def _check_release(self, shard: str, process: str) -> None:
        for doing in self._world.server.unanswered_writes(shard):
            if doing.fenced and not self._checkers.is_excused(doing):
                self._checkers.violate(
                    "releases when done",
                    f"{process} releases the lease of {shard} while {doing} may yet have a write executed",
                )
