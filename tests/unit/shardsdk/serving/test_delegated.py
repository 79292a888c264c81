"""Who may read the metrics, as the API server says it, and how often it is asked."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from shardsdk.errors import ConnectionFailed, Forbidden
from shardsdk.serving import delegated
from shardsdk.serving.delegated import (
    ACCESS_REVIEWS,
    ALLOWED_SECONDS,
    DENIED_SECONDS,
    MAX_BURST,
    MAX_KNOWN,
    OUTAGE_SECONDS,
    PER_SECOND,
    TOKEN_REVIEWS,
    UNKNOWN_SECONDS,
    DelegatedAccess,
)
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

PROMETHEUS = {"username": "prometheus", "uid": "7", "groups": ["monitoring"], "extra": {"scopes": ["a"]}}


@dataclass
class Reviews:
    """An API server that knows who has which token, and who may read; `asked` is what it was asked."""

    users: dict[str, dict[str, Any]] = field(default_factory=lambda: {"good": PROMETHEUS, "poor": {"username": "poor"}})
    readers: tuple[str, ...] = ("prometheus",)
    error: Exception | None = None
    hangs: bool = False
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def raw(self, method: str, path: str, *, body: bytes) -> bytes:
        assert method == "POST"
        spec = json.loads(body)["spec"]
        self.asked.append((path, spec))
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        if path == ACCESS_REVIEWS:
            return json.dumps({"status": {"allowed": spec["user"] in self.readers}}).encode()
        assert path == TOKEN_REVIEWS
        user = self.users.get(spec["token"])
        return json.dumps({"status": {"authenticated": True, "user": user} if user else {"error": "unknown"}}).encode()


def access(reviews: Reviews, clock: VirtualClock) -> DelegatedAccess:
    api: Any = reviews
    return DelegatedAccess(api, clock)


async def status(door: DelegatedAccess, authorization: str) -> int:
    refusal = await door.refusal(authorization)
    return 200 if refusal is None else refusal.status


@in_virtual_time
async def test_who_is_granted_the_path_may_read_it(clock: VirtualClock) -> None:
    reviews = Reviews()
    assert await status(access(reviews, clock), "Bearer good") == 200
    assert reviews.asked == [
        (TOKEN_REVIEWS, {"token": "good"}),
        (
            ACCESS_REVIEWS,
            {"user": "prometheus", "uid": "7", "groups": ["monitoring"], "extra": {"scopes": ["a"]},
             "nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer  ", "Basic Z29vZDo=", "good", "Bearer \udcff"])
def test_without_a_token_nobody_is_asked(authorization: str) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        reviews = Reviews()
        assert await status(access(reviews, clock), authorization) == 401
        assert reviews.asked == []

    scene()


@in_virtual_time
async def test_a_token_that_nobody_knows_and_a_user_without_the_right_are_refused(clock: VirtualClock) -> None:
    door = access(Reviews(), clock)
    assert await status(door, "bearer bad") == 401
    refusal = await door.refusal("Bearer poor")
    assert refusal is not None
    assert refusal.status == 403
    assert "poor may not read /metrics: grant it get on the nonResourceURL /metrics" in refusal.message


@pytest.mark.parametrize(
    ("token", "seconds", "answer"),
    [("good", ALLOWED_SECONDS, 200), ("poor", DENIED_SECONDS, 403), ("bad", UNKNOWN_SECONDS, 401)],
)
def test_an_answer_is_believed_for_a_while(token: str, seconds: float, answer: int) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        reviews = Reviews()
        door = access(reviews, clock)
        assert await status(door, f"Bearer {token}") == answer
        asked = len(reviews.asked)
        await clock.sleep(seconds - 0.1)
        assert await status(door, f"Bearer {token}") == answer
        assert len(reviews.asked) == asked
        reviews.users, reviews.readers = {"bad": PROMETHEUS, "poor": PROMETHEUS}, ("prometheus",)
        await clock.sleep(0.2)
        assert await status(door, f"Bearer {token}") == (401 if token == "good" else 200)

    scene()


@in_virtual_time
async def test_the_same_token_is_asked_about_once_at_a_time(clock: VirtualClock) -> None:
    reviews = Reviews()
    door = access(reviews, clock)
    assert await asyncio.gather(*(status(door, "Bearer good") for _ in range(50))) == [200] * 50
    assert len(reviews.asked) == 2


@in_virtual_time
async def test_strangers_use_up_neither_the_api_server_nor_the_turn_of_who_is_known(clock: VirtualClock) -> None:
    reviews = Reviews()
    door = access(reviews, clock)
    assert await status(door, "Bearer good") == 200
    statuses = [await status(door, f"Bearer {number}") for number in range(1000)]
    assert set(statuses) == {401, 503}
    assert statuses.count(401) < MAX_BURST
    await clock.sleep(ALLOWED_SECONDS + 1)
    for number in range(1000, 1100):
        await status(door, f"Bearer {number}")
    assert await status(door, "Bearer good") == 200
    assert len(reviews.asked) <= 2 * (MAX_BURST + 2) + 2


@in_virtual_time
async def test_many_strangers_do_not_push_out_who_may_read(clock: VirtualClock) -> None:
    reviews = Reviews()
    door = access(reviews, clock)
    assert await status(door, "Bearer good") == 200
    for number in range(MAX_KNOWN + 10):
        await status(door, f"Bearer {number}")
        await clock.sleep(1 / PER_SECOND)
    assert len(door._known) == MAX_KNOWN
    reviews.hangs = True
    assert await status(door, "Bearer good") == 200, "remembered, since it could not be asked for"


@pytest.mark.parametrize("error", [ConnectionFailed("away"), None])
def test_while_the_api_server_does_not_answer_who_could_read_last_still_may(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def scene(clock: VirtualClock) -> None:
        reviews = Reviews()
        door = access(reviews, clock)
        assert await status(door, "Bearer good") == 200
        await clock.sleep(ALLOWED_SECONDS + 1)
        reviews.error, reviews.hangs = error, error is None
        assert await status(door, "Bearer good") == 200
        assert await status(door, "Bearer another") == 503
        await clock.sleep(OUTAGE_SECONDS)
        assert await status(door, "Bearer good") == 503
        reviews.error, reviews.hangs = None, False
        assert await status(door, "Bearer good") == 200

    scene()
    assert len([record for record in caplog.records if "Nobody can read the metrics" in record.getMessage()]) == 1


@in_virtual_time
async def test_without_the_right_to_ask_it_says_which_one_is_missing(clock: VirtualClock) -> None:
    reviews = Reviews(error=Forbidden("tokenreviews is forbidden", status=403, reason="Forbidden"))
    refusal = await access(reviews, clock).refusal("Bearer good")
    assert refusal is not None
    assert refusal.status == 500
    assert "tokenreviews is forbidden" in refusal.message


def test_an_answer_takes_no_longer_than_prometheus_waits() -> None:
    assert delegated.ANSWER_SECONDS < 10
