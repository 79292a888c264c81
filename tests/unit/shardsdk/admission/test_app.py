from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from shardsdk.admission.app import AdmissionApp
from shardsdk.admission.metrics import WebhookMetrics
from shardsdk.admission.review import Outcome
from shardsdk.admission.webhook import Denied, Review
from shardsdk.testing.virtual import VirtualClock, in_virtual_time
from tests.unit.shardsdk.admission.kinds import Website, review, webhook, website

PATH = "/validate/check.websites.example.com"


def refuse_empty(review: Review[Website]) -> None:
    if not review.object.spec.html:
        raise Denied("a website without a page")
    if review.object.spec.html == "bug":
        raise RuntimeError("a bug")


async def call(
    body: bytes, path: str = PATH, method: str = "POST", *, pieces: int = 1, announced: int | None = None, **limits: Any
) -> tuple[int, str]:
    app = AdmissionApp([webhook(refuse_empty)], **limits)
    size = -(-len(body) // pieces) or 1
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    messages = [
        {"type": "http.request", "body": part, "more_body": at < len(parts) - 1} for at, part in enumerate(parts)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-length", str(len(body) if announced is None else announced).encode())]
    await app({"type": "http", "path": path, "method": method, "headers": headers}, receive, send)
    start, rest = sent
    assert dict(start["headers"])[b"content-length"] == str(len(rest["body"])).encode()
    return start["status"], rest["body"].decode()


@pytest.mark.parametrize(("html", "allowed"), [("<h1>", True), ("", False)])
async def test_a_review_is_answered_by_its_function(html: str, allowed: bool) -> None:
    status, answer = await call(review(new=website(html)), pieces=3)
    assert status == 200
    assert msgspec.json.decode(answer)["response"]["allowed"] is allowed


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (review(new=website("<h1>")), "allowed"),
        (review(new=website("")), "denied"),
        (review(new=website(7)), "unfit"),
        (review(new=website("bug")), "failed"),
        (b"{}", "unreadable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_requests_are_counted_by_what_became_of_them(body: bytes, result: str) -> None:
    metrics, name = WebhookMetrics(), "check.websites.example.com"
    read = metrics.registry.get_sample_value

    def counted() -> dict[str, float | None]:
        labels = ({"webhook": name, "result": each.value} for each in Outcome)
        return {each["result"]: read("shardsdk_webhook_requests_total", each) for each in labels}

    await call(body, metrics=metrics)
    assert counted() == {each.value: float(each.value == result) for each in Outcome}
    assert read("controller_runtime_webhook_latency_seconds_count", {"webhook": name}) == 1
    await call(body, path="/elsewhere", metrics=metrics)
    await call(b"", method="GET", metrics=metrics)
    assert sum(each or 0 for each in counted().values()) == 1


def test_a_webhook_that_nobody_has_asked_is_shown() -> None:
    metrics = WebhookMetrics()
    AdmissionApp([webhook(refuse_empty)], metrics=metrics)
    labels = {"webhook": "check.websites.example.com", "result": "failed"}
    assert metrics.registry.get_sample_value("shardsdk_webhook_requests_total", labels) == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "this is no AdmissionReview: Input data was truncated"),
        (b"{}", "this is no AdmissionReview: Object missing required field `apiVersion`"),
        (b'"\xff"', "this is no AdmissionReview: "),
        (b"[" * 100_000, "this is no AdmissionReview: "),
        (b'{"apiVersion":"v1","kind":"Pod"}', "this is Pod of v1; send an AdmissionReview of admission.k8s.io/v1"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "has no request with a uid"),
        (review(uid=""), "has no request with a uid"),
        (review("CONNECT"), "nothing is said of 'CONNECT'; ask about CREATE, UPDATE, DELETE"),
    ],
)
async def test_what_is_no_review_is_answered_in_a_sentence(
    body: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, answer = await call(body)
    assert status == 400
    assert said in answer
    assert [line.msg for line in caplog.records] == ["Request to a webhook not answered"]


@in_virtual_time
async def test_what_is_no_review_is_told_every_ten_seconds_and_counted_each_time(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    metrics, one = WebhookMetrics(), webhook(refuse_empty)
    other = replace(one, name="other.websites.example.com")
    app = AdmissionApp([one, other], metrics=metrics, clock=clock)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"garbage", "more_body": False}

    async def send(message: Any) -> None:
        pass

    for second in range(21):
        for each in (one, other) if second == 5 else (one,):
            await app({"type": "http", "path": each.path, "method": "POST", "headers": []}, receive, send)
        await clock.sleep(1)
    assert [vars(line)["webhook"] for line in caplog.records] == [one.name, other.name, one.name, one.name]
    labels = {"webhook": one.name, "result": "unreadable"}
    assert metrics.registry.get_sample_value("shardsdk_webhook_requests_total", labels) == 21


@in_virtual_time
async def test_a_webhook_that_is_not_there_yet_or_any_more_is_told_of_and_counted(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = WebhookMetrics()
    app = AdmissionApp([webhook(refuse_empty)], metrics=metrics, clock=clock)
    labels = {"webhook": "", "result": "unknown"}
    assert metrics.registry.get_sample_value("shardsdk_webhook_requests_total", labels) == 0

    async def receive() -> Any:
        raise AssertionError("what it says is not read")

    async def send(message: Any) -> None:
        pass

    for second in range(15):
        for method in ("POST", "GET"):
            path = f"/validate/renamed-{second}{'x' * 500}"
            await app({"type": "http", "path": path, "method": method, "headers": []}, receive, send)
        await clock.sleep(1)
    assert [vars(line)["path"][:20] for line in caplog.records] == ["/validate/renamed-0x", "/validate/renamed-10"]
    assert len(vars(caplog.records[0])["path"]) == 200
    assert metrics.registry.get_sample_value("shardsdk_webhook_requests_total", labels) == 15


async def test_other_paths_and_methods_are_told_where_to_go() -> None:
    assert await call(b"", path="/") == (404, f"nothing is here; AdmissionReviews go to {PATH}")
    assert await call(b"", method="GET") == (405, "POST an AdmissionReview")


async def test_a_body_that_is_too_large_is_refused_before_and_while_it_comes() -> None:
    body = review(new=website("x" * 1000))
    for announced in (len(body), 0):
        status, answer = await call(body, pieces=4, announced=announced, review_bytes=500)
        assert status == 413
        assert answer.endswith("its object is dealt with by the webhook's failurePolicy")


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    app = AdmissionApp([webhook(refuse_empty)], body_seconds=0.01)
    sent: list[Any] = []

    async def receive() -> Any:
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "path": PATH, "method": "POST", "headers": []}, receive, send)
    assert sent[0]["status"] == 408
