"""One webhook: a function of the user's, when API servers call it, and what becomes of what it does.

    operator = Operator("websites")

    @operator.validate(Website)
    def check(review: Review[Website]) -> None:
        if not review.object.spec.html:
            raise Denied("a website without a page", field="spec.html")

What a function raises but `Denied`, and one that takes too long, is logged, and
answered by the webhook's failure policy: refused with the reason (Fail), or
allowed with a warning (Ignore).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from shardsdk.admission.patching import carried_over, json_patch
from shardsdk.admission.review import AdmissionRequest, Operation, Outcome, User, Verdict
from shardsdk.errors import ShardingError
from shardsdk.kinds import Kind, resource_of
from shardsdk.kinds.wire import written_out
from shardsdk.kinds.zones import check_zones
from shardsdk.kube.decoding import codec_of
from shardsdk.kube.identity import describe_given
from shardsdk.logs import logger_of
from shardsdk.queueing.raised import cancelled_inside, describe, is_failure, leaves_of
from shardsdk.reconcile.threads import call_any

log: Final = logger_of(__name__)

#: What people write of an object's metadata.
_OF_PEOPLE: Final = frozenset({"name", "labels", "annotations", "finalizers", "ownerReferences"})

K = TypeVar("K", bound=Kind)
#: What becomes of a request when its webhook fails, or cannot be reached.
FailurePolicy = Literal["Fail", "Ignore"]


class Sort(StrEnum):
    """Whether a webhook says yes or no, or changes what is stored."""

    VALIDATE = "validate"
    MUTATE = "mutate"


class Denied(ShardingError):
    """Raised by a validating function: the request is refused, and whoever made it reads `message`.

    `field` is the path of what is wrong, as in `spec.html`: then the answer is 422 (Invalid), else 403 (Forbidden).
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


@dataclass(slots=True)
class Review(Generic[K]):
    """What a function is asked about.

    `object` is what shall be stored, or on DELETE what shall be gone; a mutating function may change it.  `old` is
    what is stored now: `None` on CREATE, and when it does not fit its class.  Of a `dry_run` nothing will be stored.
    """

    object: K
    old: K | None
    operation: Operation
    user: User
    dry_run: bool
    name: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Webhook:
    """A function, and when it is called; made by `Operator.validate` and `Operator.mutate`.

    `name` is what people read when they are refused, `path` where API servers call.
    """

    sort: Sort
    kind: type[Kind]
    function: Callable[[Review[Any]], Any]
    name: str
    operations: tuple[Operation, ...]
    on_failure: FailurePolicy
    timeout_seconds: int
    namespace_selector: Mapping[str, Any]
    object_selector: Mapping[str, Any]
    conditions: Mapping[str, str]

    @property
    def path(self) -> str:
        """Where API servers call."""
        return f"/{self.sort.value}/{self.name}"

    async def answer(self, request: AdmissionRequest) -> Verdict:
        """What is answered to a request; an error of the function, or of the kind, never becomes an exception."""
        try:
            review = self._read(request)
        except msgspec.ValidationError as error:
            return self._unfit(request, str(error))
        except Exception as error:  # a default that the class makes may raise anything
            return self._failed(request, describe(error), error, ignored=request.operation == Operation.DELETE)
        limit = asyncio.timeout(self._seconds())
        try:
            before = written_out(review.object) if self.sort is Sort.MUTATE else {}
            async with limit:
                returned = await call_any(self.function, review)
            if self.sort is Sort.MUTATE:
                return self._changed(request, review, before, returned)
            return Verdict(True, warnings=_warnings(returned))
        except asyncio.CancelledError as error:
            if (failure := cancelled_inside(error)) is None:
                raise
            return self._failed(request, describe(failure), error)
        except BaseException as error:
            if not is_failure(error):
                raise
            for denied in leaves_of(error):
                if isinstance(denied, Denied):
                    return self._denied(request, denied)
            # A function may time out by itself, too.
            late = isinstance(error, TimeoutError) and limit.expired()
            return self._failed(
                request, f"it took longer than {self._seconds():g} s" if late else describe(error), error
            )

    # -- the call ----------------------------------------------------------------

    def _read(self, request: AdmissionRequest) -> Review[Any]:
        """Raises: ValidationError when the object does not fit its class, and what that raises itself."""
        deleted = request.operation == Operation.DELETE
        # As the operator's caches read the same object: servers in Go send null for a list that is empty.
        read = codec_of(self.kind).read
        thing = read(request.old_object if deleted else request.object)
        try:
            old = None if bytes(request.old_object) == b"null" else read(request.old_object)
        except Exception:
            old = None  # else nobody could mend it
        meta = thing.metadata
        return Review(
            thing,
            old,
            Operation(request.operation),
            request.user_info,
            bool(request.dry_run),
            request.name or meta.name,
            request.namespace or meta.namespace,
        )

    def _seconds(self) -> float:
        """For the function: some of what API servers wait is spent on the way."""
        return max(self.timeout_seconds - 0.5, self.timeout_seconds / 2)

    # -- what becomes of it --------------------------------------------------------

    def _changed(
        self, request: AdmissionRequest, review: Review[Any], before: dict[str, Any], returned: Any
    ) -> Verdict:
        after = review.object if returned is None else returned
        if not isinstance(after, self.kind):
            raise TypeError(f"it returned {describe_given(after)}; return the {self.kind.__qualname__}, or nothing")
        there = msgspec.json.decode(request.object)
        written = written_out(after)
        if after is not review.object:
            written["metadata"] = _metadata_of_another(before["metadata"], written["metadata"])
        check_zones(self.kind, written, before)
        return Verdict(True, patch=json_patch(there, carried_over(there, before, written)))

    def _denied(self, request: AdmissionRequest, denied: Denied) -> Verdict:
        message = str(denied) or "no reason was given"
        log.debug("Request denied", extra={**self._where(request), "reason": message})
        if not denied.field:
            return Verdict(False, message, 403, "Forbidden", outcome=Outcome.DENIED)
        resource = resource_of(self.kind)
        # As the API server itself has it; kubectl makes its sentence of these.
        cause = {"reason": "FieldValueInvalid", "field": denied.field, "message": message}
        details = {"name": request.name or "", "group": resource.group, "kind": resource.kind, "causes": [cause]}
        return Verdict(False, f"{denied.field}: {message}", 422, "Invalid", details, outcome=Outcome.DENIED)

    def _unfit(self, request: AdmissionRequest, problem: str) -> Verdict:
        """The object is not what the class says.  It may go, whatever it is."""
        message = f"the object does not fit {self.kind.__qualname__}: {problem}"
        if self.on_failure == "Ignore" or request.operation == Operation.DELETE:
            return Verdict(True, warnings=_short(f"{self.name} was not asked: {message}"), outcome=Outcome.UNFIT)
        return Verdict(False, message, 422, "Invalid", outcome=Outcome.UNFIT)

    def _failed(
        self, request: AdmissionRequest, problem: str, error: BaseException, *, ignored: bool = False
    ) -> Verdict:
        log.error("Webhook failed", extra={**self._where(request), "error": problem}, exc_info=error)
        if ignored or self.on_failure == "Ignore":
            warnings = _short(f"{self.name} failed and was ignored: {problem}")
            return Verdict(True, warnings=warnings, outcome=Outcome.FAILED)
        return Verdict(False, f"the webhook failed: {problem}", 500, "InternalError", outcome=Outcome.FAILED)

    def _where(self, request: AdmissionRequest) -> dict[str, str]:
        return {
            "webhook": self.name,
            "resource": str(resource_of(self.kind).group_resource),
            "namespace": request.namespace or "",
            "object": request.name or "",
            "operation": request.operation,
            "user": request.user_info.username,
        }


def _metadata_of_another(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Of an object that was returned in place of the one that came: what it says where people say something at all.

    The rest is the API server's, which takes no update without it.
    """
    return after | {name: value for name, value in before.items() if name not in _OF_PEOPLE or after.get(name) is None}


def _warnings(returned: Any) -> Sequence[str]:
    """Raises: TypeError for what is none."""
    if returned is None:
        return ()
    if isinstance(returned, str):
        return (returned,)
    if isinstance(returned, Sequence) and all(isinstance(each, str) for each in returned):
        return tuple(returned)
    given = describe_given(returned)
    raise TypeError(f"it returned {given}; return nothing or warnings (str), and raise Denied to refuse")


def _short(warning: str) -> tuple[str]:
    """As long as API servers hand it on.  Source: apiserver, warning/context.go."""
    return (" ".join(warning.split())[:256],)
