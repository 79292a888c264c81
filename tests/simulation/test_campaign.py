"""Runs that go on, plans as files, and how a plan that fails is made short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.campaign import Campaign, code_now, forget, go_on
from tests.simulation.plans import load_plan, save_plan
from tests.simulation.running import Outcome
from tests.simulation.scenarios import Scenario
from tests.simulation.schedule import Action, Plan, draw_plan
from tests.simulation.shrinking import Shrinking
from tests.simulation.vocabulary import Stats, Violation


def ended(plan: Plan, *rules: str, at: float = 1e6) -> Outcome:
    return Outcome(plan, tuple(Violation(rule, at, "it is so") for rule in rules), Stats(), (), 1.0)


def test_a_run_goes_on_with_its_own_seeds_and_code_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    campaign = Campaign(code_now(), None, first=7)
    campaign.add(ended(draw_plan(7)), 1.0)
    campaign.add(ended(draw_plan(8), "two owners"), 1.0)
    campaign.save(tmp_path)
    assert go_on(tmp_path, None, 7) == go_on(tmp_path, None, None) == campaign
    assert go_on(tmp_path, None, 8) is None
    assert go_on(tmp_path, "NO_FENCE", 7) is None
    (tmp_path / "sharder").mkdir()
    (tmp_path / "sharder" / "new.py").write_text("")
    assert go_on(tmp_path, None, 7) is None
    forget(tmp_path)
    assert go_on(tmp_path, None, 7) is None


def test_a_run_says_which_rules_broke_and_what_it_never_reached() -> None:
    campaign = Campaign("", None, first=7, marks={"decision KEEP": 0, "decision DRAIN": 0})
    stats = Stats(marks={"decision DRAIN": 3})
    campaign.add(replace(ended(draw_plan(7), "two owners"), stats=stats), 1.0)
    assert "broken: two owners: seeds 7" in campaign.told()
    assert "reached: decision DRAIN 3\nnever reached: decision KEEP" in campaign.told()


def test_a_plan_is_the_same_after_its_file(tmp_path: Path) -> None:
    for seed, scenario in ((1, None), (2, Scenario.RING_EDITS)):
        plan = draw_plan(seed, None, scenario)
        save_plan(plan, tmp_path / "folder" / "plan.json")
        assert load_plan(tmp_path / "folder" / "plan.json") == plan


def test_what_fails_shrinks_to_the_actions_and_settings_that_it_takes() -> None:
    plan = draw_plan(3, None, Scenario.STALE_RETURN)
    first, second = plan.actions[3], plan.actions[-2]

    def play(plans: Iterable[Plan]) -> Iterator[Outcome]:
        for each in plans:
            fails = {first, second} <= set(each.actions) and each.replicas >= 1 and each.shards >= 2
            yield ended(each, "two owners") if fails else ended(each, "settles")

    failed = ended(replace(plan, shards=4), "settles", "two owners")
    failed = replace(failed, violations=failed.violations[1:])
    short = Shrinking(failed, play).run()
    assert short.plan.actions == (first, second)
    assert (short.plan.shards, short.plan.foreign, short.plan.works, short.plan.scenario) == (2, 0, 0, None)
    assert short.rule == "two owners", "another broken rule is not the same"


def test_what_happened_after_the_rule_was_broken_is_left_out_first() -> None:
    plan = replace(draw_plan(3), actions=tuple(Action(float(at), "crash_shard", at) for at in range(100)))
    tried: list[Plan] = []

    def play(plans: Iterable[Plan]) -> Iterator[Outcome]:
        for each in plans:
            tried.append(each)
            yield ended(each, "two owners", at=10.5)

    Shrinking(ended(plan, "two owners", at=10.5), play, max_runs=1).run()
    assert [len(each.actions) for each in tried] == [11]
