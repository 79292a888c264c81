"""The HTTP face of webhooks: a path for each, and an answer to whatever arrives there.

A bare ASGI application.  Bodies, all bodies together, and the time that one may
take are bounded; what cannot be read is answered 4xx with a sentence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from shardsdk.admission.metrics import WebhookMetrics
from shardsdk.admission.review import NotAReview, Outcome, parse_review, render_verdict
from shardsdk.admission.webhook import Webhook
from shardsdk.kube.clock import Clock, SystemClock
from shardsdk.kube.pace import AtMostEvery
from shardsdk.logs import logger_of
from shardsdk.serving.body import BodyReader, BodyRefused, Receive, Scope

log: Final = logger_of(__name__)

Send = Callable[[Mapping[str, Any]], Awaitable[None]]

#: etcd takes objects of 1.5 MiB, which as JSON with base64 can be 2 MiB, and an UPDATE brings two.
REVIEW_BYTES: Final = 8 << 20
#: All bodies together, so that a flood cannot take the memory.
HELD_BYTES: Final = 64 << 20
BODY_SECONDS: Final = 5.0
#: What anybody can send again and again is told this often for each webhook; the metric counts all.
COMPLAINT_SECONDS: Final = 10.0
#: Of a path that anybody may have asked for.
SHOWN_CHARACTERS: Final = 200
#: What becomes of an object whose review is refused.
CONSEQUENCE: Final = "is dealt with by the webhook's failurePolicy"
_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; charset=utf-8"


class AdmissionApp:
    """Answers for `webhooks`."""

    def __init__(
        self,
        webhooks: Iterable[Webhook],
        *,
        review_bytes: int = REVIEW_BYTES,
        held_bytes: int = HELD_BYTES,
        body_seconds: float = BODY_SECONDS,
        metrics: WebhookMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._webhooks = {each.path: each for each in webhooks}
        self._metrics = metrics or WebhookMetrics()
        self._clock = clock or SystemClock()
        self._complaints = AtMostEvery(COMPLAINT_SECONDS)
        for each in self._webhooks.values():
            self._metrics.prepare(each.name)
        self._bodies = BodyReader(review_bytes, held_bytes, body_seconds, CONSEQUENCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call, whatever it holds."""
        webhook = self._webhooks.get(scope["path"])
        if webhook is None:
            paths = ", ".join(sorted(self._webhooks))
            if scope["method"] == "POST":
                self._tell_unknown(scope["path"])
            await _send(send, 404, _TEXT, f"nothing is here; AdmissionReviews go to {paths}".encode())
        elif scope["method"] != "POST":
            await _send(send, 405, _TEXT, b"POST an AdmissionReview", (b"allow", b"POST"))
        else:
            begun = self._clock.monotonic()
            outcome = await self._review(webhook, scope, receive, send)
            self._metrics.count(webhook.name, outcome, self._clock.monotonic() - begun)

    async def _review(self, webhook: Webhook, scope: Scope, receive: Receive, send: Send) -> Outcome:
        try:
            body = await self._bodies.read(scope, receive)
        except BodyRefused as refused:
            self._complain(webhook, str(refused))
            await _send(send, refused.status, _TEXT, str(refused).encode())
            return Outcome.UNREADABLE
        try:
            request = parse_review(body)
            verdict = await webhook.answer(request)
            answer = render_verdict(request.uid, verdict)
        except NotAReview as error:
            self._complain(webhook, str(error))
            await _send(send, 400, _TEXT, str(error).encode())
            return Outcome.UNREADABLE
        finally:
            self._bodies.release(body)
        await _send(send, 200, _JSON, answer)
        return verdict.outcome

    def _tell_unknown(self, path: str) -> None:
        """Whoever asks so is refused, or not, by the failure policy; anybody may ask so, and for any path."""
        self._metrics.count_unknown()
        if self._complaints.passes(self._clock.monotonic()):
            log.warning(
                "Request to a webhook that this program does not have",
                extra={
                    "path": path[:SHOWN_CHARACTERS],
                    "remedy": "while a rollout goes on, it ends with that; else apply the webhook configurations that"
                    " `shardsdk manifests` prints for this version, and delete those that it does not",
                },
            )

    def _complain(self, webhook: Webhook, problem: str) -> None:
        if self._complaints.passes(self._clock.monotonic(), webhook.name):
            log.warning("Request to a webhook not answered", extra={"webhook": webhook.name, "reason": problem})


async def _send(send: Send, status: int, content_type: bytes, body: bytes, *further: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *further]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
