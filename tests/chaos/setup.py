"""How a run is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from localcluster.installation import SharderTimings


@dataclass(frozen=True, slots=True)
class Setup:
    """How a run is set up.

    `assignment`: of the ring, as its `spec` has it.  `feature_gates` are the API servers'.
    `reads_requests`: the proxies end TLS, so that they can answer requests themselves.  `clocks`: seconds ahead and
    rate, by the process's name.
    `previous`: sharders and shards are of the version before this one.
    `audited`: API servers write audit logs.
    `restart_grace_seconds`: for how long a shard that stops keeps its lease.
    `fenced`: shards promise to have stopped by the end of their lease, as those in Go do not.
    """

    lease_seconds: int = 15
    objects: int = 90
    children: int = 2
    sharders: int = 2
    shards: int = 3
    changes_per_second: float = 10.0
    busy_seconds: float = 0.3
    reads_requests: bool = False
    apiservers: int = 1
    restart_grace_seconds: int = 0
    fenced: bool = True
    previous: bool = False
    audited: bool = True
    clocks: dict[str, tuple[float, float]] = field(default_factory=dict)
    assignment: str = "Labels"
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    patience_seconds: float = 240.0

    @property
    def sharder_timings(self) -> SharderTimings:
        """The replicas' own lease is as long as the shards'."""
        lease = self.lease_seconds
        return SharderTimings(lease_duration=lease, renew_deadline=lease * 2 / 3, retry_period=lease * 2 / 15)
