"""What happens in a run whose rings assign by ranges: drawn from the seed, as any plan is.

People either edit RingAssignments and what leases hold, or delete and empty leases,
or neither: each half of the protocol is to hold without the other, and none is
promised to who breaks both at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.scenarios import Scenario
from tests.simulation.schedule import (
    BROKEN_SHARE,
    RARE,
    SCENARIO_LEASES,
    WEIGHTS,
    Action,
    Broken,
    Plan,
    draw_mixed,
    draw_plan,
    draw_rare,
)

#: What people do to assignments.
EDITS: Final = {"delete_assignment": 3, "spoil_assignment": 2, "name_anybody": 3, "claim_ranges": 2}
#: What they do to leases.
TEARS: Final = {"delete_lease": 2, "empty_lease": 2}
#: And what is seldom that does so, too.
_RARE_TEARS: Final = frozenset({"empty_beside_namesake", "restore_leases"})
#: What they do to rings: it breaks neither half.
COVERS: Final = {"cover_others": 1}
#: What happens besides, and how often in a run of mean length; drawn apart from all else.
BESIDES: Final = {"stall_leases": 1, "share_amid_errors": 1, "name_unheard": 1, "cover_by_labels": 1}
#: How many of the runs in which nobody edits assignments have shards in several namespaces.
SPREAD_SHARE: Final = 0.4
#: How many of these have two of one name, and how often one comes there.
TWINS_SHARE: Final = 0.5
TWINS: Final = {"add_twin": 4, "lose_twin": 1}
#: What may stay broken: there is no webhook.
BREAKABLE: Final = tuple(each for each in Broken if each is not Broken.WEBHOOK)
#: What concerns labels alone (of objects, of namespaces that a ring selects by), webhooks, or children of whom labels
#: tell; and what is drawn by itself.
_BY_LABELS: Final = frozenset({
    "remove_label", "remove_both_labels", "remove_piece_label", "drain_by_hand", "relabel_by_hand", "webhook_down",
    "adopt_piece", "stray_piece", "toggle_namespace", "delete_lease", "empty_lease", "name_the_gone",
    "undo_labels", "refuse_dry_runs",
})  # fmt: skip


def draw_ranges_plan(
    seed: int, focus: Mapping[str, float] | None = None, scenario: Scenario | None = None, broken: Broken | None = None
) -> Plan:
    """The run of a seed; `focus` has some actions happen that much more often, the others are in it in any case."""
    rng = Random(f"ranges/{seed}")
    # Settings as in any run; what is scaled is about labels.
    plan = draw_plan(seed, {}, scenario)
    wanted = [each for each in (EDITS, TEARS) if focus is not None and not each.keys().isdisjoint(focus)]
    twins = focus is not None and not TWINS.keys().isdisjoint(focus)
    by_hand = rng.choice(wanted or ((TEARS, {}) if twins else (EDITS, TEARS, {})))
    weights = {
        what: weight * rng.choice((0.0, 0.5, 1.0, 1.0, 3.0))
        for what, weight in (WEIGHTS | COVERS | by_hand).items()
        if what not in _BY_LABELS or what in by_hand
    }
    weights |= focus or {}
    lease = plan.timings.lease
    chance = focus is None and scenario is None and broken is None
    scenario = plan.scenario if chance or scenario is not None else None
    begins = moment = (2.5 if scenario is None else 2.5 + SCENARIO_LEASES) * lease
    pace = rng.choice((0.1, 0.2, 0.4)) * lease
    ends_at, actions = begins + 15.5 * lease, list[Action]()
    while moment < ends_at and len(actions) < 120:
        what = rng.choices(list(weights), weights=list(weights.values()))[0]
        actions.append(Action(moment, what, rng.getrandbits(32)))
        moment += rng.expovariate(1 / pace) if rng.random() < 0.9 else rng.uniform(1, 4) * lease
    spread = twins
    if chance:
        # Shards see what others hold in their own namespace alone: without that look nothing helps against edits.
        spread = by_hand is not EDITS and Random(f"ranges/spread/{seed}").random() < SPREAD_SHARE
        edits = by_hand is not TEARS and not spread
        twins = spread and Random(f"ranges/twins/{seed}").random() < TWINS_SHARE
        kept = RARE.keys() - _BY_LABELS - (frozenset() if by_hand is TEARS else _RARE_TEARS)
        more = [each for each in draw_rare(seed, begins, ends_at) if each.what in kept]
        more += _draw_besides(seed, begins, ends_at, edits=edits)
        more += _draw_twins(seed, begins, ends_at) if twins else ()
        actions = sorted([*actions, *more], key=lambda action: action.at)
    return replace(
        plan, shard_timings=plan.timings if scenario is None else plan.shard_timings, scenario=scenario, foreign=0,
        actions=tuple(actions), actions_from=begins, ends_at=ends_at, ranges=True,
        filters_shards=rng.random() < 0.5, select_namespaces=False,
        broken=_draw_broken(seed) if chance else broken, spread=spread, twins=twins,
        mixed=chance and scenario is None and draw_mixed(seed),
    )  # fmt: skip


def _draw_besides(seed: int, begins: float, ends: float, *, edits: bool) -> list[Action]:
    rng = Random(f"ranges/besides/{seed}")
    return [
        Action(rng.uniform(begins, ends), what, rng.getrandbits(32))
        for what, number in BESIDES.items() for _ in range(rng.randint(0, 2 * number))
        if edits or what != "name_unheard"
    ]  # fmt: skip


def _draw_twins(seed: int, begins: float, ends: float) -> list[Action]:
    rng = Random(f"ranges/twins/actions/{seed}")
    return [
        Action(rng.uniform(begins, ends), what, rng.getrandbits(32))
        for what, number in TWINS.items() for _ in range(rng.randint(1, 2 * number))
    ]  # fmt: skip


def _draw_broken(seed: int) -> Broken | None:
    rng = Random(f"ranges/broken/{seed}")
    return rng.choice(BREAKABLE) if rng.random() < BROKEN_SHARE else None
