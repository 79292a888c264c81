"""The reflector against a scripted API server, in time that passes only on paper."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shardsdk.errors import (
    ConnectionFailed,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    ShardingError,
    StreamInterrupted,
    TooManyRequests,
)
from shardsdk.kube.reflector import HEALTHY_SECONDS, STREAM_FAILURES_MAX, Delta, EventKind, Reflector
from shardsdk.kube.selectors import Selector
from shardsdk.protocol.objects import PartialObject
from tests.kube_fakes import (
    Hold,
    InstantClock,
    Passing,
    Recorder,
    ScriptedApi,
    Step,
    added,
    bookmark,
    deleted,
    listed,
    modified,
    reflect,
)

Playing = tuple[ScriptedApi, Reflector[PartialObject], Recorder]


@asynccontextmanager
async def playing(*scripts: list[Step], **options: Any) -> AsyncIterator[Playing]:
    """Run a reflector through `scripts` until the API server has nothing more to say."""
    api = ScriptedApi(InstantClock(), *scripts)
    reflector, recorder = reflect(api, **options)
    running = asyncio.ensure_future(reflector.run())
    await api.idle.wait()
    yield api, reflector, recorder
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_the_first_list_fills_the_store_and_is_announced_as_initial() -> None:
    synced: list[int] = []
    async with playing([added("a", 1), added("b", 2), listed(5)], on_synced=lambda: synced.append(1)) as (
        _,
        mine,
        told,
    ):
        # The connection ended after the list: one more is asked for, which stays silent.
        assert told.story == ["added a@1*", "added b@2*"]
        assert mine.synced.is_set()
        assert synced == [1]
        assert mine.failure is None
        assert mine.fresh_at == pytest.approx(1_000.0)
        assert mine.status() == "configmaps: 2 objects"


async def test_news_come_with_what_the_store_held_before() -> None:
    script: list[Step] = [added("a", 1), listed(5), modified("a", 6), added("b", 7), deleted("a", 8), Hold()]
    async with playing(script) as (_, mine, told):
        assert told.story == ["added a@1*", "modified a@6", "added b@7", "deleted a@8"]
        gone = told.deltas[-1]
        assert gone.old is not None
        assert gone.old.metadata.resource_version == "6"
        assert gone.object.metadata.resource_version == "8"
        assert [each.metadata.name for each in mine.store] == ["b"]


async def test_a_watch_that_ends_goes_on_from_the_last_version_it_showed() -> None:
    async with playing([added("a", 1), listed(5), modified("a", 6)], [bookmark(6), bookmark(9)]) as (api, _, told):
        assert [each.version for each in api.asked] == [None, "6", "9"]
        assert told.story == ["added a@1*", "modified a@6"]


async def test_a_broken_watch_goes_on_from_the_last_version_it_showed() -> None:
    lost = StreamInterrupted("the connection broke")
    async with playing([listed(5), added("a", 6), lost], [ConnectionFailed("refused")]) as (api, mine, _):
        assert [each.version for each in api.asked] == [None, "6", "6"]
        assert mine.store.get("default", "a") is not None


@pytest.mark.parametrize(
    "error", [Gone("410"), Gone("too large a version", status=504), ServerError("odd", status=500)]
)
async def test_an_error_inside_a_watch_leads_to_a_new_list(error: ShardingError) -> None:
    async with playing([added("a", 1), listed(5), added("b", 6), error], [added("a", 1), listed(9)]) as (
        api,
        mine,
        told,
    ):
        assert [each.version for each in api.asked] == [None, None, "9"]
        assert told.story == ["added a@1*", "added b@6", "deleted b@6*"]
        assert mine.failure is None


async def test_a_position_that_leads_to_silence_is_not_trusted() -> None:
    """An API server whose etcd came back from a backup accepts versions it never had, and says nothing."""
    silent: list[Step] = [bookmark(5), Passing(90), StreamInterrupted("silent for 90 s")]
    async with playing([added("a", 1), listed(5)], silent, [listed(3)]) as (api, _, told):
        assert [each.version for each in api.asked] == [None, "5", None, "3"]
        assert told.story == ["added a@1*", "deleted a@1*"]


async def test_a_short_outage_costs_no_new_list() -> None:
    refused: list[list[Step]] = [[ConnectionFailed("refused")] for _ in range(6)]
    async with playing([listed(5)], *refused) as (api, _, _told):
        assert {each.version for each in api.asked[1:]} == {"5"}


async def test_a_server_error_that_refuses_a_watch_costs_no_new_list() -> None:
    async with playing([listed(5)], [ServerError("shutting down", status=503)]) as (api, _, _told):
        assert [each.version for each in api.asked] == [None, "5", "5"]


async def test_a_new_list_tells_exactly_what_changed_meanwhile() -> None:
    before: list[Step] = [
        *[added(name, 1) for name in ("same", "changed", "vanished", "remade")],
        listed(5),
        Gone("410"),
    ]
    after: list[Step] = [
        added("same", 1),
        added("changed", 7),
        added("remade", 8, uid="another"),
        added("new", 9),
        listed(9),
    ]
    async with playing(before, after) as (_, mine, told):
        assert told.story[4:] == [
            "modified changed@7*",
            "deleted remade@1*",
            "added remade@8*",
            "added new@9*",
            "deleted vanished@1*",
        ]
        assert sorted(each.metadata.name for each in mine.store) == ["changed", "new", "remade", "same"]


async def test_a_list_that_breaks_off_proves_nothing() -> None:
    """What it showed is real, what it did not show may be there all the same."""
    first: list[Step] = [added("a", 1), added("b", 1), listed(5), Gone("410")]
    async with playing(first, [added("b", 6)], [added("a", 1), added("b", 6), listed(9)]) as (api, _, told):
        assert [each.version for each in api.asked] == [None, None, None, "9"]
        assert told.story[2:] == ["modified b@6*"]


async def test_it_is_not_synced_before_a_list_is_complete() -> None:
    async with playing([added("a", 1), Hold()]) as (_, mine, _told):
        assert not mine.synced.is_set()
        assert mine.status() == "configmaps: first list pending"


async def test_an_object_that_goes_while_it_is_listed_does_not_stay() -> None:
    async with playing([added("a", 1), deleted("a", 2), added("b", 3), listed(3)]) as (_, mine, told):
        assert told.story == ["added a@1*", "deleted a@2*", "added b@3*"]
        assert [each.metadata.name for each in mine.store] == ["b"]


async def test_streams_that_never_complete_are_replaced_by_a_list_in_pages() -> None:
    early: list[list[Step]] = [[added("a", 1)] for _ in range(STREAM_FAILURES_MAX)]
    async with playing(*early, [added("a", 1), added("b", 2), listed(7)]) as (api, mine, told):
        assert [each.verb for each in api.asked] == ["watch", "watch", "list", "watch"]
        assert api.asked[-1].version == "7"
        assert mine.synced.is_set()
        assert told.story == ["added a@1*", "added b@2*"]


async def test_where_initial_events_are_not_served_lists_are_made_in_pages_from_then_on() -> None:
    refused = Invalid("sendInitialEvents is forbidden")
    script: list[list[Step]] = [[refused], [added("a", 1), listed(7)], [bookmark(7), Gone("410")], [listed(9)]]
    async with playing(*script) as (api, _, told):
        assert [each.verb for each in api.asked] == ["watch", "list", "watch", "list", "watch"]
        assert told.story == ["added a@1*", "deleted a@1*"]


async def test_a_list_in_pages_that_breaks_off_proves_nothing_either() -> None:
    refused = Invalid("sendInitialEvents is forbidden")
    script: list[list[Step]] = [[refused], [added("a", 1), StreamInterrupted("410")], [added("b", 2), listed(7)]]
    async with playing(*script) as (_, mine, told):
        assert told.story == ["added a@1*", "added b@2*", "deleted a@1*"]
        assert mine.synced.is_set()


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


async def test_pauses_grow_up_to_a_limit() -> None:
    refused: list[list[Step]] = [[ConnectionFailed("refused")] for _ in range(12)]
    async with playing(*refused) as (api, _, _told):
        pauses = api.clock.pauses
        assert pauses[0] <= 0.2
        assert all(15.0 <= pause <= 30.0 for pause in pauses[-3:])


async def test_pauses_become_short_again_only_after_a_healthy_stream() -> None:
    refused: list[list[Step]] = [[ConnectionFailed("refused")] for _ in range(6)]
    lost = StreamInterrupted("broke")
    brief: list[Step] = [listed(5), Passing(HEALTHY_SECONDS), lost]
    healthy: list[Step] = [bookmark(5), Passing(13), lost]
    async with playing(*refused, brief, healthy) as (api, _, _told):
        pauses = api.clock.pauses
        assert HEALTHY_SECONDS < pauses[5] <= 6.4
        assert 6.4 <= pauses[6] <= 12.8, "shorter than the pause before it: not healthy"
        assert pauses[7] <= 0.2


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


async def test_a_resource_that_is_gone_keeps_what_was_known_and_is_asked_for_again() -> None:
    async with playing([added("a", 1), listed(5)], [NotFound("the server could not find it")], [listed(9)]) as (
        api,
        mine,
        told,
    ):
        assert [each.version for each in api.asked] == [None, "5", None, "9"]
        assert told.story == ["added a@1*", "deleted a@1*"]
        assert len(mine.store) == 0


async def test_foreign_objects_are_dropped_and_one_that_becomes_foreign_is_deleted() -> None:
    def mine_only(each: PartialObject) -> bool:
        return each.metadata.label("mine") == "yes"

    yes, no = {"mine": "yes"}, {"mine": "no"}
    script: list[Step] = [
        added("a", 1, labels=yes),
        added("foreign", 2, labels=no),
        listed(5),
        modified("foreign", 6, labels=no),
        deleted("foreign", 7, labels=no),
        modified("a", 8, labels=no),
        modified("a", 9, labels=yes),
        Hold(),
    ]
    async with playing(script, keep=mine_only) as (_, _mine, told):
        assert told.story == ["added a@1*", "deleted a@8", "added a@9"]


async def test_a_new_list_drops_what_is_foreign_by_now() -> None:
    yes, no = {"mine": "yes"}, {"mine": "no"}
    first: list[Step] = [added("a", 1, labels=yes), listed(5), Gone("410")]
    second: list[Step] = [added("a", 7, labels=no), listed(9)]
    async with playing(first, second, keep=lambda each: each.metadata.label("mine") == "yes") as (_, mine, told):
        assert told.story == ["added a@1*", "deleted a@7*"]
        assert len(mine.store) == 0


async def test_objects_are_transformed_before_they_are_stored() -> None:
    def bare(each: PartialObject) -> PartialObject:
        meta = each.metadata
        return PartialObject(
            type(meta)(name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version)
        )

    async with playing([added("a", 1, labels={"x": "y"}), listed(5)], transform=bare) as (_, mine, told):
        assert mine.store.get("default", "a") == told.deltas[0].object
        assert told.deltas[0].object.metadata.labels is None


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


async def test_a_handler_that_fails_does_not_stop_the_news(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def handler(delta: Delta[PartialObject]) -> None:
        heard.append(delta.object.metadata.name)
        raise LookupError("a bug")

    async with playing([added("a", 1), added("b", 2), listed(5)], handler=handler) as (_, mine, _told):
        assert heard == ["a", "b"]
        assert len(mine.store) == 2
    assert "a bug" in caplog.text


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


@pytest.mark.parametrize("before", [[], [[Invalid("no initial events here")]]], ids=["stream", "pages"])
async def test_a_flood_leaves_room_for_other_tasks(before: list[list[Step]]) -> None:
    many: list[Step] = [added(f"o{number}", number + 1) for number in range(5_000)]
    api = ScriptedApi(InstantClock(), *before, [*many, listed(6_000)])
    api.page_size = 5_000
    reflector, _ = reflect(api)
    running = asyncio.ensure_future(reflector.run())
    turns = 0
    while not reflector.synced.is_set():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 5_000 / 128
    running.cancel()
