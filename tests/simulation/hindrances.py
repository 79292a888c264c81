"""Until when what hinders the sharder, a ring or one shard of it, so that nothing is judged that waits for them.

A shard's trouble is its own: nobody else waits for it.  What a process has asked
without an answer hinders until it gives that up, and what has been in trouble
for a while for as long again, since pauses between attempts double meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from shardsdk.kube.streams import PAUSE_MAX_SECONDS
from shardsdk.protocol.labels import RingLabels
from shardsdk.testing.processes import ProcessState
from tests.simulation.network import CALM
from tests.simulation.server import Service
from tests.simulation.vocabulary import MAIN_OF

if TYPE_CHECKING:
    from tests.simulation.replicas import ReplicaProcess
    from tests.simulation.world import AnyShard, World

#: By this name the API server has been in trouble; no process has it.
_API_SERVER: Final = "API server"


@dataclass(slots=True)
class Hindrances:
    """Those of one run, as moments until which they last."""

    world: World
    #: The sharder's, and so everybody's: no leader, one in trouble, or no API server.
    sharder: float = 0.0
    _api_server: float = 0.0
    _rings: dict[str, float] = field(default_factory=dict)
    #: Those of each shard, by ring and name, and of each process of the sharder.
    _shards: dict[str, dict[str, float]] = field(default_factory=dict)
    _replicas: dict[str, float] = field(default_factory=dict)
    #: Since when what is in trouble has been.
    _since: dict[str, float] = field(default_factory=dict)
    #: When another one came to lead last.
    _elected_at: float = 0.0

    def hinder(self, ring: str | None, seconds: float = 0.0) -> None:
        """Something hinders a ring (`None`: all of them) from now on for so long."""
        until = self.world.now + seconds
        if ring is None:
            self.sharder = max(self.sharder, until)
        else:
            self._rings[ring] = max(self._rings.get(ring, 0.0), until)

    def hinder_shard(self, ring: RingLabels, name: str, seconds: float = 0.0) -> None:
        """Something hinders one shard from now on for so long."""
        shards = self._shards.setdefault(ring.ring, {})
        shards[name] = max(shards.get(name, 0.0), self.world.now + seconds)

    def elected(self) -> None:
        """Another one leads, or nobody does any more."""
        self._elected_at = self.world.now
        self.hinder(None)

    def has_led_since(self, leader: str, moment: float) -> bool:
        """Whether this process of the sharder has led without trouble since then."""
        return max(self._api_server, self._elected_at, self._replicas.get(leader, moment)) <= moment

    def until(self, ring: str, shards: Iterable[str] | None = None) -> float:
        """Until when what waits for these shards of a ring (`None`: for all of them) is hindered."""
        known = self._shards.get(ring, {})
        own = known.values() if shards is None else (known.get(name, 0.0) for name in shards)
        return max(self.sharder, self._rings.get(ring, 0.0), *own)

    def look(self) -> None:
        """Once a second: note who is in trouble."""
        world = self.world
        away = self._trouble(_API_SERVER, world.server.service is not Service.UP)
        self._api_server = max(self._api_server, away)
        self.sharder = max(self.sharder, self._api_server)
        for replica in world.replicas:
            before = self._replicas.get(replica.identity, world.now)
            self._replicas[replica.identity] = max(before, self._of(replica))
        for shard in world.shards:
            self.hinder_shard(shard.ring, shard.name, self._of(shard) - world.now)
        for ring, main in MAIN_OF.items():
            if (main.group, main.plural) not in world.server.served:
                self.hinder(ring)
        leader = world.leader
        if leader is None or not leader.ready or world.webhook_hangs:  # that outlasts the shortest holds
            self.hinder(None)
        else:
            self.sharder = max(self.sharder, self._replicas[leader.identity])

    def could_lead_since(self) -> float | None:
        """Since when some process of the sharder could have come to lead; `None`: one leads, or none could."""
        leader = self.world.leader
        able = [each for each in self.world.replicas if each.stays and not _troubled(each)]
        if not able or (leader is not None and leader.ready):
            return None
        return max(self._api_server, self._elected_at, min(self._replicas[each.identity] for each in able))

    def _of(self, who: AnyShard | ReplicaProcess) -> float:
        return max(who.link.silent_until, self._trouble(who.identity, _troubled(who)))

    def _trouble(self, who: str, troubled: bool) -> float:
        if not troubled:
            self._since.pop(who, None)
            return 0.0
        now = self.world.now
        return now + min(now - self._since.setdefault(who, now), PAUSE_MAX_SECONDS)


def _troubled(who: AnyShard | ReplicaProcess) -> bool:
    return who.process.state is ProcessState.PAUSED or who.link.cut or who.link.trouble is not CALM
