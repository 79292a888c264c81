"""How often the sharder's rights are asked for: soon while somebody may be granting them, seldom at rest."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from sharder.core.rights import MissingRule
from sharder.rings.permissions import DENIED_SECONDS, GRANTED_SECONDS, PermissionsCheck, rules_of_labels
from shardsdk.kube.api import Api
from shardsdk.protocol.objects import GroupResource
from tests.unit.shardsdk.serving.manual_clock import ManualClock

RESOURCES = [GroupResource("example.org", f"kind-{number}") for number in range(8)]
RULES = rules_of_labels(RESOURCES)
MISSING = MissingRule("watch", RESOURCES[3])
OTHER = MissingRule("patch", RESOURCES[5])
HOUR = 3600.0


class Rights:
    """An API server that says what may be done."""

    def __init__(self, *missing: MissingRule) -> None:
        self.missing = set(missing)
        self.asked: list[MissingRule] = []

    async def allowed(self, verb: str, resource: GroupResource, **_: Any) -> bool:
        self.asked.append(MissingRule(verb, resource))
        return self.asked[-1] not in self.missing


class Checked:
    """A check that is made again whenever it says that it is due."""

    def __init__(self, *missing: MissingRule) -> None:
        self.rights, self.clock = Rights(*missing), ManualClock()
        self.check = PermissionsCheck("example", cast(Api, self.rights), self.clock)
        self.pauses: list[float] = []

    async def until(self, moment: float, *, forbidden: bool = False, rules: tuple[MissingRule, ...] = RULES) -> None:
        while self.clock.monotonic() < moment:
            self.pauses.append(await self.check.check(rules, forbidden=forbidden))
            self.clock.jump(timedelta(seconds=self.pauses[-1]))


async def test_what_is_missing_for_hours_costs_hardly_more_than_what_is_granted() -> None:
    granted, denied = Checked(), Checked(MISSING)
    for each in (granted, denied):
        await each.until(HOUR)
        each.rights.asked.clear()
        await each.until(2 * HOUR)
    assert len(granted.rights.asked) <= (HOUR / GRANTED_SECONDS + 1) * len(RULES)
    assert len(denied.rights.asked) <= len(granted.rights.asked) + HOUR / GRANTED_SECONDS + len(RULES) + 1


async def test_only_what_is_missing_is_asked_for_again_soon() -> None:
    checked = Checked(MISSING)
    await checked.until(GRANTED_SECONDS)
    assert len(checked.rights.asked) > len(RULES)
    assert set(checked.rights.asked[len(RULES) :]) == {MISSING}
    assert max(checked.pauses) <= 2 * DENIED_SECONDS, "whoever reads of it in the status grants it within minutes"


async def test_a_right_that_comes_late_is_noticed_within_a_minute() -> None:
    checked = Checked(MISSING)
    await checked.until(HOUR)
    checked.rights.missing.clear()
    await checked.until(checked.clock.monotonic() + GRANTED_SECONDS)
    assert checked.check.denied == ()


async def test_more_that_is_taken_away_is_noticed_though_something_is_missing_already() -> None:
    checked = Checked(MISSING)
    await checked.until(HOUR)
    checked.rights.missing.add(OTHER)
    await checked.until(checked.clock.monotonic() + GRANTED_SECONDS + 1)
    assert set(checked.check.denied) == {MISSING, OTHER}


async def test_who_has_granted_one_right_may_be_granting_the_next() -> None:
    checked = Checked(MISSING, OTHER)
    await checked.until(HOUR)
    checked.rights.missing = {OTHER}
    await checked.until(checked.clock.monotonic() + GRANTED_SECONDS + 1)
    assert checked.check.denied == (OTHER,)
    checked.pauses.clear()
    await checked.until(checked.clock.monotonic() + DENIED_SECONDS)
    assert max(checked.pauses) <= 3 * DENIED_SECONDS


async def test_an_edited_ring_is_asked_for_at_once() -> None:
    checked = Checked(MISSING)
    await checked.until(HOUR)
    checked.rights.asked.clear()
    await checked.check.check(RULES[:-1], forbidden=False)
    assert checked.rights.asked == list(RULES[:-1])


async def test_a_watch_that_is_forbidden_has_everything_asked_for_soon() -> None:
    checked = Checked()
    await checked.until(HOUR)
    await checked.check.check(RULES, forbidden=False)
    checked.rights.missing.add(MISSING)
    checked.clock.jump(timedelta(seconds=2 * DENIED_SECONDS))
    await checked.check.check(RULES, forbidden=True)
    assert checked.check.denied == (MISSING,)


async def test_a_watch_that_is_forbidden_though_nothing_is_missing_has_it_asked_for_ever_less_often() -> None:
    checked = Checked()
    for moments in (HOUR, 2 * HOUR):
        checked.rights.asked.clear()
        while checked.clock.monotonic() < moments:
            await checked.check.check(RULES, forbidden=True)
            checked.clock.jump(timedelta(seconds=1))  # as often as the ring is reconciled
    assert len(checked.rights.asked) <= (HOUR / GRANTED_SECONDS + 1) * len(RULES)


async def test_a_watch_that_is_forbidden_has_everything_asked_for_though_something_is_missing_already() -> None:
    checked = Checked(MISSING)
    await checked.until(HOUR)
    await checked.check.check(RULES, forbidden=False)
    checked.rights.missing.add(OTHER)
    await checked.until(checked.clock.monotonic() + DENIED_SECONDS + 1, forbidden=True)
    assert set(checked.check.denied) == {MISSING, OTHER}
    checked.rights.asked.clear()
    await checked.until(checked.clock.monotonic() + GRANTED_SECONDS / 2, forbidden=True)
    assert set(checked.rights.asked) <= {MISSING, OTHER}, "it is asked for once"
