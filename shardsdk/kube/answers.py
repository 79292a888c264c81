"""What the API server answered, as an error of this project's tree.

It says what was attempted, on what, and what the reader can do; whether to try again is the leaf's to say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from shardsdk.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    FieldConflict,
    Forbidden,
    Gone,
    Invalid,
    MethodNotAllowed,
    NotFound,
    NotServed,
    ServerError,
    TooManyRequests,
    Unauthorized,
)
from shardsdk.protocol.names import cut, shown_name
from shardsdk.protocol.objects import RBAC_GROUP

#: A message longer than this is cut in the middle: the API server repeats whole selectors in some, and says what is
#: wrong with them last.  With what is put before it, it is to fit into an Event.
MESSAGE_MAX_CHARACTERS: Final = 800
#: So is what of it errors carry, which may be kept for long: the problems of some 2,000 fields, each of 120 characters.
SAID_MAX_CHARACTERS: Final = 256 * 1024
#: How much of what is cut is its end.
_END_SHARE: Final = 0.375

#: The object that a patch would have made, or a strategic merge patch itself, as a JSON text or as Go writes a map: it
#: may be a Secret.  Source: apiserver, pkg/endpoints/handlers/patch.go, applyPatchToCurrentObject, applyPatchToObject.
_OBJECT: Final = re.compile(r'(?<=Invalid value: )"(?:\{|map\[)(?:[^"\\]|\\.?)*+"?')
#: What an apply has where the schema has something of another type; the next problem is on another line.
#: Source: structured-merge-diff, typed/validate.go.
_VALUE: Final = re.compile(r"(?<=, got )&.*?(?=\n  \.|\Z)", re.DOTALL)

#: A watch that asks for a version the API server has not reached (restored from
#: a backup, or behind another one).  Source: apimachinery, meta/v1.CauseTypeResourceVersionTooLarge.
_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"

#: Nothing can be created in a namespace any more, which is being deleted.  Source: core/v1.NamespaceTerminatingCause;
#: apiserver, pkg/admission/plugin/namespace/lifecycle.
_TERMINATING: Final = "NamespaceTerminating"

#: Another field owner has what is applied.  Source: apimachinery, meta/v1.CauseTypeFieldManagerConflict.
_FIELD_CONFLICT: Final = "FieldManagerConflict"

#: What a group that is served says of a type that is not.  Source: apimachinery, NewGenericServerResponse.
_NO_SUCH_TYPE: Final = "could not find the requested resource"
#: What is said of a group or a version that is not.  Source: Go, net/http.NotFound.
_NO_SUCH_PATH: Final = "404 page not found"
#: How an admission webhook's denial begins, and what follows its name; code and reason are as the webhook likes.
#: Source: apiserver, pkg/admission/plugin/webhook/errors, ToStatusErr.
_DENIAL: Final = ("admission webhook ", " denied the request")
#: How etcd says that an object is too large, by 500: the first is its server's limit, the other its client's.
#: Source: etcd, api/v3rpc/rpctypes.ErrGRPCRequestTooLarge; gRPC for Go.
_TOO_LARGE: Final = ("etcdserver: request is too large", "trying to send message larger than max")
#: How begins, by 500, what is said of an applied object that does not fit its schema, or whose conversion fails (by a
#: webhook that is away, perhaps); that is found before admission.
#: Source: apimachinery, pkg/util/managedfields/internal/structuredmerge.go, Apply.
_UNFIT: Final = ("failed to create typed patch object (", "failed to convert new object (")

#: Of a type of which no more is known than that; `shardsdk.kube.served` knows why.
UNSERVED: Final = (
    " — the API server does not serve this type, or not in this version; install its CustomResourceDefinition, or have"
    " that serve the version"
)

#: The verbs that change an object that is there; its answer names it if it is not, or what it cannot be without.
_CHANGING_ONE: Final = ("patch", "update")

#: What there is to do where a binding that is there is said not to be.
NO_ROLE: Final = "the role that it names is not, as a rule: create that, or grant bind on roles"
_WITHOUT_ANOTHER: Final = "that is another object, without which this one may not be written: create it"

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about, in the words of an RBAC rule; all empty for a bare path.

    `lacks_namespace`: it names an object whose resource is declared to live in namespaces, and none of them.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str | None = None
    name: str | None = None
    lacks_namespace: bool = False

    def __str__(self) -> str:
        if not self.resource:
            return f"{self.verb} {self.name}"
        whose = "/".join(part for part in (self.namespace, shown_name(self.name or "")) if part)
        return f"{self.verb} {self.plural}" + (f" {whose}" if whose else "")

    @property
    def plural(self) -> str:
        """The resource with its group."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def missing_rule(self) -> str:
        """The RBAC rule that would allow it, ready to be copied into a role."""
        where = f"in namespace {self.namespace!r}" if self.namespace else "in the whole cluster"
        return (
            f"grant this identity {where} the rule"
            f' {{apiGroups: ["{self.group}"], resources: ["{self.resource}"], verbs: ["{self.verb}"]}}'
        )


class Cause(msgspec.Struct, frozen=True):
    """One entry of `details.causes`."""

    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a Status that machines read; `name` and `kind`, a resource's plural, are of what it is about."""

    name: str = ""
    kind: str = ""
    retry_after_seconds: float | None = None
    causes: list[Cause] | None = None


class Status(msgspec.Struct, frozen=True):
    """metav1.Status: how Kubernetes words an error."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None
    kind: str = ""


def explain(target: Target, code: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error for an HTTP answer outside 200-299; a body that is no Status is quoted."""
    status = _parse_status(body)
    if status is None:
        text = body[:MESSAGE_MAX_CHARACTERS].decode(errors="replace").strip()
        status = Status(code=code, message=text)
    asked = _seconds(headers.get("Retry-After"))
    return explain_status(target, msgspec.structs.replace(status, code=code), retry_after_seconds=asked)


def explain_status(target: Target, status: Status, *, retry_after_seconds: float | None = None) -> ApiError:
    """The error for a Status, whether it came as an answer or inside a watch."""
    details = status.details or StatusDetails()
    pause = retry_after_seconds if retry_after_seconds is not None else _finite(details.retry_after_seconds)
    said = _cut(_without_objects(status.message), SAID_MAX_CHARACTERS)
    shown = _cut(said, MESSAGE_MAX_CHARACTERS) or "no message"
    message = f"{target}: {status.code} {status.reason or 'without reason'}: {shown}"
    leaf = _leaf(target, status)
    if leaf is Forbidden and status.code == 404 and not _is_denial(status):
        message += f" — {NO_ROLE if target.group == RBAC_GROUP else _WITHOUT_ANOTHER}"
    elif leaf is Forbidden and target.resource and f"cannot {target.verb} resource" in status.message:
        message += f" — {target.missing_rule}"
    elif target.lacks_namespace and leaf in (MethodNotAllowed, NotServed):
        # Not told before it is sent: a Resource may be declared so by mistake, and then there is nothing to give.
        message += f" — {target.plural} live in namespaces, and none was given: pass namespace=…"
    elif leaf is NotServed and target.group and (status.reason or status.message.startswith(_NO_SUCH_PATH)):
        message += UNSERVED
    elif leaf is NotFound and target.resource.endswith("/status"):
        message += " — or the kind has no status subresource (`subresources: {status: {}}` in its CRD)"
    error = leaf(message, status=status.code, reason=status.reason, retry_after_seconds=pause, said=said)
    if isinstance(error, Forbidden) and _has_cause(status, _TERMINATING):
        error.terminating = target.namespace or ""
    return error


def _has_cause(status: Status, reason: str) -> bool:
    return any(cause.reason == reason for cause in (status.details.causes if status.details else None) or ())


def _without_objects(message: str) -> str:
    """A message that goes to logs and Events, where nobody's Secret belongs."""
    return _VALUE.sub("another value", _OBJECT.sub("(the object)", message))


def _cut(message: str, longest: int) -> str:
    return cut(message, longest, end=int(longest * _END_SHARE), mark=" […] ")


def _is_unserved(status: Status) -> bool:
    """Whether a 404 is of no object: an absent one's answer has the reason, and names it."""
    return not status.reason or _NO_SUCH_TYPE in status.message


def _is_of_another(target: Target, status: Status) -> bool:
    """Whether a change's 404 names an object that the target cannot be without: a RoleBinding's role, perhaps.

    Of an object whose namespace is gone nothing is left either.  Names alone are compared: aggregated API servers
    have words of their own for kinds, and some have the namespace in the name.
    """
    named = (status.details or StatusDetails()).name.rpartition("/")[2]
    if target.verb not in _CHANGING_ONE or not (target.name and named):
        return False
    return named not in (target.name, target.namespace)


def _is_denial(status: Status) -> bool:
    """Whether an admission webhook has refused the request: with 404, perhaps, and about another object."""
    begin, then = _DENIAL
    return status.message.startswith(begin) and then in status.message


def _is_unexecuted(status: Status) -> bool:
    """Whether it says that a write is too large or unfit: nothing of it was executed, nor will be, as a rule."""
    too_large = any(said in status.message for said in _TOO_LARGE)
    return status.code == 500 and (too_large or status.message.startswith(_UNFIT))


def _leaf(target: Target, status: Status) -> type[ApiError]:
    if _has_cause(status, _VERSION_TOO_LARGE):
        return Gone
    match status.code, status.reason:
        case 409, "AlreadyExists":
            return AlreadyExists
        case 409, _ if _has_cause(status, _FIELD_CONFLICT):
            return FieldConflict
        case _, "Expired" | "Gone":
            return Gone
        case 404, _ if _is_denial(status):
            return Forbidden
        case 404, _ if _is_unserved(status):
            return NotServed
        case 404, _ if _is_of_another(target, status):
            return Forbidden
        case code, _ if code in _BY_STATUS:
            return _BY_STATUS[code]
        case code, _ if 400 <= code < 500 or _is_unexecuted(status):
            return BadRequest
        case _:
            return ServerError


def _parse_status(body: bytes) -> Status | None:
    """`None`: it is none; a proxy answers objects of its own."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, ValueError):
        return None
    return status if status.kind == "Status" or status.reason or status.message else None


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; the API server never sends the date form."""
    try:
        return _finite(float(header)) if header else None
    except ValueError:
        return None


def _finite(seconds: float | None) -> float | None:
    """A pause that somebody can make; what is none counts as not asked for."""
    return seconds if seconds is not None and 0 <= seconds < math.inf else None
