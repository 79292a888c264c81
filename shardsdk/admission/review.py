"""AdmissionReviews of `admission.k8s.io/v1`: what API servers ask, and what they are answered.

Reads a body, renders an answer; no I/O.  What is no review is an error that says so.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

#: The only version there is since Kubernetes 1.22.
API_VERSION: Final = "admission.k8s.io/v1"
_NOTHING: Final = b"null"


class NotAReview(Exception):
    """A body that cannot be answered, for it is no AdmissionReview; says what is wrong with it."""


class Operation(StrEnum):
    """What is about to be done with an object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class User(msgspec.Struct, frozen=True):
    """Who asks for it, as the API server has authenticated them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] | None = None


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an AdmissionRequest that is looked at; objects stay as they came."""

    uid: str
    operation: str
    namespace: str | None = None
    name: str | None = None
    object: msgspec.Raw = msgspec.Raw(_NOTHING)
    old_object: msgspec.Raw = msgspec.Raw(_NOTHING)
    dry_run: bool | None = None
    user_info: User = User()


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest | None = None


class Outcome(StrEnum):
    """What became of a request to a webhook, for whoever counts."""

    #: Its function has nothing against it, or has changed it.
    ALLOWED = "allowed"
    #: Its function refuses.
    DENIED = "denied"
    #: The object does not fit its class, so the function was not asked.
    UNFIT = "unfit"
    #: Its function raised, or took too long; what becomes of it is for the failure policy.
    FAILED = "failed"
    #: It was no AdmissionReview, too large, or came too slowly.
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is answered: allowed or not, with a JSON patch (`None`: as it is) and warnings for whoever asked.

    `message`, `code` (HTTP), `reason` and `details` are of a refusal, as in a `Status`.
    """

    allowed: bool
    message: str = ""
    code: int = 0
    reason: str = ""
    details: Mapping[str, Any] | None = None
    warnings: Sequence[str] = ()
    patch: Sequence[dict[str, Any]] | None = None
    outcome: Outcome = Outcome.ALLOWED


_decoder: Final = msgspec.json.Decoder(_Envelope)


def parse_review(body: bytes) -> AdmissionRequest:
    """The request of a review.  Raises: NotAReview."""
    try:
        envelope = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAReview(f"this is no AdmissionReview: {error}") from error
    if envelope.api_version != API_VERSION or envelope.kind != "AdmissionReview":
        raise NotAReview(f"this is {envelope.kind} of {envelope.api_version}; send an AdmissionReview of {API_VERSION}")
    if envelope.request is None or not envelope.request.uid:
        raise NotAReview("this AdmissionReview has no request with a uid, so nobody can be answered")
    if envelope.request.operation not in Operation.__members__:
        raise NotAReview(f"nothing is said of {envelope.request.operation!r}; ask about {', '.join(Operation)}")
    return envelope.request


def render_verdict(uid: str, verdict: Verdict) -> bytes:
    """The AdmissionReview that goes back."""
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        status: dict[str, Any] = {"status": "Failure", "message": verdict.message, "code": verdict.code}
        status["reason"] = verdict.reason
        if verdict.details is not None:
            status["details"] = verdict.details
        response["status"] = status
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(msgspec.json.encode(verdict.patch)).decode()
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
