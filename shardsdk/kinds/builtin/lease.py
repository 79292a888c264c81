"""The kind Lease, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shardsdk.kinds.base import Kind, Model
from shardsdk.protocol.objects import Resource


class Lease(Kind, kw_only=True):
    """Lease defines a lease concept."""

    resource: ClassVar[Resource] = Resource("coordination.k8s.io", "v1", "leases", "Lease")

    spec: LeaseSpec = msgspec.field(default_factory=lambda: LeaseSpec())
    """spec contains the specification of the Lease."""


class LeaseSpec(Model, kw_only=True):
    """LeaseSpec is a specification of a Lease."""

    acquire_time: str | None = None
    """acquireTime is a time when the current lease was acquired."""
    holder_identity: str | None = None
    """holderIdentity contains the identity of the holder of a current lease."""
    lease_duration_seconds: int | None = None
    """leaseDurationSeconds is a duration that candidates for a lease need to wait to force acquire it."""
    lease_transitions: int | None = None
    """leaseTransitions is the number of transitions of a lease between holders."""
    preferred_holder: str | None = None
    """PreferredHolder signals to a lease holder that the lease has a more optimal holder and should be given up."""
    renew_time: str | None = None
    """renewTime is a time when the current holder of a lease has last updated the lease."""
    strategy: str | None = None
    """Strategy indicates the strategy for picking the leader for coordinated leader election."""
