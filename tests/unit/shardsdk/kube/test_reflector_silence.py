"""A position that nothing is heard from is not trusted for ever, however the watches from it end."""

from __future__ import annotations

import pytest

from shardsdk.errors import StreamInterrupted
from shardsdk.kube.api import SILENCE_SECONDS
from tests.kube_fakes import Passing, Step, added, bookmark, listed, playing

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
