"""Every error that this project raises on purpose, as one tree.

::

    ShardingError
    ├── ConfigurationError      input is wrong                          NEVER
    │   ├── InvalidRingName     a ring's name cannot be a label         NEVER
    │   └── RingChanged         the ring is another one than before     NEVER
    ├── ApiError                the API server answered with an error
    │   ├── BadRequest          400                                     NEVER
    │   ├── Unauthorized        401                                     BACKOFF
    │   ├── Forbidden           403                                     BACKOFF
    │   ├── NotFound            404                                     NEVER
    │   │   └── NotServed       404 that names no object                NEVER
    │   ├── MethodNotAllowed    405                                     NEVER
    │   ├── AlreadyExists       409, reason AlreadyExists               REFRESH
    │   ├── Conflict            409                                     REFRESH
    │   │   └── FieldConflict   409 to an apply: another owner's field  BACKOFF
    │   ├── Gone                410                                     REFRESH
    │   ├── Invalid             422                                     NEVER
    │   ├── TooManyRequests     429                                     BACKOFF
    │   └── ServerError         5xx                                     BACKOFF
    ├── ConnectionFailed        no answer: refused, reset, timed out    BACKOFF
    ├── StreamInterrupted       a stream ended before it proved enough  BACKOFF
    ├── AlreadyOwned            an object has another controller        NEVER
    ├── FenceClosed             a write was refused: the lease ran out  NEVER
    ├── LeaseLost               the lease is gone; stop working         NEVER
    ├── TooManyWrites           a reconcile has sent all it may         BACKOFF
    └── TerminalError           a reconciler says: do not retry         NEVER

Each leaf carries its retry rule in `retry`; callers read it there and nowhere
else decide by status code.  A reconcile that is tried again for one comes
back after `longest_pause_seconds` at the latest, however often it has failed.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import ClassVar

__all__ = [
    "AlreadyExists",
    "AlreadyOwned",
    "ApiError",
    "BadRequest",
    "ConfigurationError",
    "Conflict",
    "ConnectionFailed",
    "FenceClosed",
    "FieldConflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "InvalidRingName",
    "LeaseLost",
    "MethodNotAllowed",
    "NotFound",
    "NotServed",
    "RetryRule",
    "RingChanged",
    "ServerError",
    "ShardingError",
    "StreamInterrupted",
    "TerminalError",
    "TooManyRequests",
    "TooManyWrites",
    "Unauthorized",
    "may_be_executed",
]


class RetryRule(Enum):
    """What to do about an error."""

    NEVER = "the same request will fail again"
    REFRESH = "read the object again, decide again, then retry at once"
    BACKOFF = "retry the same request after a pause"


class ShardingError(Exception):
    """Root of the tree."""

    retry: ClassVar[RetryRule] = RetryRule.NEVER
    longest_pause_seconds: ClassVar[float] = math.inf


class ConfigurationError(ShardingError):
    """Input is wrong; the message says what to change."""


class InvalidRingName(ConfigurationError):
    """A ring's name cannot be made into labels."""


class RingChanged(ConfigurationError):
    """The ring assigns otherwise, or covers other namespaces, than when the process started, which is to start anew.

    No failure of the process: the Lease that it releases says nothing of one.
    """


class ApiError(ShardingError):
    """The API server answered a request with an error.

    `status` is the HTTP status, `reason` Kubernetes' machine-readable reason
    (empty when the body was no Status), `retry_after_seconds` what the answer
    asked for (`None`: nothing), `said` the API server's own words, but for objects
    that it repeats: whole, where the error's message has their beginning and end.
    """

    # Defaults, for subclasses that do not call `__init__`.
    status: int = 0
    reason: str = ""
    retry_after_seconds: float | None = None
    said: str = ""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after_seconds: float | None = None,
        said: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds
        self.said: str = said or message


class BadRequest(ApiError):
    """400: the request itself is malformed, or it is too large (413, and 500 where etcd says so).

    By 500, too: what an apply has does not fit the schema, or could not be converted.
    """


class Unauthorized(ApiError):
    """401: the token is missing, wrong or has run out (a rotated one may pass)."""

    retry = RetryRule.BACKOFF


class Forbidden(ApiError):
    """403: an RBAC rule is missing, or somebody refuses; either may change.

    By 404, too: an admission webhook may deny so, and of a write that needs another object, that is what is not there.
    `terminating` is the namespace that takes nothing new because it is being deleted, if that is why, or empty.
    """

    retry = RetryRule.BACKOFF
    terminating: str = ""


class NotFound(ApiError):
    """404: no such object or resource."""


class NotServed(NotFound):
    """404 that names no object: its type, or its version, is not served now, and it may be there all the same."""


class MethodNotAllowed(ApiError):
    """405: the resource does not offer this verb."""


class Conflict(ApiError):
    """409: the object has changed since it was read."""

    retry = RetryRule.REFRESH


class FieldConflict(Conflict):
    """409: an apply names fields that another field owner has otherwise; no newer copy changes that."""

    retry = RetryRule.BACKOFF


class AlreadyExists(ApiError):
    """409: an object of that name is there already."""

    retry = RetryRule.REFRESH


class Gone(ApiError):
    """410: the resourceVersion is too old; list again."""

    retry = RetryRule.REFRESH


class Invalid(ApiError):
    """422: the object was understood and refused."""


class TooManyRequests(ApiError):
    """429: the API server asks for a pause."""

    retry = RetryRule.BACKOFF


class ServerError(ApiError):
    """5xx: the API server failed or timed out; the write may have happened."""

    retry = RetryRule.BACKOFF


class ConnectionFailed(ShardingError):
    """No answer: connection refused, reset or timed out; a write may have happened."""

    retry = RetryRule.BACKOFF


class StreamInterrupted(ShardingError):
    """A stream of initial events or pages ended before its end was announced."""

    retry = RetryRule.BACKOFF


class AlreadyOwned(ShardingError):
    """An object has another controller; two would undo each other's work."""

    #: No event wakes who was refused when the object is free: events of a child are its controller's.
    longest_pause_seconds: ClassVar[float] = 30.0


class FenceClosed(ShardingError):
    """A write was refused before it was sent, because the lease behind it has run out."""


class LeaseLost(ShardingError):
    """The lease is lost; work under it must stop."""


class TooManyWrites(ShardingError):
    """A write was refused before it was sent: the reconcile has sent as many as it may."""

    retry = RetryRule.BACKOFF


class TerminalError(ShardingError):
    """Raised by a reconciler whose error no retry can mend; the item waits for its next event."""

    #: What leads to another attempt, for people.
    waits_for: str = "its next event"


def may_be_executed(error: BaseException) -> bool:
    """Whether a write that ended with `error` may have been executed, or may be still.

    Behind a 5xx etcd may have it in hand; whatever else the API server answers refuses it for good.
    """
    if isinstance(error, ApiError):
        return isinstance(error, ServerError)
    return not isinstance(error, FenceClosed)
