"""When a provider is asked again, and who waits for that."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from shardsdk.errors import ConfigurationError, ConnectionFailed
from shardsdk.kube import credentials as module
from shardsdk.kube.client import Client
from shardsdk.kube.credentials import RENEWAL_PAUSE_SECONDS, Issued, IssuedCredentials
from shardsdk.kube.server import direct_access
from tests.kube_fakes import CONFIGMAPS, InstantClock
from tests.kube_server import config_map, refuses, says, serving


async def test_only_one_renewal_runs_at_a_time() -> None:
    clock = InstantClock()
    gate, asked = asyncio.Event(), []

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        await gate.wait()
        return Issued("new")

    credentials = IssuedCredentials(issue, Issued("old"), clock)
    clock.at += RENEWAL_PAUSE_SECONDS
    both = asyncio.gather(credentials.renew("old"), credentials.renew("old"))
    while not asked:
        await asyncio.sleep(0)
    assert await credentials.header() == "old"
    assert not both.done()
    gate.set()
    assert list(await both) == [True, True]
    assert asked == [True]


async def test_a_renewal_outlives_the_request_that_needed_it() -> None:
    """Somebody has to log in, for longer than a request may take: ended with it, it would begin anew each time."""
    clock = InstantClock()
    gate, asked = asyncio.Event(), []

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        await gate.wait()
        return Issued("new", clock.now() + timedelta(hours=1))

    credentials = IssuedCredentials(issue, Issued("old", clock.now() + timedelta(minutes=1)), clock)
    clock.at += 61
    for _ in range(3):
        request = asyncio.ensure_future(credentials.header())
        while not asked:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not request.done(), "an expired token is not used at once"
        request.cancel()
        await asyncio.wait((request,))
        clock.at += RENEWAL_PAUSE_SECONDS
    other = asyncio.create_task(asyncio.to_thread(asyncio.run, credentials.header()))
    gate.set()
    assert await credentials.header() == "new"
    assert await other == "new"
    assert asked == [True]


async def test_nobody_waits_for_long_where_an_expired_token_may_still_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease's renewal, in a loop of its own, would be late; the API server may go by another clock."""
    monkeypatch.setattr(module, "EXPIRED_WAIT_SECONDS", 0.01)
    clock = InstantClock()
    gate, asked = asyncio.Event(), []

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        await gate.wait()
        return Issued("new")

    credentials = IssuedCredentials(issue, Issued("old", clock.now() + timedelta(minutes=1)), clock)
    clock.at += 61
    async with asyncio.timeout(30):
        assert await credentials.header() == "old"
        assert await asyncio.to_thread(asyncio.run, credentials.header()) == "old"
        refused = asyncio.ensure_future(credentials.renew("old"))
        assert await credentials.header() == "old"
        assert not refused.done(), "who was refused has nothing else to show"
        gate.set()
        assert await refused
    assert await credentials.header() == "new"
    assert asked == [True]


@pytest.mark.parametrize(
    ("error", "said"),
    [(ConfigurationError("log in"), "Credentials not renewed"), (RuntimeError("a bug"), "plugin or provider raised")],
)
async def test_a_pause_follows_a_renewal_that_failed_however_long_it_took(
    caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    clock = InstantClock()
    asked: list[bool] = []

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        await clock.sleep(2 * RENEWAL_PAUSE_SECONDS)
        raise error

    credentials = IssuedCredentials(issue, Issued("old", clock.now() + timedelta(minutes=1)), clock)
    clock.at += 61
    assert not await credentials.renew("old")
    assert said in caplog.text
    assert await credentials.header() == "old"
    assert not await credentials.renew("old")
    assert asked == [True]
    clock.at += RENEWAL_PAUSE_SECONDS
    assert not await credentials.renew("old")
    assert asked == [True, True]


async def test_a_request_that_waits_for_credentials_in_vain_blames_no_api_server() -> None:
    clock = InstantClock()

    async def issue(rejected: bool) -> Issued:
        await asyncio.sleep(3600)  # an event that nobody else knows would be garbage, and the renewal with it
        raise AssertionError

    async with serving(refuses(401, "Unauthorized"), says(config_map("a"))) as server:
        for expires, what, seconds in (
            (timedelta(minutes=1), "credentials", 0.1),
            (timedelta(hours=1), "other credentials", 2.0),  # asked for once those are refused
        ):
            credentials = IssuedCredentials(issue, Issued("Bearer old", clock.now() + expires), clock)
            clock.at += 61
            async with Client(replace(direct_access(server.url), credentials=credentials)) as client:
                said = f"configmaps n/a: no {what} to show to http.* within {seconds} s"
                with pytest.raises(ConnectionFailed, match=said):
                    await client.get(CONFIGMAPS, "a", "n", timeout_seconds=seconds)
        assert len(server.seen) == 1


async def test_a_renewal_ends_with_its_loop_and_the_next_one_begins() -> None:
    clock = InstantClock()
    asked: list[bool] = []
    ended: list[bool] = []

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(rejected)
        raise AssertionError

    credentials = IssuedCredentials(issue, Issued("old"), clock)

    async def give_up() -> None:
        clock.at += RENEWAL_PAUSE_SECONDS
        request = asyncio.ensure_future(credentials.renew("old"))
        before = len(asked)
        while len(asked) == before:
            await asyncio.sleep(0)
        request.cancel()

    for _ in range(2):
        await asyncio.to_thread(asyncio.run, give_up())
    assert asked == ended == [True, True]


async def test_a_blocked_loop_keeps_no_other_from_renewing() -> None:
    """As a body that computes for long keeps the lease's thread from nothing."""
    clock = InstantClock()
    gate, asked, blocked = asyncio.Event(), [], asyncio.get_running_loop()

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        if asyncio.get_running_loop() is blocked:
            await gate.wait()
            return Issued("late")
        return Issued("new")

    credentials = IssuedCredentials(issue, Issued("old"), clock)
    clock.at += RENEWAL_PAUSE_SECONDS
    refused = asyncio.ensure_future(credentials.renew("old"))
    while not asked:
        await asyncio.sleep(0)
    results = list[bool]()
    other = threading.Thread(target=lambda: results.append(asyncio.run(credentials.renew("old"))), daemon=True)
    other.start()
    other.join(20)  # blocks this loop
    assert results == [True]
    assert await credentials.header() == "new"
    gate.set()
    assert await refused
    assert asked == [True, True]
    assert await credentials.header() == "new", "what was begun before is older, whenever it comes"
    clock.at += RENEWAL_PAUSE_SECONDS
    assert await credentials.renew("new"), "nothing is under way any more"
    assert await credentials.header() == "late"


@pytest.mark.parametrize("closed", [True, False])
async def test_a_loop_that_has_stopped_keeps_no_other_from_renewing(closed: bool) -> None:
    """One of a helper that runs something until it is complete, which did not wait for the renewal."""
    clock = InstantClock()
    asked: list[bool] = []

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        await asyncio.sleep(0.01)
        return Issued("new", clock.now() + timedelta(hours=1))

    credentials = IssuedCredentials(issue, Issued("old", clock.now() + timedelta(minutes=1)), clock)
    clock.at += 55
    loop = asyncio.new_event_loop()

    def stop() -> None:
        loop.run_until_complete(credentials.header())
        loop.run_until_complete(asyncio.sleep(0))
        if closed:
            loop.close()

    await asyncio.to_thread(stop)
    assert asked == [False]
    async with asyncio.timeout(20):
        if closed:
            assert await credentials.header() == "old"
        assert await credentials.renew("old")
    assert await credentials.header() == "new"
    loop.close()


async def test_a_short_lived_token_is_renewed_at_a_fifth_of_its_life() -> None:
    clock = InstantClock()
    asked: list[bool] = []

    async def issue(rejected: bool) -> Issued:
        asked.append(rejected)
        return Issued(f"t{len(asked)}", clock.now() + timedelta(seconds=100))

    credentials = IssuedCredentials(issue, await issue(False), clock)
    clock.at += 79
    await credentials.header()
    await asyncio.sleep(0)
    assert len(asked) == 1
    clock.at += 2
    await credentials.header()
    await asyncio.sleep(0)
    assert asked == [False, False]
    assert await credentials.header() == "t2"
