"""The reflector's perseverance: pauses, permissions, restarts, beginning and end."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from shardsdk.errors import (
    ApiError,
    ConnectionFailed,
    Forbidden,
    Gone,
    NotFound,
    ServerError,
    ShardingError,
    StreamInterrupted,
    TooManyRequests,
)
from shardsdk.kube.backoff import UNWELL_MAX_SECONDS
from shardsdk.kube.reflector import Delta, EventKind, Reflector
from shardsdk.kube.selectors import Selector
from shardsdk.kube.streams import HEALTHY_SECONDS, PAUSE_MAX_SECONDS
from shardsdk.protocol.objects import PartialObject
from tests.kube_fakes import (
    Hold,
    InstantClock,
    Passing,
    ScriptedApi,
    Step,
    added,
    bookmark,
    listed,
    playing,
    reflect,
)


async def test_a_missing_permission_is_told_and_waited_for() -> None:
    forbidden = Forbidden("grant watch on configmaps")
    api = ScriptedApi(InstantClock(), [added("a", 1), listed(5), Gone("410")], [forbidden], [forbidden, Hold()])
    reflector, told = reflect(api)
    running = asyncio.ensure_future(reflector.run())
    while len(api.asked) < 3:
        await asyncio.sleep(0)
    assert "grant watch" in reflector.status()
    assert len(reflector.store) == 1, "what it knew stays"
    api.scripts.append([added("a", 1), listed(9)])
    await api.idle.wait()
    assert reflector.failure is None
    assert told.story == ["added a@1*"]
    running.cancel()


async def test_since_when_it_is_refused_counts_from_the_first_refusal_until_an_attempt_begins() -> None:
    refused, other = TooManyRequests("slow down", status=429), Forbidden("list configmaps: 403", status=403)
    since: list[float | None] = []
    api = ScriptedApi(InstantClock(), [listed(5), StreamInterrupted("broke")], [refused], [other], [refused])

    def note() -> None:
        asyncio.get_running_loop().call_soon(lambda: since.append(reflector.pauses.refused_since))

    reflector: Reflector[PartialObject] = reflect(api, on_failing=note)[0]
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    assert since[0] is None
    first, *later = since[1:]
    assert first is not None
    assert [*later, reflector.pauses.refused_since] == [first] * (len(later) + 1)
    assert api.clock.monotonic() > first
    running.cancel()
    async with playing([listed(5), Gone("expired")], [refused], [listed(9), Hold()]) as (_, mine, _told):
        assert mine.pauses.refused_since is None, "a list that is complete, or a watch that was accepted"


@pytest.mark.parametrize(
    "away",
    [
        ConnectionFailed("refused"),
        ServerError("list configmaps: 503 without reason: <html>", status=503, said="<html>"),
        ServerError("list configmaps: 502 without reason: no message", status=502),
    ],
    ids=str,
)
async def test_no_answer_is_no_refusal_and_what_was_refused_before_it_counts_no_more(away: ShardingError) -> None:
    """Else one refusal as an outage begins, or a load balancer that answers for the API server, would count it all."""
    refused = Forbidden("list configmaps: 403", status=403)
    async with playing([listed(5), Gone("expired")], [refused], [away], [away]) as (_, reflector, _told):
        assert reflector.pauses.refused_since is None


@pytest.mark.parametrize(
    "error",
    [
        ServerError("503 ServiceUnavailable", status=503, reason="ServiceUnavailable"),
        ServerError("list widgets: 503 without reason", status=503, said="service unavailable"),
        ServerError("list widgets: 503 without reason", status=503, said="error trying to reach service: refused"),
    ],
    ids=lambda error: error.said,
)
async def test_that_what_serves_a_group_is_away_is_a_refusal_of_the_api_server(error: ServerError) -> None:
    async with playing([listed(5), Gone("expired")], [error]) as (_, reflector, _told):
        assert reflector.pauses.refused_since is not None


async def test_that_it_begins_to_fail_is_told_once_for_each_reason() -> None:
    forbidden = [Forbidden("grant watch on configmaps")]
    told: list[str] = []
    api = ScriptedApi(InstantClock(), [listed(5), Gone("expired")], forbidden, forbidden, [NotFound("no configmaps")])

    def note() -> None:
        told.append(str(reflector.failure))

    reflector: Reflector[PartialObject] = reflect(api, on_failing=note)[0]
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    running.cancel()
    assert told == ["expired", "grant watch on configmaps", "no configmaps"]


async def test_pauses_grow_up_to_a_limit() -> None:
    refused: list[list[Step]] = [[ConnectionFailed("refused")] for _ in range(12)]
    async with playing(*refused) as (api, _, _told):
        pauses = api.clock.pauses
        assert pauses[0] <= 0.2
        assert all(15.0 <= pause <= 30.0 for pause in pauses[-3:])


async def test_pauses_become_short_again_only_after_a_healthy_stream() -> None:
    refused: list[list[Step]] = [[ConnectionFailed("refused")] for _ in range(6)]
    lost = StreamInterrupted("broke")
    brief: list[Step] = [listed(5), Passing(HEALTHY_SECONDS / 2), lost]
    healthy: list[Step] = [bookmark(5), Passing(13), lost]
    async with playing(*refused, brief, healthy) as (api, _, _told):
        pauses = api.clock.pauses
        assert HEALTHY_SECONDS < pauses[5] <= 6.4
        assert 6.4 <= pauses[6] <= 12.8, "not healthy"
        assert pauses[7] <= 0.2


@pytest.mark.parametrize("ending", [[], [StreamInterrupted("broke")]], ids=["in order", "broken"])
async def test_no_pause_is_longer_than_the_healthy_stream_before_it(ending: list[Step]) -> None:
    """A proxy may end each watch after five seconds: after an outage it is followed as closely as it was before."""
    refused: list[list[Step]] = [[ConnectionFailed("refused")] for _ in range(10)]
    watches: list[list[Step]] = [[first, Passing(5), *ending] for first in (listed(5), bookmark(5), bookmark(5))]
    async with playing([listed(5)], *refused, *watches) as (api, _, _told):
        pauses = api.clock.pauses
        assert pauses[10] >= 15
        assert pauses[11] <= 5
        assert max(pauses[12:]) <= 0.2


async def test_a_watch_that_ends_at_once_every_time_is_followed_with_growing_pauses() -> None:
    brief: list[list[Step]] = [[bookmark(5)] for _ in range(5)]
    async with playing([listed(5)], *brief) as (api, _, _told):
        assert api.clock.pauses[5] >= 3.2


async def test_a_stream_that_hangs_from_its_beginning_was_not_healthy() -> None:
    silent: list[list[Step]] = [[Passing(90), ConnectionFailed("no answer within 90 s")] for _ in range(4)]
    async with playing([listed(5)], *silent) as (api, _, _told):
        assert api.clock.pauses[4] > 0.8


async def test_a_healthy_watch_that_ends_in_order_is_followed_without_a_pause() -> None:
    async with playing([listed(5), Passing(HEALTHY_SECONDS)]) as (api, _, _told):
        assert api.clock.pauses == [0.0]


async def test_it_waits_as_long_as_the_api_server_asks() -> None:
    async with playing([TooManyRequests("later", status=429, retry_after_seconds=7.0)]) as (api, _, _told):
        assert api.clock.pauses == [7.0]


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (TooManyRequests("later", status=429, retry_after_seconds=3600.0), PAUSE_MAX_SECONDS),
        (ServerError("no backend", status=503, retry_after_seconds=3600.0), UNWELL_MAX_SECONDS),
    ],
    ids=["too many requests", "no backend"],
)
async def test_it_waits_no_longer_than_is_sensible_whatever_is_asked(error: ApiError, seconds: float) -> None:
    """A load balancer may ask for an hour, and be well a second later."""
    async with playing([error]) as (api, _, _told):
        assert api.clock.pauses == [seconds]


async def test_a_resource_that_is_gone_keeps_what_was_known_and_is_asked_for_again() -> None:
    async with playing([added("a", 1), listed(5)], [NotFound("the server could not find it")], [listed(9)]) as (
        api,
        mine,
        told,
    ):
        assert [each.version for each in api.asked] == [None, "5", None, "9"]
        assert told.story == ["added a@1*", "deleted a@1*"]
        assert len(mine.store) == 0


async def test_a_restart_lists_anew_with_the_selector_of_that_moment() -> None:
    terms = ["one"]
    first: list[Step] = [added("a", 1), added("b", 1), listed(5), Hold()]
    async with playing(first, selector=lambda: Selector(labels=terms[0])) as (api, mine, told):
        terms[0] = "two"
        api.scripts.append([added("b", 1), added("c", 6), listed(9)])
        number = mine.restart()
        await mine.listed(number)
        assert api.asked[0].closed, "the old watch is closed"
        assert [each.selector.labels for each in api.asked[:2]] == ["one", "two"]
        assert told.story[2:] == ["added c@6*", "deleted a@1*"]


async def test_a_watch_goes_on_with_the_selector_of_its_list() -> None:
    terms = iter(["one", "two"])
    async with playing([listed(5)], selector=lambda: Selector(labels=next(terms))) as (api, _, _told):
        assert [each.selector.labels for each in api.asked] == ["one", "one"]


async def test_only_a_list_begun_after_the_restart_counts_for_it() -> None:
    gate = Hold()
    api = ScriptedApi(InstantClock(), [added("a", 1), gate, listed(5), Hold()])
    reflector, _ = reflect(api)
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    second = Hold()
    api.scripts.append([second, listed(9)])
    number = reflector.restart()
    waiting = asyncio.ensure_future(reflector.listed(number))
    gate.gate.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    second.gate.set()
    await waiting
    await reflector.listed(number)
    running.cancel()


async def test_a_restart_asked_for_by_the_handler_is_obeyed() -> None:
    asked: list[str] = []
    api = ScriptedApi(InstantClock(), [listed(5), added("a", 6), added("b", 7)], [added("a", 6), listed(9)])

    def handler(delta: Delta[PartialObject]) -> None:
        asked.append(delta.object.metadata.name)
        if delta.kind is EventKind.ADDED and not delta.initial:
            reflector.restart()

    reflector, _ = reflect(api, handler=handler)
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    assert [each.version for each in api.asked[:2]] == [None, None]
    assert asked[0] == "a"
    running.cancel()


async def test_a_restart_asked_for_while_a_list_completes_is_not_answered_by_that_list() -> None:
    second = Hold()
    first: list[Step] = [added("a", 1), listed(5), Gone("410")]
    api = ScriptedApi(InstantClock(), first, [listed(7)], [second, listed(9)])
    waiting: list[asyncio.Future[None]] = []

    def handler(delta: Delta[PartialObject]) -> None:
        if delta.kind is EventKind.DELETED:  # told while the second list completes
            waiting.append(asyncio.ensure_future(reflector.listed(reflector.restart())))

    reflector, _ = reflect(api, handler=handler)
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting[0].done()
    second.gate.set()
    await waiting[0]
    running.cancel()


async def test_a_restart_closes_the_old_connection_before_it_opens_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardsdk.kube.reflector.TURN_EVENTS", 1)
    api = ScriptedApi(InstantClock(), [listed(5), *[added(f"o{number}", number + 6) for number in range(50)], Hold()])
    api.scripts.append([listed(99)])

    def handler(delta: Delta[PartialObject]) -> None:
        if delta.object.metadata.name == "o9":
            reflector.restart()

    reflector, _ = reflect(api, handler=handler)
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    assert [each.version for each in api.asked[:2]] == [None, None]
    assert api.overlaps == 0
    running.cancel()


async def test_a_restart_makes_pauses_short_again() -> None:
    api = ScriptedApi(InstantClock(), *[[ConnectionFailed("refused")] for _ in range(6)], [Hold()])
    api.scripts.append([ConnectionFailed("refused")])
    reflector, _ = reflect(api)
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    reflector.restart()
    while len(api.clock.pauses) < 7:
        await asyncio.sleep(0)
    assert api.clock.pauses[5] > 3.0
    assert api.clock.pauses[6] <= 0.2
    running.cancel()


async def test_a_restart_ends_a_pause() -> None:
    class Stuck(InstantClock):
        async def sleep(self, seconds: float) -> None:
            self.pauses.append(seconds)
            await asyncio.Event().wait()

    clock = Stuck()
    api = ScriptedApi(clock, [ConnectionFailed("refused")], [listed(5)])
    reflector, _ = reflect(api)
    running = asyncio.ensure_future(reflector.run())
    while not clock.pauses:
        await asyncio.sleep(0)
    await reflector.listed(reflector.restart())
    running.cancel()


async def test_cancelling_closes_the_connection() -> None:
    api = ScriptedApi(InstantClock(), [listed(5), Hold()])
    reflector, _ = reflect(api)
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert api.asked[0].closed


async def test_it_can_run_again_and_begins_with_a_list() -> None:
    api = ScriptedApi(InstantClock(), [added("a", 1), listed(5), Hold()])
    reflector, told = reflect(api)
    for _ in range(2):
        running = asyncio.ensure_future(reflector.run())
        await api.idle.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        api.idle.clear()
        api.scripts.append([added("b", 6), listed(9), Hold()])
    assert [each.version for each in api.asked] == [None, None]
    assert told.story == ["added a@1*", "added b@6*", "deleted a@1*"]


async def test_the_same_failure_is_a_warning_only_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refused: list[list[Step]] = [[ConnectionFailed("refused")] for _ in range(5)]
    async with playing(*refused) as (_, _mine, _told):
        levels = [record.levelno for record in caplog.records if record.name == "shardsdk.kube.reflector"]
        assert levels == [logging.WARNING, *[logging.DEBUG] * 4]


async def test_a_stream_that_ends_after_a_good_beginning_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with playing([listed(5), StreamInterrupted("broke")], [ConnectionFailed("refused")]) as (_, _mine, _told):
        levels = [record.levelno for record in caplog.records if record.name == "shardsdk.kube.reflector"]
        assert levels == [logging.INFO, logging.WARNING]


async def test_a_cancellation_that_is_nobodys_of_it_is_a_failure_like_any_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    asked: list[str] = []

    def keep(thing: PartialObject) -> bool:
        asked.append(thing.metadata.name)
        if len(asked) == 1:
            raise asyncio.CancelledError
        return True

    script: list[Step] = [added("a", 1), listed(5)]
    async with playing(script, script, keep=keep) as (_, reflector, told):
        assert told.story == ["added a@1*"]
        assert reflector.failure is None
    (line,) = [each for each in caplog.records if each.msg == "Reflector interrupted, it will try again"]
    assert "something that it awaited was cancelled" in line.__dict__["error"]
