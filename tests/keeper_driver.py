"""One process's keeper and the API server's Lease, driven one step at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from shardsdk.errors import AlreadyExists, Conflict, NotFound
from shardsdk.lease.claim import Claim
from shardsdk.lease.keeper import Keeper
from shardsdk.lease.steps import Moment, Phase, Read, Wait, Write
from shardsdk.lease.timings import LeaseTimings
from shardsdk.protocol.labels import INSTANCE_ANNOTATION, LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease, render_instance
from shardsdk.protocol.objects import LEASES
from shardsdk.testing.memory import MemoryServer
from tests.lease_rig import lease_in

CLAIM = Claim("default", "shard-a", "shard-a", 15, instance="uid-1", ring="example")
CANDIDATE = Claim("default", "election", "candidate-1", 15)
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Driver:
    """One process, and the API server's Lease, on one clock."""

    def __init__(self, claim: Claim = CLAIM, server: MemoryServer | None = None) -> None:
        self.claim = claim
        self.keeper = Keeper(claim, LeaseTimings())
        self.server = server or MemoryServer()
        self.now = 1000.0
        #: Seconds for which the machine is known to have stood still.
        self.missed = 0.0

    def at(self) -> Moment:
        return Moment(self.now, EPOCH + timedelta(seconds=self.now), missed=self.missed)

    def next(self) -> Any:
        return self.keeper.next(self.at())

    def execute(self, request: Read | Write) -> Lease | None:
        match request:
            case Read():
                return self.lease_or_none
            case Write(body, create):
                made = self.server.create(LEASES, body) if create else self._patch(body)
                return msgspec.convert(made, Lease)

    def step(self, seconds: float = 0.0) -> Any:
        """One step with a network that takes `seconds` each way."""
        return self.do(self.next(), seconds)

    def do(self, action: Any, seconds: float = 0.0) -> Any:
        """Do what the keeper has asked for."""
        if isinstance(action, Read | Write):
            self.now += seconds
            try:
                lease = self.execute(action)
            except (Conflict, AlreadyExists, NotFound) as error:
                self.keeper.refused(self.at(), str(error))
                return action
            self.now += seconds
            if isinstance(action, Read):
                self.keeper.saw(lease, self.at())
            else:
                assert lease is not None
                self.keeper.wrote(lease, self.at())
        return action

    def steps_until(self, phase: Phase, seconds: float) -> float:
        """Work until `phase`, at most for `seconds`; how long it took."""
        began = self.now
        while self.keeper.phase is not phase:
            assert self.now - began <= seconds, f"still {self.keeper.phase} after {seconds} s"
            if isinstance(action := self.step(), Wait):
                self.now += action.seconds
        return self.now - began

    def acquire(self) -> Driver:
        self.steps_until(Phase.HOLDING, 0)
        return self

    def due(self) -> Driver:
        """Let time pass until the next renewal is due."""
        while isinstance(action := self.next(), Wait):
            self.now += action.seconds
        return self

    @property
    def lease_or_none(self) -> Lease | None:
        return lease_in(self.server, self.claim.name, self.claim.namespace)

    @property
    def lease(self) -> Lease:
        lease = self.lease_or_none
        assert lease is not None
        return lease

    def meddle(self, body: dict[str, Any]) -> None:
        self._patch(body)

    def delete(self) -> None:
        self.server.delete(LEASES, self.claim.name, self.claim.namespace)

    def _patch(self, body: Any) -> dict[str, Any]:
        return self.server.patch(LEASES, self.claim.name, self.claim.namespace, body)


def lease_of(
    claim: Claim = CLAIM, *, instance: str | None = "uid-1", ring: str | None = "example", **spec: Any
) -> MemoryServer:
    """An API server with one Lease that somebody wrote before."""
    server = MemoryServer()
    metadata: dict[str, Any] = {"name": claim.name, "namespace": claim.namespace}
    given = {
        "holderIdentity": claim.holder,
        "leaseDurationSeconds": 15,
        "renewTime": "2029-01-01T00:00:00.000000Z",
        "acquireTime": "2029-01-01T00:00:00.000000Z",
        "leaseTransitions": 3,
        **spec,
    }
    if ring is not None:
        metadata["labels"] = {LEASE_RING_LABEL: ring}
    if instance is not None:
        metadata["annotations"] = {INSTANCE_ANNOTATION: render_instance(instance, given["renewTime"])}
    server.create(
        LEASES, {"metadata": metadata, "spec": {key: value for key, value in given.items() if value is not None}}
    )
    return server
