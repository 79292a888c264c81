"""What a manager was told about its leases, and what is made of that: a shard's lease, an election's candidate."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardsdk.errors import ConfigurationError
from shardsdk.lease.leadership import Candidate, Election
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.timings import LeaseTimings
from shardsdk.process.process import ExitCode
from shardsdk.process.world import World
from shardsdk.reconcile.spec import Work


@dataclass(frozen=True, slots=True)
class Leases:
    """As `Manager` is told; not all of it need be what it should be before `check`."""

    ring: str | None
    election: Election | None
    shard: str | None
    namespace: str | None
    timings: LeaseTimings | None
    fenced: bool | None
    restart_grace_seconds: int

    def now(self, ring: str | None, election: Election | None, shard: str | None, namespace: str | None) -> Leases:
        """These, as the manager's attributes say once it runs: they may have been set meanwhile."""
        return replace(self, ring=ring, election=election, shard=shard, namespace=namespace)

    def check(self) -> None:
        """Raises: ConfigurationError for what are no timings, or would be heeded nowhere."""
        of_election = None if self.election is None else self.election.timings
        for each in (self.timings, of_election):
            if not isinstance(each, LeaseTimings | None):
                raise ConfigurationError(f"timings={each!r} are none: write LeaseTimings.of(seconds)")
        if self.ring is not None:
            return
        if self.timings and of_election and self.timings != of_election:
            raise ConfigurationError(
                f"the election has {of_election}, and the manager {self.timings}, but without a ring there is no lease"
                " but the election's: give one of the two alone"
            )
        # What is false, or empty, asks for nothing that is not so anyway.
        if given := [f"{name}=" for name in ("shard", "fenced", "restart_grace_seconds") if getattr(self, name)]:
            raise ConfigurationError(
                f"the manager has no ring: leave out {' and '.join(given)}, which a shard has, or pass Manager(ring);"
                " of an operator, write Operator(…, sharded=True)"
            )

    @property
    def timings_of_process(self) -> LeaseTimings:
        """Those of the shard's lease; without a ring, of the election's."""
        if self.ring is None and self.election is not None:
            return self._of_election(self.election)
        return self.timings or LeaseTimings()

    def shard_lease(self, world: World, ring: str, work: Work) -> ShardLease:
        """The lease under which a shard does `work`.  Raises: ConfigurationError."""
        return ShardLease(
            world.source,
            ring,
            self.shard,
            self.namespace,
            timings=self.timings,
            fenced=self.fenced,
            ranges=True,
            mains=[each.main.resource.group_resource for each in work.specs],
            clock=world.clock,
            rng=world.rng,
            restart_grace_seconds=self.restart_grace_seconds,
            instance=world.instance,
            threaded=world.threaded,
            on_deadline=lambda: world.die(ExitCode.LEASE_LOST, "the lease is lost and work under it still runs"),
        )

    def candidate(self, world: World, election: Election) -> Candidate:
        """One that stands for `election`.  Raises: ConfigurationError."""
        return Candidate(
            replace(election, timings=self._of_election(election)),
            world.source,
            clock=world.clock,
            rng=world.rng,
            threaded=world.threaded,
            die=lambda: world.die(ExitCode.LEASE_LOST, "this process does not lead any more and its work still runs"),
        )

    def _of_election(self, election: Election) -> LeaseTimings:
        return election.timings or self.timings or LeaseTimings()
