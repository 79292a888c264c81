"""What a reflector of a part shows while it gains more, beside a watch that goes on where it was."""

from __future__ import annotations

import asyncio

import pytest

from shardsdk.errors import Gone, ServerError, ShardingError, TooManyRequests
from shardsdk.kube.slices import Slice
from shardsdk.protocol.objects import SlimMeta
from shardsdk.protocol.ranges import NOWHERE, SPACE, HashBy, HashRanges
from tests.kube_fakes import Hold, Step, added, bookmark, deleted, listed, modified, playing

LOW, HIGH = HashRanges.of((0, SPACE // 2)), HashRanges.of((SPACE // 2, SPACE))


def uid_in(ranges: HashRanges) -> str:
    """A uid whose hash lies there."""
    return next(uid for uid in map(str, range(99)) if HashBy.UID.point(SlimMeta(uid=uid)) in ranges)


OURS, GAINED = uid_in(LOW), uid_in(HIGH)


def part() -> Slice:
    made = Slice(HashBy.UID)
    made.want(LOW)
    return made


async def test_what_is_made_again_in_a_gained_range_under_the_name_of_one_that_was_shown_stays() -> None:
    """The list has the new one; the watch goes on before the old one's end, and its news of the new one is older."""
    news: list[Step] = [
        bookmark(10), modified("x", 11, uid=OURS), deleted("x", 12, uid=OURS), added("x", 13, uid=GAINED),
        bookmark(14), Hold(),
    ]  # fmt: skip
    first: list[Step] = [added("x", 9, uid=OURS), listed(10), Hold()]
    async with playing(first, [added("x", 13, uid=GAINED), listed(13)], news, part=part()) as (api, mine, told):
        api.idle.clear()
        mine.show(LOW | HIGH)
        await api.idle.wait()
        assert [(each.verb, each.version) for each in api.asked] == [("watch", None), ("list", None), ("watch", "10")]
        assert told.story == ["added x@9*", "deleted x@9*", "added x@13*"]
        assert [each.metadata.uid for each in mine.store] == [GAINED]
        assert mine.position == "14"


@pytest.mark.parametrize("error", [TooManyRequests("slow", status=429), ServerError("unwell", status=503)])
async def test_what_is_shown_is_followed_while_what_was_gained_cannot_be_listed(error: ShardingError) -> None:
    failing = 3
    lists_fail: list[list[Step]] = []
    for number in range(failing):
        lists_fail += [
            [error],
            [bookmark(10 + number), modified("a", 11 + number, uid=OURS), added("b", 11 + number, uid=GAINED)],
        ]
    async with playing(
        [added("a", 9, uid=OURS), listed(10), Hold()],
        *lists_fail,
        [added("b", 13, uid=GAINED), listed(20)],
        [modified("b", 15, uid=GAINED), modified("a", 16, uid=OURS), Hold()],
        part=part(),
    ) as (api, mine, told):
        api.idle.clear()
        mine.show(LOW | HIGH)
        await api.idle.wait()
        assert told.story == [
            "added a@9*", "modified a@11", "modified a@12", "modified a@13", "added b@13*", "modified a@16",
        ]  # fmt: skip
        asked = [(each.verb, each.version) for each in api.asked[1:]]
        lists_then_watches = [("list", None), ("watch", "10"), ("list", None), ("watch", "11"), ("list", None)]
        assert asked == [*lists_then_watches, ("watch", "12"), ("list", None), ("watch", "13")]
        assert api.overlaps == 0
        assert mine.failure is None


async def test_it_is_refused_for_as_long_as_what_was_gained_is_whatever_is_followed_meanwhile() -> None:
    slow = TooManyRequests("slow", status=429)
    first: list[Step] = [added("a", 9, uid=OURS), listed(10), Hold()]
    async with playing(first, [slow], [bookmark(11)], [slow], [bookmark(12)], part=part()) as (api, mine, _):
        api.idle.clear()
        mine.show(LOW | HIGH)
        began = api.clock.monotonic()
        await api.idle.wait()
        assert mine.pauses.refused_since == began
        api.scripts += [[added("b", 13, uid=GAINED), listed(20)], [bookmark(20), Hold()]]
        api.idle.clear()
        mine.restart()
        await api.idle.wait()
        assert mine.pauses.refused_since is None


async def test_it_fails_as_long_as_what_was_gained_cannot_be_listed_and_says_so_once() -> None:
    failures: list[str] = []
    slow = TooManyRequests("slow", status=429)
    async with playing(
        [added("a", 9, uid=OURS), listed(10), Hold()],
        [slow], [bookmark(10), modified("a", 11, uid=OURS)],
        [slow], [ServerError("unwell", status=503)],
        [slow], [bookmark(11), modified("a", 12, uid=OURS), Hold()],
        part=part(), on_failing=lambda: failures.append("failing"),
    ) as (api, mine, told):  # fmt: skip
        api.idle.clear()
        mine.show(LOW | HIGH)
        await api.idle.wait()
        assert told.story[-1] == "modified a@12"
        assert mine.failure is slow
        assert failures == ["failing"]


async def test_a_position_that_is_lost_meanwhile_has_everything_listed() -> None:
    async with playing(
        [added("a", 9, uid=OURS), listed(10), Hold()],
        [TooManyRequests("slow", status=429)],
        [Gone("too old", status=410)],
        [added("a", 30, uid=OURS), added("b", 30, uid=GAINED), listed(31), Hold()],
        part=part(),
    ) as (api, mine, _):
        api.idle.clear()
        mine.show(LOW | HIGH)
        await api.idle.wait()
        assert [(each.verb, each.version) for each in api.asked[1:]] == [
            ("list", None), ("watch", "10"), ("watch", None),
        ]  # fmt: skip
        assert sorted(each.metadata.name for each in mine.store) == ["a", "b"]


async def test_of_nothing_it_asks_nothing_until_there_is_something_to_show() -> None:
    async with playing(
        [added("a", 9, uid=OURS), listed(10), Hold()], [added("a", 9, uid=OURS), listed(20), Hold()], part=part()
    ) as (api, mine, told):
        mine.show(NOWHERE)
        assert mine.position is None
        async with asyncio.timeout(5):
            await mine.listed(mine.restart())
        await asyncio.sleep(0.01)
        assert [(each.verb, each.closed) for each in api.asked] == [("watch", True)]
        assert (mine.position, mine.failure, len(mine.store)) == (None, None, 0)
        api.idle.clear()
        mine.show(LOW)
        await api.idle.wait()
        assert [(each.verb, each.version) for each in api.asked[1:]] == [("watch", None)]
        assert told.story == ["added a@9*", "deleted a@9*", "added a@9*"]
        assert mine.position == "20"


async def test_what_is_taken_away_and_given_back_at_once_is_listed_with_all_the_rest() -> None:
    """Not beside a watch: there is nothing left that it would be for."""
    async with playing(
        [added("a", 9, uid=OURS), listed(10), Hold()], [added("a", 15, uid=OURS), listed(20), Hold()], part=part()
    ) as (api, mine, _):
        api.idle.clear()
        mine.show(NOWHERE)
        mine.show(LOW)
        await api.idle.wait()
        assert [(each.verb, each.version) for each in api.asked[1:]] == [("watch", None)]
        assert mine.position == "20"
