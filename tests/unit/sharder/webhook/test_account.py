"""Under which name the sharder writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from sharder.webhook.account import PATH, REFUSED_SECONDS, RETRY_SECONDS, OwnAccount
from shardsdk.errors import ConnectionFailed, Forbidden, NotFound, ShardingError
from shardsdk.kube.api import Api
from shardsdk.testing.virtual import VirtualClock, in_virtual_time

ANSWER = b'{"kind": "SelfSubjectReview", "status": {"userInfo": {"username": "sharder", "groups": ["a"]}}}'


class Server:
    """Answers what it is told to, one after the other."""

    def __init__(self, *answers: bytes | ShardingError) -> None:
        self._answers: Iterator[bytes | ShardingError] = iter(answers)

    async def raw(self, method: str, path: str, *, body: bytes = b"", **_: Any) -> bytes:
        assert (method, path) == ("POST", PATH)
        assert json.loads(body) == {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = next(self._answers)
        if isinstance(answer, ShardingError):
            raise answer
        return answer


async def ask(server: Server, clock: VirtualClock, seconds: float) -> tuple[str, int]:
    """The name that is known after so long, and how often that was told."""
    told: list[None] = []
    account = OwnAccount(cast(Api, server), clock, lambda: told.append(None))
    running = asyncio.create_task(account.run())
    await clock.sleep(seconds)
    assert not running.done()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return account.name, len(told)


@in_virtual_time
async def test_the_api_server_tells_the_name(clock: VirtualClock) -> None:
    assert await ask(Server(ANSWER), clock, 1.0) == ("sharder", 1)


@in_virtual_time
async def test_it_is_asked_again_until_it_answers(clock: VirtualClock) -> None:
    away = ConnectionFailed("nobody there")
    assert await ask(Server(away, away, ANSWER), clock, 1.5 * RETRY_SECONDS) == ("", 0)
    assert await ask(Server(away, away, ANSWER), clock, 2.5 * RETRY_SECONDS) == ("sharder", 1)


@pytest.mark.parametrize(
    "answer", [Forbidden("may not"), NotFound("too old"), b"{}", b"", b'{"status": {"userInfo": {"username": 1}}}']
)
def test_without_the_right_to_ask_the_sharder_goes_on_without_a_name_until_it_has_that_right(
    answer: bytes | ShardingError, caplog: pytest.LogCaptureFixture
) -> None:
    @in_virtual_time
    async def story(clock: VirtualClock) -> None:
        refused = [answer, answer]
        assert await ask(Server(*refused, ANSWER), clock, 1.5 * REFUSED_SECONDS) == ("", 0)
        caplog.clear()
        assert await ask(Server(*refused, ANSWER), clock, 2.5 * REFUSED_SECONDS) == ("sharder", 1)

    story()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "own account not known; labels that people change stay"
    ]
