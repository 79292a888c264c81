"""From a plan that breaks a rule to a short one that breaks the same rule.

Does: leave out actions and lessen settings as long as the same rule is broken
(delta debugging, after Zeller and Hildebrandt 2002).  Refuses: to take another
broken rule for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.simulation.running import Outcome
from tests.simulation.schedule import Action, Plan

#: Runs that shrinking one plan may take.
MAX_RUNS: Final = 400
#: After the last action, in lease durations.
_REST_LEASES: Final = 1.0

#: Plays some plans and gives their outcomes in their order, as far as they are asked for.
Play = Callable[[Iterable[Plan]], Iterator[Outcome]]


class Shrinking:
    """The search for one short plan; `best` is the shortest so far."""

    def __init__(self, failed: Outcome, play: Play, max_runs: int = MAX_RUNS) -> None:
        self.best = failed
        self._rule = failed.rule
        self._play = play
        self._left = max_runs

    def run(self) -> Outcome:
        """Shrink until nothing can be left out, or the runs are used up."""
        self._cut_end()
        before: Plan | None = None
        while before != self.best.plan and self._left > 0:
            before = self.best.plan
            self._leave_out_actions()
            self._lessen_settings()
        return self.best

    def _cut_end(self) -> None:
        """What came after the rule was broken is of no account."""
        plan, broken_at = self.best.plan, self.best.violations[0].at
        actions = tuple(action for action in plan.actions if action.at <= broken_at)
        self._try([replace(plan, actions=actions)])

    def _leave_out_actions(self) -> None:
        parts = 2
        while self._left > 0 and (actions := self.best.plan.actions):
            parts = min(parts, len(actions))
            if self._try(replace(self.best.plan, actions=rest) for rest in _without_each(actions, parts)):
                parts = max(parts - 1, 2)
            elif parts >= len(actions):
                return
            else:
                parts *= 2

    def _lessen_settings(self) -> None:
        while self._left > 0 and self._try(_lesser(self.best.plan)):
            pass

    def _try(self, plans: Iterable[Plan]) -> bool:
        """Whether one of these breaks the rule as well; the first that does is the best now."""
        candidates = [plan for plan in plans if plan != self.best.plan][: self._left]
        for outcome in self._play(candidates):
            self._left -= 1
            if any(violation.rule == self._rule for violation in outcome.violations):
                self.best = outcome
                return True
        return False


def _without_each(actions: Sequence[Action], parts: int) -> Iterator[tuple[Action, ...]]:
    """The actions without each of so many parts of them."""
    size = -(-len(actions) // parts)
    for start in range(0, len(actions), size):
        yield (*actions[:start], *actions[start + size :])


def _lesser(plan: Plan) -> Iterator[Plan]:
    """Plans that ask for less of one thing."""
    if plan.scenario is not None:
        yield replace(plan, scenario=None)
    for name, least in (
        ("replicas", 1),
        ("foreign", 0),
        ("plain_shards", 1),
        ("shards", 1),
        ("plains", 0),
        ("works", 0),
    ):
        number: int = getattr(plan, name)
        for lesser in dict.fromkeys((least, number // 2, number - 1)):
            if least <= lesser < number:
                changed: dict[str, Any] = {name: lesser}
                yield replace(plan, **changed)
    for setting in ("select_namespaces", "filters_shards", "mixed", "late_webhook"):
        if getattr(plan, setting):
            without: dict[str, Any] = {setting: False}
            yield replace(plan, **without)
    last = max((action.at for action in plan.actions), default=plan.actions_from)
    ends_at = last + _REST_LEASES * plan.timings.lease
    if ends_at < plan.ends_at:
        yield replace(plan, ends_at=ends_at)
