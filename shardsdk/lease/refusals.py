"""Why a request about a lease has failed, and what to do about it, in a sentence."""

from __future__ import annotations

from shardsdk.errors import BadRequest, Invalid, NotFound, ShardingError
from shardsdk.lease.claim import Claim
from shardsdk.lease.steps import Read, Write


def explain(claim: Claim, request: Read | Write, error: ShardingError) -> str:
    """What `error` says, and what is known besides."""
    match request, error:
        case Write(create=True), NotFound():
            namespace = claim.namespace
            return f"there is no namespace {namespace!r} for the {claim}: `kubectl create namespace {namespace}`"
        case Write(), Invalid() | BadRequest():
            # What a Lease may be called, and say, was checked before: somebody refuses it, and may cease to.
            return f"{error} — exempt this identity from the policy or the admission webhook that refuses it"
        case _:
            return str(error)
