"""The webhook's answer to one admission request.

Does: read a review, put back a shard label that was removed without drain or
replaced by hand, place what nobody owns yet, and leave to the placement loop what
has to wait.  Where an owner has to be looked up it says so (`NeedOwner`) and goes
on in `conclude`.

A new main object is nobody's, whatever it wears: its labels are another object's,
copied with the rest.  It gets the shard that it belongs to, or, where that cannot
be told here, none.

Refuses: to deny, ever, and to overwrite the shard label of what is there already.
Whatever is malformed passes as it is.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import msgspec

from sharder.core import patches
from sharder.core.acknowledgement import is_acknowledgement
from sharder.core.decisions import Decision, Desired, Facts, Reason, decide, desire_controlled, desire_main, is_owner
from sharder.core.keys import controlled_key, resource_key
from sharder.core.membership import Membership
from sharder.core.ringspec import AssignBy, ResolvedRing, Role, Subject
from shardsdk.protocol.labels import RingLabels
from shardsdk.protocol.objects import GroupResource, ObjectMeta, PartialObject, Resource

#: The only review version there is since Kubernetes 1.22; an answer repeats the asker's.
REVIEW_API_VERSION: Final = "admission.k8s.io/v1"
#: A uid longer than this is no uid (theirs have 36 characters).
MAX_UID_LENGTH: Final = 256


class _GroupVersionResource(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class _Kind(msgspec.Struct, frozen=True, gc=False):
    kind: str = ""


class _Reviewed(msgspec.Struct, frozen=True):
    """An object under review; without metadata there is nothing to place."""

    metadata: ObjectMeta | None = None


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an AdmissionRequest that is looked at; msgspec skips the rest unread."""

    uid: str = ""
    operation: str = ""
    kind: _Kind = msgspec.field(default_factory=_Kind)
    resource: _GroupVersionResource = msgspec.field(default_factory=_GroupVersionResource)
    sub_resource: str | None = None
    namespace: str | None = None
    name: str | None = None
    object: _Reviewed | None = None
    old_object: _Reviewed | None = None
    dry_run: bool | None = None
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)


class Review(msgspec.Struct, frozen=True, rename="camel"):
    """An AdmissionReview."""

    request: Request
    api_version: str = REVIEW_API_VERSION


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A body that is no review. `uid` None: not even an answer that allows it can be given."""

    uid: str | None
    api_version: str
    message: str


class AnswerOutcome(StrEnum):
    """What became of a request; the label of the webhook's metric."""

    ASSIGNED = "assigned"
    RESTORED = "restored"
    NOT_ACKNOWLEDGED = "not_acknowledged"
    ALREADY_LABELLED = "already_labelled"
    LEFT_TO_PLACEMENT = "left_to_placement"
    OWNER_UNASSIGNED = "owner_unassigned"
    NO_SHARD = "no_shard"
    STALE = "stale"
    ANOTHER_KIND = "another_kind"
    NOT_OURS = "not_ours"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class Answer:
    """Allowed, with a JSON patch or (None) as it is. `dry_run`: nothing will come of it, so it is not counted.

    `warning` goes to whoever made the request.
    """

    patch: list[dict[str, Any]] | None
    outcome: AnswerOutcome
    shard: str | None = None
    dry_run: bool = False
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class NeedOwner:
    """The answer depends on the owner's shard label, as a consistent read shows it now.

    `namespace` is empty for a cluster-scoped owner. An owner of another `uid`
    than the child's reference says is not its owner. `restores`: the labels that
    the child is to wear again if it was where its owner is.
    """

    resource: Resource
    namespace: str
    name: str
    uid: str
    request: Request
    key: str
    restores: Mapping[str, str] | None = None


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    request: msgspec.Raw = msgspec.Raw()
    api_version: Any = REVIEW_API_VERSION


class _Uid(msgspec.Struct, frozen=True):
    uid: str = ""


_reviews = msgspec.json.Decoder(Review)
_envelopes = msgspec.json.Decoder(_Envelope)
_uids = msgspec.json.Decoder(_Uid)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def parse_review(body: bytes) -> Review | Unreadable:
    """Read a request body; never raises."""
    try:
        review = _reviews.decode(body)
    except _UNREADABLE as error:
        return _salvage(body, str(error))
    if not _is_uid(review.request.uid):
        return Unreadable(None, review.api_version, "request.uid is missing; send an AdmissionReview with a request")
    return review


def plan(
    request: Request,
    ring: ResolvedRing,
    membership: Membership,
    *,
    stale: bool = False,
    body: bytes = b"",
    account: str = "",
) -> Answer | NeedOwner:
    """Answer `request`, or name the owner that has to be read first (then `conclude`).

    `body` is the review as it came, whole objects and all: an acknowledgement is
    told by what it does not change. Without it nothing counts as one. `account`
    is the user name under which the sharder itself writes; empty: not known.
    """
    subject = ring.find(GroupResource(request.resource.group, request.resource.resource))
    if subject is None or request.operation not in ("CREATE", "UPDATE"):
        return _unchanged(request, AnswerOutcome.NOT_OURS)
    if request.sub_resource and not _may_take_off(request, ring.spec.labels):
        return _unchanged(request, AnswerOutcome.NOT_OURS)
    if ring.spec.assign_by is not AssignBy.LABELS:  # by a configuration that is left over of a ring of its name
        return _unchanged(request, AnswerOutcome.NOT_OURS)
    meta = request.object.metadata if request.object else None
    if meta is None:
        return _unchanged(request, AnswerOutcome.MALFORMED)
    new_main = request.operation == "CREATE" and subject.role is Role.MAIN
    if meta.label(ring.spec.labels.shard) is not None and not new_main:
        changed = None if stale else _changed_labels(request, ring.spec.labels, membership, account)
        return _plan_changed(request, meta, subject, ring.spec.labels, changed)
    removed = _removed_labels(request, ring.spec.labels, body)
    if removed is not None:
        restored = _restore(request, meta, ring.spec.labels, removed)
        return _warn(restored, ring.spec.name) if _lets_go(request, ring.spec.labels) else restored
    if stale:
        return _unchanged(request, AnswerOutcome.STALE)
    if subject.role is Role.CONTROLLED:
        return _plan_controlled(request, meta, subject)
    if _is_another(request, meta, subject.resource):
        return _unassigned(request, meta, ring.spec.labels, AnswerOutcome.ANOTHER_KIND)
    if not meta.name or (subject.main.controlled and request.operation == "UPDATE"):
        return _unassigned(request, meta, ring.spec.labels, AnswerOutcome.LEFT_TO_PLACEMENT)
    key = resource_key(subject.resource, _namespace(request, meta), meta.name)
    return _answer(request, meta, Role.MAIN, desire_main(key, membership), ring, membership)


def conclude(need: NeedOwner, owner: PartialObject | None, ring: ResolvedRing, membership: Membership) -> Answer:
    """Answer the request behind `need`; `owner` None: a consistent read showed that there is none."""
    meta = need.request.object.metadata if need.request.object else None
    if meta is None:
        return _unchanged(need.request, AnswerOutcome.MALFORMED)
    exists = is_owner(need.uid, owner.metadata if owner is not None else None)
    label = owner.metadata.label(ring.spec.labels.shard) if owner is not None else None
    if need.restores is not None:
        if exists and label == need.restores[ring.spec.labels.shard]:
            return _restore(need.request, meta, ring.spec.labels, need.restores)
        return _unchanged(need.request, AnswerOutcome.ALREADY_LABELLED)
    desired = desire_controlled(need.key, membership, owner_exists=exists, owner_label=label, owner_moves=False)
    return _answer(need.request, meta, Role.CONTROLLED, desired, ring, membership)


def render_response(uid: str, api_version: str, answer: Answer) -> bytes:
    """The AdmissionReview that goes back; it always allows."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if answer.warning is not None:
        response["warnings"] = [answer.warning]
    if answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(msgspec.json.encode(answer.patch)).decode()
    return msgspec.json.encode({"apiVersion": api_version, "kind": "AdmissionReview", "response": response})


def unanswered(request: Request, outcome: AnswerOutcome) -> Answer:
    """Let `request` pass as it is: for a caller that could not find out enough (owner unread, ring unknown)."""
    return _unchanged(request, outcome)


def _plan_controlled(
    request: Request, meta: ObjectMeta, subject: Subject, restores: Mapping[str, str] | None = None
) -> Answer | NeedOwner:
    reference, namespace, main = meta.controller, _namespace(request, meta), subject.main.resource
    key = controlled_key(reference, namespace if subject.resource.namespaced else "", main)
    if reference is None or key is None:
        return _unchanged(request, AnswerOutcome.NOT_OURS)
    within = namespace if main.namespaced else ""
    return NeedOwner(main, within, reference.name, reference.uid, request, key, restores)


def _plan_changed(
    request: Request, meta: ObjectMeta, subject: Subject, labels: RingLabels, changed: Mapping[str, str] | None
) -> Answer | NeedOwner:
    """A controlled object may be given to its owner's shard, as an adoption does; a main object to none."""
    if changed is None:
        return _unchanged(request, AnswerOutcome.ALREADY_LABELLED)
    if subject.role is Role.CONTROLLED:
        return _plan_controlled(request, meta, subject, changed)
    return _restore(request, meta, labels, changed)


def _answer(
    request: Request, meta: ObjectMeta, role: Role, desired: Desired, ring: ResolvedRing, membership: Membership
) -> Answer:
    labels = ring.spec.labels
    draining = meta.label(labels.drain) is not None
    outcome = decide(Facts(role, None, draining, True, desired, membership))
    if outcome.decision is Decision.ASSIGN and outcome.target is not None:
        if meta.label(labels.shard) == outcome.target and not draining:
            return _unchanged(request, AnswerOutcome.ALREADY_LABELLED)
        patch = patches.admit(labels, meta.labels, outcome.target)
        return Answer(patch, AnswerOutcome.ASSIGNED, outcome.target, bool(request.dry_run))
    return _unassigned(request, meta, labels, _UNPLACED.get(outcome.reason, AnswerOutcome.LEFT_TO_PLACEMENT))


_UNPLACED: Final[Mapping[Reason, AnswerOutcome]] = {
    Reason.NO_SHARD_AVAILABLE: AnswerOutcome.NO_SHARD,
    Reason.OWNER_UNASSIGNED: AnswerOutcome.OWNER_UNASSIGNED,
    Reason.OWNER_UNAVAILABLE: AnswerOutcome.OWNER_UNASSIGNED,
    Reason.NO_KEY: AnswerOutcome.NOT_OURS,
}


def _removed_labels(request: Request, labels: RingLabels, body: bytes) -> dict[str, str] | None:
    """Those of the ring's two labels that this request takes off and must not; None: none that count.

    An acknowledgement removes both in one write that changes nothing else. Who
    removes the shard label otherwise, drained or not, is put right; and if the
    drain label went with it, the object drains on.
    """
    old = request.old_object.metadata if request.old_object else None
    new = request.object.metadata if request.object else None
    if old is None or new is None or request.operation != "UPDATE":
        return None
    worn = {label: old.label(label) for label in (labels.shard, labels.drain)}
    removed = {label: value for label, value in worn.items() if value is not None and new.label(label) is None}
    if labels.shard not in removed:
        return None
    return None if labels.drain in removed and is_acknowledgement(body, labels) else removed


def _changed_labels(
    request: Request, labels: RingLabels, membership: Membership, account: str
) -> dict[str, str] | None:
    """The ring's labels as they were before this request took the object from a living shard; None: it does not.

    Only the sharder may do that, which waits until the shard has let go. From a
    shard that is gone anyone may: there is nobody to ask, and another sharder's
    moves (while one takes over from the other) are like this.
    """
    old = request.old_object.metadata if request.old_object else None
    new = request.object.metadata if request.object else None
    if old is None or new is None or request.operation != "UPDATE" or account in ("", request.user_info.username):
        return None
    shard = old.label(labels.shard)
    if shard is None or shard == new.label(labels.shard) or shard not in membership.available:
        return None
    drain = old.label(labels.drain)
    return {labels.shard: shard} if drain is None else {labels.shard: shard, labels.drain: drain}


def _restore(request: Request, meta: ObjectMeta, labels: RingLabels, worn: Mapping[str, str]) -> Answer:
    patch = patches.restore(meta.labels, worn)
    return Answer(patch, AnswerOutcome.RESTORED, worn[labels.shard], bool(request.dry_run))


def _lets_go(request: Request, labels: RingLabels) -> bool:
    """Whether a request that removes the shard label was made as an acknowledgement: of that very object, as it drains.

    A manifest that is put in the object's place knows no uid.
    """
    old = request.old_object.metadata if request.old_object else None
    new = request.object.metadata if request.object else None
    return old is not None and new is not None and old.uid == new.uid and old.label(labels.drain) is not None


def _warn(restored: Answer, ring: str) -> Answer:
    """Say so to its maker, who sees no error: in 256 characters, since API servers cut off the rest."""
    warning = (
        f"ring {ring}: labels were put back, and the object drains on: an acknowledgement takes off the shard and the"
        " drain label in one write, and nothing else changes with it"
    )
    return replace(restored, outcome=AnswerOutcome.NOT_ACKNOWLEDGED, warning=warning)


def _may_take_off(request: Request, labels: RingLabels) -> bool:
    """Whether a write of a subresource may change the shard label: of most built-in kinds one of the status can."""
    old = request.old_object.metadata if request.old_object else None
    return request.sub_resource == "status" and old is not None and old.label(labels.shard) is not None


def _is_another(request: Request, meta: ObjectMeta, known: Resource) -> bool:
    """Whether a resource was taken away and made anew as something else: kind and scope are part of its keys."""
    if request.kind.kind and request.kind.kind != known.kind:
        return True
    return not _namespace(request, meta) if known.namespaced else bool(meta.namespace)


def _namespace(request: Request, meta: ObjectMeta) -> str:
    return request.namespace or meta.namespace


def _unassigned(request: Request, meta: ObjectMeta, labels: RingLabels, outcome: AnswerOutcome) -> Answer:
    """Let it pass without shard; one that wears a label waits in vain for the shard that it names."""
    if meta.label(labels.shard) is None:
        return _unchanged(request, outcome)
    return Answer(patches.withdraw(labels, meta.labels), outcome, None, bool(request.dry_run))


def _unchanged(request: Request, outcome: AnswerOutcome) -> Answer:
    return Answer(None, outcome, None, bool(request.dry_run))


def _is_uid(uid: str) -> bool:
    return 0 < len(uid) <= MAX_UID_LENGTH


def _salvage(body: bytes, message: str) -> Unreadable:
    """From a body that did not decode, what it takes to answer it all the same."""
    try:
        envelope = _envelopes.decode(body)
        version = envelope.api_version if isinstance(envelope.api_version, str) else REVIEW_API_VERSION
        uid = _uids.decode(envelope.request).uid if bytes(envelope.request) else ""
    except _UNREADABLE:
        return Unreadable(None, REVIEW_API_VERSION, message)
    return Unreadable(uid if _is_uid(uid) else None, version, message)
