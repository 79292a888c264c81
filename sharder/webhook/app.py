"""The webhook's HTTP face: reviews, and an answer to whatever else arrives.

Reads a bounded body, lets sharder.core.admission decide, reads an owner where it
asks for one, and counts what became of each request.  Nothing is ever denied:
what cannot be understood or decided passes unlabelled, as an answer that allows
where there is a review to answer, else as a 4xx, which failurePolicy Ignore lets
pass as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING, Final

from sharder.core import admission
from sharder.core.admission import Answer, AnswerOutcome, NeedOwner, Review, Unreadable
from sharder.core.views import RingView
from sharder.core.webhookconfig import webhook_name, webhook_path
from sharder.webhook.owners import OwnerReader, OwnerUnread
from shardsdk.kube.api import Api
from shardsdk.kube.clock import Clock
from shardsdk.kube.pace import AtMostEvery
from shardsdk.protocol.objects import GroupResource
from shardsdk.serving.body import BodyReader, BodyRefused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

logger = logging.getLogger(__name__)

_PREFIX: Final = webhook_path("")
#: An error that repeats with every request is told this often; the metric counts all.
COMPLAINT_SECONDS: Final = 10.0
#: A ring is looked up again at most this often because the owner of a child is not served as it has it.
LOOK_UP_SECONDS: Final = 10.0
#: What becomes of an object whose review is refused.
CONSEQUENCE: Final = "passes without a shard label and is left to placement"
_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; charset=utf-8"


class Trouble(StrEnum):
    """What became of a request that was not decided; next to AnswerOutcome in the metric."""

    UNKNOWN_RING = "unknown_ring"
    MALFORMED = "malformed"
    OWNER_UNREAD = "owner_unread"
    FAILED = "failed"
    TOO_LARGE = "too_large"
    TOO_MUCH = "too_much"
    TOO_SLOW = "too_slow"
    GONE = "gone"


#: Every outcome that the metric may have.
OUTCOMES: Final = tuple(outcome.value for outcome in (*AnswerOutcome, *Trouble))


@dataclass(frozen=True, slots=True)
class Limits:
    """Named maxima of what callers may take.

    `review_bytes`: etcd takes objects of 1.5 MiB, which as JSON with base64 can
    be 2 MiB, and an UPDATE brings two; larger objects cannot be stored anyway.
    `held_bytes`: all bodies together, so that a flood cannot take the memory.
    `body_seconds`, `owner_seconds`: API servers wait 5 s for the whole answer,
    unless `webhook.config.timeoutSeconds` says otherwise (`within`).
    `owner_reads`: at once; more wait their turn within `owner_seconds`.
    """

    review_bytes: int = 8 << 20
    held_bytes: int = 64 << 20
    body_seconds: float = 5.0
    owner_seconds: float = 2.0
    owner_reads: int = 64

    @classmethod
    def within(cls, timeout_seconds: float) -> Limits:
        """Limits for API servers that wait so long for an answer."""
        return cls(body_seconds=min(5.0, timeout_seconds), owner_seconds=min(2.0, timeout_seconds / 2))


def build_app(
    views: Callable[[str], RingView | None],
    api: Api,
    *,
    clock: Clock,
    on_outcome: Callable[[str, str, float], None] = lambda ring, outcome, seconds: None,
    on_assigned: Callable[[str, GroupResource], None] = lambda ring, resource: None,
    on_not_served: Callable[[str], None] = lambda ring: None,
    account: Callable[[], str] = lambda: "",
    limits: Limits | None = None,
) -> AdmissionApp:
    """The ASGI application.

    `views` gives a ring's newest snapshot (`None`: no such ring). `on_outcome`
    gets ring name, outcome and seconds of every request; the name is empty when
    there is no such ring, so that callers cannot invent metrics. `on_assigned`
    gets every assignment that is not a dry run. `on_not_served` gets the name of a ring
    of which something is not served as it was looked up. `account` gives the user name
    under which the sharder writes (empty: not known).
    """
    return AdmissionApp(
        _Endpoint(views, api, clock, limits or Limits(), on_outcome, on_assigned, on_not_served, account)
    )


class AdmissionApp:
    """Hands reviews to the endpoint at once, and the rest to FastAPI's application.

    The layers of FastAPI and Starlette are a third of what a review takes beside TLS and HTTP, and importing them a
    third of the sharder's start and 9 MiB of its memory (docs/performance.md). API servers ask for nothing but
    reviews; when somebody asks for something else the application is loaded, in a thread, because reviews go on.
    """

    def __init__(self, endpoint: _Endpoint) -> None:
        self._endpoint = endpoint
        self._loading = asyncio.Lock()
        self._application: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call, whatever it holds."""
        ring = _ring_of(scope)
        if ring is not None:
            await self._endpoint.answer(ring, scope, receive, send)
            return
        application = await self._load()
        await application(scope, receive, send)

    async def _load(self) -> ASGIApp:
        async with self._loading:
            if self._application is None:
                self._application = await asyncio.to_thread(_build_application, self._endpoint)
            return self._application


def _build_application(endpoint: _Endpoint) -> ASGIApp:
    from sharder.webhook.application import build_application

    return build_application(endpoint)


def _ring_of(scope: Scope) -> str | None:
    """The ring whose reviews go to this path; None: the call is no review."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path: str = scope["path"]
    ring = path.removeprefix(_PREFIX)
    return None if not ring or ring == path or "/" in ring else ring


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    content_type: bytes
    body: bytes

    async def send(self, send: Send) -> None:
        headers = [(b"content-type", self.content_type), (b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class _Endpoint:
    """Answers reviews as bare ASGI: Starlette's requests and responses take as long as the whole decision."""

    def __init__(
        self,
        views: Callable[[str], RingView | None],
        api: Api,
        clock: Clock,
        limits: Limits,
        on_outcome: Callable[[str, str, float], None],
        on_assigned: Callable[[str, GroupResource], None],
        on_not_served: Callable[[str], None],
        account: Callable[[], str],
    ) -> None:
        self._views = views
        self._account = account
        self._clock = clock
        self._on_outcome = on_outcome
        self._on_assigned = on_assigned
        self._on_not_served = on_not_served
        self._bodies = BodyReader(limits.review_bytes, limits.held_bytes, limits.body_seconds, CONSEQUENCE)
        self._owners = OwnerReader(api, limits.owner_reads, limits.owner_seconds)
        self._look_ups = AtMostEvery(LOOK_UP_SECONDS)
        #: By outcome and ring; names that are no ring's have one place together, under "".
        self._complaints = AtMostEvery(COMPLAINT_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call of the application's route."""
        await self.answer(scope["path_params"]["ring"], scope, receive, send)

    async def answer(self, ring: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call about an object of `ring`, whatever it holds."""
        began = self._clock.monotonic()
        outcome: AnswerOutcome | Trouble
        try:
            body = await self._bodies.read(scope, receive)
        except BodyRefused as refused:
            answer, outcome = _Reply(refused.status, _TEXT, str(refused).encode()), Trouble(refused.outcome)
            if outcome is not Trouble.GONE:  # an API server that waits no longer; nothing here is to be mended
                self._complain(outcome, ring, str(refused))
        else:
            try:
                answer, outcome = await self._review(ring, body)
            finally:
                self._bodies.release(body)
        known = ring if self._views(ring) is not None else ""
        self._on_outcome(known, outcome.value, self._clock.monotonic() - began)
        await answer.send(send)

    async def _review(self, ring: str, body: bytes) -> tuple[_Reply, AnswerOutcome | Trouble]:
        review = admission.parse_review(body)
        if isinstance(review, Unreadable):
            self._complain(Trouble.MALFORMED, ring, review.message)
            return _answer_unreadable(review), Trouble.MALFORMED
        answer, outcome = await self._decide(ring, review, body)
        response = admission.render_response(review.request.uid, review.api_version, answer)
        return _Reply(200, _JSON, response), outcome

    async def _decide(self, ring: str, review: Review, body: bytes) -> tuple[Answer, AnswerOutcome | Trouble]:
        """The answer to a review, and how it is counted; an error of ours never becomes the caller's."""
        unchanged = admission.unanswered(review.request, AnswerOutcome.LEFT_TO_PLACEMENT)
        view = self._views(ring)
        if view is None:
            why = (
                "no such ring; its webhook configuration is left over, unless the ring is new or about to be restored:"
                f" kubectl delete mutatingwebhookconfiguration {quote(webhook_name(ring))}"
            )
            self._complain(Trouble.UNKNOWN_RING, ring, why, review)
            return unchanged, Trouble.UNKNOWN_RING
        try:
            answer = await self._place(view, review, body)
        except OwnerUnread as error:
            self._complain(Trouble.OWNER_UNREAD, ring, str(error), review)
            if error.not_served:
                # The leader's watches show that a version is gone; a replica that does not lead has none of them.
                self._look_up(ring)
            return unchanged, Trouble.OWNER_UNREAD
        except Exception as error:
            logger.exception("admission failed", extra={"ring": ring, **_where(review), "error": repr(error)})
            return unchanged, Trouble.FAILED
        if answer.outcome is AnswerOutcome.STALE:
            why = "this replica has heard nothing of leases or rings for too long"
            self._complain(answer.outcome, ring, why, review)
        if answer.outcome is AnswerOutcome.ANOTHER_KIND:
            self._look_up(ring)
        if answer.warning is not None and not answer.dry_run:
            self._tell_of_warning(ring, answer, review)
        # The ring may have been deleted while its owner was read, and its series with it.
        if answer.outcome is AnswerOutcome.ASSIGNED and not answer.dry_run and self._views(ring) is not None:
            resource = review.request.resource
            self._on_assigned(ring, GroupResource(resource.group, resource.resource))
        return answer, answer.outcome

    async def _place(self, view: RingView, review: Review, body: bytes) -> Answer:
        plan = admission.plan(
            review.request, view.resolved, view.membership, stale=view.stale, body=body, account=self._account()
        )
        if isinstance(plan, NeedOwner):
            owner = await self._owners.read(plan)
            return admission.conclude(plan, owner, view.resolved, view.membership)
        return plan

    def _look_up(self, ring: str) -> None:
        if self._look_ups.passes(self._clock.monotonic(), ring):
            self._on_not_served(ring)

    def _complain(
        self, outcome: AnswerOutcome | Trouble, ring: str, problem: str, review: Review | None = None
    ) -> None:
        """Log a problem, but not as often as callers can cause it, who choose the ring's name as well."""
        known = ring if self._views(ring) is not None else ""
        if self._complaints.passes(self._clock.monotonic(), (outcome, known)):
            extra = {"ring": ring, **_where(review), "outcome": outcome.value, "reason": problem}
            logger.warning("admission passed an object unlabelled", extra=extra)

    def _tell_of_warning(self, ring: str, answer: Answer, review: Review) -> None:
        """Log it, too, as often as complaints: few shards read what an API server warns of."""
        if self._complaints.passes(self._clock.monotonic(), (answer.outcome, ring)):
            told = {"shard": answer.shard, "account": review.request.user_info.username, "reason": answer.warning}
            logger.warning("an acknowledgement did not count", extra={"ring": ring, **_where(review), **told})


def _where(review: Review | None) -> dict[str, str]:
    """The object that was asked about, for the log; nothing is known of it where the review could not be read."""
    if review is None:
        return {"resource": "", "namespace": "", "object": ""}
    asked = review.request
    resource = str(GroupResource(asked.resource.group, asked.resource.resource))
    return {"resource": resource, "namespace": asked.namespace or "", "object": asked.name or ""}


def _answer_unreadable(review: Unreadable) -> _Reply:
    """Allow it if it says whom to answer; else a 400, which failurePolicy Ignore passes too."""
    if review.uid is None:
        return _Reply(400, _TEXT, f"not an AdmissionReview: {review.message}".encode())
    allowed = Answer(None, AnswerOutcome.MALFORMED)
    return _Reply(200, _JSON, admission.render_response(review.uid, review.api_version, allowed))
