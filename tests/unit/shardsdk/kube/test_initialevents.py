"""Whether a client asks for initial events, by what has come of them."""

from __future__ import annotations

import pytest

from shardsdk.errors import ConnectionFailed, Gone, Invalid, StreamInterrupted
from shardsdk.kube import reading
from shardsdk.kube.initialevents import (
    ASK_AGAIN_SECONDS,
    BROKEN_SECONDS,
    STREAM_FAILURES_MAX,
    InitialEvents,
    NoEnd,
    Silent,
)
from shardsdk.kube.waits import Unanswered
from tests.kube_fakes import CONFIGMAPS, Step, added, bookmark, listed, playing
from tests.kube_server import hangs, page, says, talking

BROKEN = StreamInterrupted("the connection broke")


@pytest.mark.parametrize("error", [Invalid("forbidden"), NoEnd("no end")], ids=["refused", "ignored"])
def test_where_they_are_not_served_they_are_asked_for_again_an_hour_later(error: Invalid | NoEnd) -> None:
    known = InitialEvents()
    known.failed(error, 1.0, 2.0)
    assert not known.worth_a_try(1.0 + ASK_AGAIN_SECONDS)
    assert known.worth_a_try(2.0 + ASK_AGAIN_SECONDS)


def test_streams_that_one_restart_of_an_api_server_ends_are_one_failure() -> None:
    known = InitialEvents()
    for began in (1.0, 2.0, 3.0):
        known.failed(BROKEN, began, 10.0 + began / 100)
    assert known.worth_a_try(11.0)


def test_after_streams_that_broke_one_after_the_other_they_are_asked_for_again_a_minute_later() -> None:
    known = InitialEvents()
    for number in range(STREAM_FAILURES_MAX):
        assert known.worth_a_try(10.0 * number)
        known.failed(BROKEN, 10.0 * number, 10.0 * number + 5)
    assert not known.worth_a_try(20.0)
    assert known.worth_a_try(15.0 + BROKEN_SECONDS)


def test_one_that_is_complete_between_two_that_broke_shows_that_they_work() -> None:
    known = InitialEvents()
    known.failed(BROKEN, 1.0, 2.0)
    known.worked()
    known.failed(BROKEN, 3.0, 4.0)
    assert known.worth_a_try(5.0)


async def test_silence_in_place_of_their_end_is_no_failure_and_the_second_time_a_reason_not_to_ask(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An API server that ignores the wish has nothing to say as long as nothing exists."""
    nothing: list[Step] = [Silent("silent for 30 s, taken for dead")]
    scripts: list[list[Step]] = [nothing, [listed(5)], [Gone("410")], nothing, [listed(6)], [Gone("410")], [listed(7)]]
    async with playing(*scripts) as (api, mine, _):
        assert [each.verb for each in api.asked] == ["watch", "list", "watch"] * 2 + ["list", "watch"]
        assert mine.failure is None
        assert "silent" not in caplog.text
        assert not api.initial_events[CONFIGMAPS].worth_a_try(api.clock.at + BROKEN_SECONDS)


async def test_a_proxy_that_holds_the_answer_back_until_it_is_complete_lets_lists_in_pages_pass() -> None:
    held: list[list[Step]] = [[Unanswered("no answer within 15.0 s")] for _ in range(STREAM_FAILURES_MAX)]
    async with playing(*held, [added("a", 1), listed(7)]) as (api, mine, told):
        assert [each.verb for each in api.asked] == ["watch", "watch", "list", "watch"]
        assert mine.synced.is_set()
        assert told.story == ["added a@1*"]


async def test_where_lists_are_answered_and_watches_are_not_what_is_new_is_listed_after_two() -> None:
    """Else it would be seen when a watch has been silent for so long that nothing is believed of it."""
    held: list[Step] = [Unanswered("no answer within 15.0 s")]
    scripts: list[list[Step]] = [
        held,
        held,
        [listed(7)],
        held,
        held,
        [added("a", 8), listed(8)],
        held,
        held,
        [listed(9)],
    ]
    async with playing(*scripts) as (api, _, told):
        assert [each.verb for each in api.asked] == ["watch", "watch", *["list", "watch", "watch"] * 2, "list", "watch"]
        assert told.story[0] == "added a@8*"
        assert not api.initial_events[CONFIGMAPS].worth_a_try(api.clock.at + BROKEN_SECONDS), "each try takes its time"


@pytest.mark.parametrize(
    "between", [BROKEN, ConnectionFailed("refused"), bookmark(7)], ids=["broken", "none", "opened"]
)
async def test_watches_that_have_no_answer_now_and_then_have_nothing_listed(between: Step) -> None:
    """An API server that is slow to accept watches would be slower for a list after each."""
    held: list[Step] = [Unanswered("no answer within 15.0 s")]
    scripts: list[list[Step]] = [held, held, [listed(7)], held, [between], held, [between], held]
    async with playing(*scripts) as (api, _, _):
        assert [each.verb for each in api.asked] == ["watch", "watch", "list", *["watch"] * 6]
        assert {each.version for each in api.asked[3:]} == {"7"}


async def test_a_watch_that_is_not_answered_after_others_that_were_goes_on_where_they_were() -> None:
    """An API server that hangs for a moment has nothing listed."""
    held = Unanswered("no answer within 15.0 s")
    scripts: list[list[Step]] = [[held], [held], [listed(7)], [added("a", 8)], [added("b", 9)], [held], [held]]
    async with playing(*scripts) as (api, _, told):
        assert [each.verb for each in api.asked] == ["watch", "watch", "list", *["watch"] * 5]
        assert [each.partition("@")[0] for each in told.story] == ["added a", "added b"]


async def test_a_list_whose_stream_is_not_answered_is_made_in_pages_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "OPEN_SECONDS", 0.2)
    async with talking(*[hangs()] * STREAM_FAILURES_MAX, says(page(["a"]))) as (client, server):
        for _ in range(STREAM_FAILURES_MAX):
            with pytest.raises(ConnectionFailed, match="no answer from"):
                await anext(client.stream(CONFIGMAPS))
        (things,) = [each async for each in client.stream(CONFIGMAPS)]
        assert [each.metadata.name for each in things] == ["a"]
        assert ["watch" in each.query for each in server.seen] == [True, True, False]
