"""What is drawn: leases that differ and late answers of the webhook, where nothing counts on the opposite."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.ranges.drawing import EDITS, draw_ranges_plan
from tests.simulation.scenarios import Scenario
from tests.simulation.schedule import TIMINGS, draw_plan
from tests.simulation.shards import shortest_timings, timings_of
from tests.simulation.vocabulary import Timings


def test_leases_differ_and_the_webhook_is_late_in_some_runs_and_in_none_that_begins_with_a_scenario() -> None:
    plans = [draw_plan(seed) for seed in range(200)]
    assert 10 < sum(plan.mixed for plan in plans) < 60
    assert 10 < sum(plan.late_webhook for plan in plans) < 60
    assert not any(plan.mixed or plan.late_webhook for plan in plans if plan.scenario is not None)
    assert not any(draw_plan(seed, scenario=Scenario.SHORT_OUTAGES).mixed for seed in range(50))
    ranges = [draw_ranges_plan(seed) for seed in range(200)]
    assert 10 < sum(plan.mixed for plan in ranges) < 60
    assert not any(plan.late_webhook for plan in ranges), "there is no webhook"
    assert not any(plan.mixed for plan in ranges if plan.scenario is not None)


@pytest.mark.parametrize("timings", TIMINGS)
def test_where_leases_differ_each_shard_has_its_own_which_is_renewed_in_the_same_proportion(timings: Timings) -> None:
    plan = replace(draw_plan(1), shard_timings=timings, mixed=True)
    drawn = {name: timings_of(plan, name) for name in (f"fam-{number}" for number in range(20))}
    assert len({each.lease for each in drawn.values()}) > 1
    for name, each in drawn.items():
        assert each == timings_of(plan, name)
        assert each.lease == int(each.lease)
        assert 3 <= shortest_timings(plan).lease <= each.lease <= plan.shard_timings.lease
        assert each.renew / each.lease == pytest.approx(plan.shard_timings.renew / plan.shard_timings.lease)
    alike = replace(plan, mixed=False)
    assert timings_of(alike, "fam-0") is shortest_timings(alike) is plan.shard_timings


def test_leases_are_emptied_beside_a_namesake_only_where_nobody_edits_assignments() -> None:
    plans = [draw_ranges_plan(seed) for seed in range(200)]
    drawn = [whats for plan in plans if "empty_beside_namesake" in (whats := {each.what for each in plan.actions})]
    assert drawn
    assert not any(each & EDITS.keys() for each in drawn)
