"""What tells a lease's holder that the store came back from a backup: whatever else it knows may be wrong, too."""

from __future__ import annotations

from shardsdk.lease.claim import Claim, Relation
from shardsdk.protocol.leases import Lease


def is_older(lease: Lease, version: str) -> bool:
    """Whether `lease` is of an earlier version than `version`, which was there before: the store was set back."""
    found = lease.metadata.resource_version
    return found.isdecimal() and version.isdecimal() and int(found) < int(version)


def changed_hands(claim: Claim, known: Lease | None, made: Lease) -> bool:
    """Whether others had the claimant's lease between what was `known` of it and what its renewal has `made` of it.

    A version has one content, but in a store that was set back, whose versions may come to the known one anew.  Whoever
    takes a lease counts its transitions up, which a renewal leaves.
    """
    if known is None or known.spec.lease_transitions == made.spec.lease_transitions:
        return False
    return claim.relation(known) is claim.relation(made) is Relation.OURS
