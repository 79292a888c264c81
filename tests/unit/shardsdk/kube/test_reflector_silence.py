"""A position that nothing is heard from is not trusted for ever, however the watches from it end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from shardsdk.errors import StreamInterrupted
from shardsdk.kube.api import SILENCE_SECONDS
from shardsdk.kube.initialevents import Silent
from shardsdk.kube.streams import QUIET_SECONDS
from tests.kube_fakes import Hold, Passing, Step, added, bookmark, listed, playing, reflect

#: Less than a watch may be silent: what lies between cuts the connection before that is noticed.
CUT_SECONDS = 60.0

CUT: list[Step] = [StreamInterrupted("the connection broke")]
IN_ORDER: list[Step] = []

endings = pytest.mark.parametrize("ending", [CUT, IN_ORDER], ids=["cut", "in order"])


def accepted(*then: Step, ending: list[Step]) -> list[Step]:
    """A watch from version 5, which the client says is accepted."""
    return [bookmark(5), *then, Passing(CUT_SECONDS), *ending]


@endings
async def test_watches_that_are_accepted_and_cut_before_they_are_silent_for_too_long_lead_to_a_list(
    ending: list[Step],
) -> None:
    """An API server whose etcd came back from a backup accepts versions it never had, and says nothing."""
    silent = [accepted(ending=ending) for _ in range(2)]
    async with playing([added("a", 1), listed(5)], *silent, [added("b", 2), listed(3)]) as (api, mine, told):
        assert [each.version for each in api.asked] == [None, "5", "5", None, "3"]
        assert [each.metadata.name for each in mine.store] == ["b"]
        assert told.story == ["added a@1*", "added b@2*", "deleted a@1*"]


@endings
async def test_what_is_accepted_is_no_news(ending: list[Step]) -> None:
    async with playing([listed(5)], accepted(ending=ending)) as (api, mine, _):
        assert len(api.asked) == 3
        assert mine.fresh_at == pytest.approx(1_000.0)


@endings
async def test_a_quiet_watch_is_not_listed_anew_as_long_as_the_api_server_sends_bookmarks(ending: list[Step]) -> None:
    """Each minute or so, though nothing has changed, and though the connection is cut as often."""
    quiet = [accepted(Passing(1), bookmark(5), ending=ending) for _ in range(20)]
    async with playing([added("a", 1), listed(5)], *quiet) as (api, mine, told):
        assert [each.version for each in api.asked] == [None, *["5"] * 21]
        assert mine.fresh_at > 1_000.0 + 19 * CUT_SECONDS
        assert told.story == ["added a@1*"]


async def test_a_quiet_watch_that_lasts_is_followed_by_another_one() -> None:
    minutes: list[Step] = [step for _ in range(8) for step in (Passing(SILENCE_SECONDS * 2 / 3), bookmark(5))]
    async with playing([listed(5)], [bookmark(5), *minutes], [bookmark(5), *minutes]) as (api, _, _told):
        assert [each.version for each in api.asked] == [None, "5", "5", "5"]


LISTING: list[Step] = [added("a", 1), listed(5)]
SILENT: list[Step] = [bookmark(5), Passing(SILENCE_SECONDS), StreamInterrupted("silent for 90 s, taken for dead")]


async def test_where_no_bookmarks_come_a_quiet_watch_is_neither_a_failure_nor_listed_each_time() -> None:
    """Of core Events an API server sends none.  That they do not come is believed as long as lists confirm it."""
    failed: list[str] = []
    longest = int(QUIET_SECONDS / SILENCE_SECONDS) + 1
    scripts: list[list[Step]] = [LISTING]
    versions: list[str | None] = [None]
    for times in (1, 2, 4, longest, longest):
        scripts += [*[SILENT] * times, LISTING]
        versions += [*["5"] * times, None]
    async with playing(*scripts, on_failing=lambda: failed.append("")) as (api, mine, told):
        assert [each.version for each in api.asked] == [*versions, "5"]
        assert failed == []
        assert mine.failure is None
        assert told.story == ["added a@1*"]


@pytest.mark.parametrize("in_pages", [False, True])
async def test_silence_that_has_hidden_something_is_a_failure_and_not_believed_any_more(
    caplog: pytest.LogCaptureFixture, in_pages: bool
) -> None:
    """A proxy may accept watches, and forward nothing that comes of them."""
    caplog.set_level(logging.INFO)
    failed: list[str] = []
    # What it forwards of a list that is asked for as a watch is nothing either; twice, and nobody asks any more.
    unanswered: list[list[Step]] = [[Silent("silent for 30 s")]] if in_pages else []
    news: list[Step] = [added("a", 2), listed(5)]
    scripts = [*unanswered, LISTING, SILENT, *unanswered, LISTING, SILENT, SILENT, news, SILENT, news]
    async with playing(*scripts, on_failing=lambda: failed.append("")) as (api, mine, told):
        assert not api.scripts
        assert told.story == ["added a@1*", "modified a@2*"]
        assert failed == ["", ""]
        assert "a list shows changes that a watch has kept to itself" in caplog.text
        assert mine.failure is None


@pytest.mark.parametrize("quiet", [False, True])
async def test_a_proxy_that_was_found_out_is_never_believed_again(quiet: bool) -> None:
    """Neither its silence nor watches that it ends in order, though lists find for long that nothing has happened."""
    failed: list[str] = []
    scripts: list[list[Step]] = [LISTING, SILENT, [added("a", 2), listed(5)]]
    versions: list[str | None] = [None, "5", None]
    for _ in range(5):
        watches = [SILENT] if quiet else [accepted(ending=IN_ORDER)] * 2
        scripts += [*watches, [added("a", 2), listed(5)]]
        versions += [*["5"] * len(watches), None]
    async with playing(*scripts, on_failing=lambda: failed.append("")) as (api, _, _told):
        assert [each.version for each in api.asked] == [*versions, "5"]
        assert len(failed) == 1 + 5 * quiet


async def test_watches_that_end_before_silence_tells_anything_earn_no_trust() -> None:
    """A proxy may end each of them, in order, sooner than a bookmark comes."""
    scripts: list[list[Step]] = [LISTING]
    versions: list[str | None] = [None]
    for _ in range(5):
        scripts += [*[accepted(ending=IN_ORDER)] * 2, LISTING]
        versions += ["5", "5", None]
    async with playing(*scripts) as (api, mine, _told):
        assert [each.version for each in api.asked] == [*versions, "5"]
        assert mine.failure is None


async def test_that_bookmarks_come_is_known_to_whoever_reads_the_same_resource_later() -> None:
    failed: list[str] = []
    async with playing([listed(5), bookmark(5)]) as (api, _, _told):
        api.idle.clear()
        api.scripts += [LISTING, SILENT, LISTING]
        another, _ = reflect(api, on_failing=lambda: failed.append(""))
        running = asyncio.ensure_future(another.run())
        await api.idle.wait()
        running.cancel()
        assert failed == [""]


async def test_a_list_that_somebody_asks_for_says_nothing_of_silence() -> None:
    failed: list[str] = []
    async with playing(LISTING, SILENT, [Hold()], on_failing=lambda: failed.append("")) as (api, mine, told):
        api.scripts += [[added("a", 2), listed(6)], [Hold()]]
        await mine.listed(mine.restart())
        assert told.story == ["added a@1*", "modified a@2*"]
        assert failed == []


async def test_where_bookmarks_come_silence_is_a_failure_and_leads_to_a_list() -> None:
    failed: list[str] = []
    lists: list[list[Step]] = [[listed(5), bookmark(5)], SILENT, [listed(5)], SILENT, [listed(5)]]
    async with playing(*lists, on_failing=lambda: failed.append("")) as (api, _, _told):
        assert [each.version for each in api.asked] == [None, "5", None, "5", None, "5"]
        assert len(failed) == 2
