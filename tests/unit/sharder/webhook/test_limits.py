"""The webhook's own limits: within the time that API servers wait for it, and what they refuse is told."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from sharder.webhook.app import Limits
from tests.unit.sharder.webhook.reviews import SHARDS, call, review
from tests.unit.sharder.webhook.setting import Setting, told_of


@pytest.mark.parametrize(("timeout_seconds", "body", "owner"), [(1.0, 1.0, 0.5), (3.0, 3.0, 1.5), (30.0, 5.0, 2.0)])
def test_it_waits_no_longer_than_api_servers_do(timeout_seconds: float, body: float, owner: float) -> None:
    limits = Limits.within(timeout_seconds)
    assert (limits.body_seconds, limits.owner_seconds) == (body, owner)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_huge_body_is_refused_by_the_named_limit(announced: bool, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(limits=Limits(review_bytes=100_000))
    app = setting.build()
    headers = [(b"content-length", b"200000")] if announced else []
    replies = [await call(app, [b"x" * 50_000] * 4, headers=headers) for _ in range(3)]
    assert [each.status for each in replies] == [413] * 3
    assert "100000 bytes" in replies[0].text
    assert setting.outcomes == [("checksum", "too_large")] * 3
    assert told_of(caplog) == [("checksum", "too_large", replies[0].text)]


async def test_a_body_at_the_limit_is_read() -> None:
    body = msgspec.json.encode(review())
    setting = Setting(limits=Limits(review_bytes=len(body)))
    assert (await setting.call([body[:100], body[100:]])).shard in SHARDS


async def test_many_bodies_together_are_bounded_and_the_bound_is_given_back(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(limits=Limits(held_bytes=1500))
    app = setting.build()
    waiting = asyncio.create_task(call(app, [b" " * 1000], ends=False))
    await asyncio.sleep(0)
    reply = await call(app, [b" " * 1000])
    assert reply.status == 429
    assert told_of(caplog) == [("checksum", "too_much", reply.text)]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await call(app, review())).shard in SHARDS
    assert setting.outcomes == [("checksum", "too_much"), ("checksum", "assigned")]


@pytest.mark.parametrize("body", [review(), review(object={"metadata": {"labels": 7}}), b"no review" * 100])
async def test_what_was_answered_counts_no_more_whatever_the_answer(body: Any) -> None:
    setting = Setting(limits=Limits(held_bytes=3000))
    app = setting.build()
    replies = [await call(app, body) for _ in range(20)]
    assert {each.status for each in replies} == {replies[0].status}
    assert {outcome for _, outcome in setting.outcomes} == {setting.outcomes[0][1]}
    assert (await call(app, review())).shard in SHARDS


async def test_a_body_that_never_ends_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(limits=Limits(body_seconds=0.01))
    reply = await setting.call([b'{"request":'], ends=False)
    assert reply.status == 408
    assert setting.outcomes == [("checksum", "too_slow")]
    assert told_of(caplog) == [("checksum", "too_slow", reply.text)]


async def test_a_caller_that_goes_away_takes_nothing_along(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(limits=Limits(held_bytes=1500))
    app = setting.build()
    for _ in range(3):
        await call(app, [b" " * 1000], ends=False, leaves=True)
    assert setting.outcomes == [("checksum", "gone")] * 3
    assert told_of(caplog) == []
    assert (await call(app, review())).shard in SHARDS
