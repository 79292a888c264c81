"""The reflector against a scripted API server, in time that passes only on paper."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.errors import (
    ConnectionFailed,
    Gone,
    Invalid,
    ServerError,
    ShardingError,
    StreamInterrupted,
)
from shardsdk.kube.api import Unfit, WatchEvent, WatchKind
from shardsdk.kube.initialevents import ASK_AGAIN_SECONDS, STREAM_FAILURES_MAX, NoEnd
from shardsdk.kube.reflector import Delta
from shardsdk.protocol.objects import ObjectMeta, PartialObject
from tests.kube_fakes import (
    Asked,
    Hold,
    InstantClock,
    Passing,
    ScriptedApi,
    Step,
    added,
    bookmark,
    deleted,
    listed,
    modified,
    playing,
    reflect,
)


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


async def test_an_object_that_does_not_fit_any_more_is_not_kept_as_it_was() -> None:
    """As a list has it, which leaves it out: whoever worked on it would go on with what is not true any more."""
    odd = Unfit(ObjectMeta(name="a", namespace="default", resource_version="6"), "odd")
    unfit = WatchEvent(WatchKind.BOOKMARK, None, "6", unfit=odd)
    async with playing([added("a", 1), added("b", 1), listed(5), unfit, unfit, modified("a", 8), Hold()]) as (
        _,
        mine,
        told,
    ):
        assert told.story == ["added a@1*", "added b@1*", "deleted a@1", "added a@8"]
        assert mine.unfit == {}
        assert len(mine.store) == 2


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


@pytest.mark.parametrize("refusal", [[Invalid("forbidden")], [added("a", 1), NoEnd("no end")]], ids=["told", "found"])
async def test_that_initial_events_are_not_served_is_no_failure_and_asked_once(
    refusal: list[Step], caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[str] = []
    async with playing(refusal, [added("b", 2), listed(7)], on_failing=lambda: failed.append("")) as (api, mine, _):
        assert api.clock.pauses == []
        assert failed == caplog.messages == []
        assert mine.synced.is_set()
        assert [each.metadata.name for each in mine.store] == ["b"]

        other, _ = reflect(api)
        api.scripts.append([listed(8)])
        running = asyncio.ensure_future(other.run())
        await other.synced.wait()
        assert [each.verb for each in api.asked] == ["watch", "list", "watch", "list", "watch"]
        running.cancel()

        api.clock.at += ASK_AGAIN_SECONDS
        api.scripts.append([listed(9), Hold()])
        await mine.listed(mine.restart())
        assert api.asked[-1] == Asked("watch", None), "an API server is upgraded now and then"


async def test_a_list_in_pages_that_breaks_off_proves_nothing_either() -> None:
    refused = Invalid("sendInitialEvents is forbidden")
    script: list[list[Step]] = [[refused], [added("a", 1), StreamInterrupted("410")], [added("b", 2), listed(7)]]
    async with playing(*script) as (_, mine, told):
        assert told.story == ["added a@1*", "added b@2*", "deleted a@1*"]
        assert mine.synced.is_set()


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


@pytest.mark.parametrize("error", [LookupError("a bug"), asyncio.CancelledError("a bug")], ids=repr)
async def test_a_handler_that_fails_does_not_stop_the_news(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def handler(delta: Delta[PartialObject]) -> None:
        heard.append(delta.object.metadata.name)
        raise error

    async with playing([added("a", 1), added("b", 2), listed(5)], handler=handler) as (_, mine, _told):
        assert heard == ["a", "b"]
        assert len(mine.store) == 2
    assert "a bug" in caplog.text


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
