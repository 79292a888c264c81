"""What happens in one run: drawn from the seed before anything runs, and nothing else decides it.

Does: draw settings and a list of actions.  Refuses: to look at the world; an
action that does not fit it when its time comes (nobody is there to be killed)
is left out by the world.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from tests.simulation.scaling import draw_scaled
from tests.simulation.scenarios import Scenario
from tests.simulation.vocabulary import FAMILY, PLAIN, Timings

#: Timings of all leases; the sharder's other durations keep their proportion.
#: The third is Kubernetes' default; the others are renewed five times in their duration, not seven and a half times,
#: since most of what a run costs are renewals.
TIMINGS: Final = (Timings(4.0, 2.6, 0.8), Timings(6.0, 4.0, 1.2), Timings(15.0, 10.0, 2.0))
#: A lease that is shorter than the leader's, renewed in the same proportion: outages are judged by that.
BRIEF: Final = Timings(6.0, 4.0, 0.8)

#: What may happen, and how often in relation to the others.
WEIGHTS: Final = {
    "crash_shard": 5,
    "lose_node": 2,
    "pause_shard": 5,
    "stop_shard": 4,
    "add_shard": 3,
    "second_process": 1,
    "crash_leader": 3,
    "pause_leader": 3,
    "stop_leader": 2,
    "crash_replica": 1,
    "crash_leader_in_takeover": 3,
    "pause_leader_in_takeover": 2,
    "restart_in_takeover": 4,
    "outage": 3,
    "trouble_shard": 4,
    "trouble_leader": 3,
    "cut_shard": 2,
    "cut_leader": 2,
    "break_watches": 3,
    "stall_watch": 2,
    "compact": 1,
    "webhook_down": 2,
    "create_work": 5,
    "create_plain": 3,
    "touch_work": 8,
    "delete_work": 2,
    "recreate_work": 2,
    "delete_piece": 3,
    "remove_label": 3,
    "remove_both_labels": 2,
    "remove_piece_label": 1,
    "drain_by_hand": 1,
    "delete_lease": 1,
    "empty_lease": 1,
    "toggle_namespace": 1,
    "shrink_work": 2,
    "adopt_piece": 2,
    "stray_piece": 1,
    "replace_object": 2,
    "spoil_piece": 1,
    "spoil_work": 1,
    "upset_index": 1,
    "hang_writes": 1,
    "deny_writes": 1,
    "fail_resource": 1,
    "relabel_by_hand": 2,
    "stop_shards_machine": 2,
    "stop_leaders_machine": 1,
}

#: What happens once in so many of the runs in which the API server may be troubled; drawn apart from the others, and
#: each from what those before it have left, so that a new one comes last.
RARE: Final = {
    "restore_etcd": 0.12, "stop_shard_in_renewal": 0.3, "stop_leader_in_renewal": 0.2, "force_away": 0.3,
    "crash_loop": 0.25, "stop_busy_shard": 0.35, "refuse_leases": 0.2,
    "crash_owing": 0.3, "empty_beside_namesake": 0.3, "name_the_gone": 0.2,
    "crash_owing_elsewhere": 0.2, "restore_leases": 0.3, "undo_labels": 0.3, "refuse_in_namespace": 0.3,
    "end_in_transit": 0.3, "refuse_dry_runs": 0.2,
}  # fmt: skip

#: What hinders every ring at once, and does not happen in runs that leave a ring alone.
TROUBLES_OF_ALL: Final = (
    "crash_leader", "pause_leader", "stop_leader", "crash_leader_in_takeover", "pause_leader_in_takeover", "outage",
    "trouble_leader", "cut_leader", "stop_leaders_machine",
)  # fmt: skip

#: Scenarios that chance may choose.  Tests play every one; which seeds show a planted bug depends on this list.
BY_CHANCE: Final = (Scenario.STALE_RETURN, Scenario.RING_CHANGES, Scenario.SHORT_OUTAGES)
#: Of the other runs so many begin with one of these; drawn apart, too.
BESIDES: Final = (Scenario.TWO_CRASHES, Scenario.CHILD_LISTS, Scenario.RING_EDITS)
BESIDES_SHARE: Final = 0.1
#: In how many runs shards ask for leases of different durations, and the webhook's answers come late.
MIXED_SHARE: Final = 0.2
LATE_SHARE: Final = 0.2
#: How many runs begin with a scenario, and how many lease durations it may take.
SCENARIO_SHARE: Final = 0.25
SCENARIO_LEASES: Final = 10.0


class Broken(Enum):
    """What is not mended in the end; everybody whom it does not concern gets on all the same."""

    SHARD = "a shard renews its lease, and none of its reconciles ends any more"
    REPLICA = "a replica of the sharder is cut off from the API server"
    WEBHOOK = "the webhook's Service swallows what is sent to it"
    OBJECT = "nobody can write one child"


#: How many runs end with something broken.
BROKEN_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True)
class Action:
    """Something that happens at a moment; `seed` draws its details (who, how long)."""

    at: float
    what: str
    seed: int

    def __str__(self) -> str:
        return f"{self.at:8.2f} {self.what}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run; `shards` per ring, `foreign` of the first ring's follow only the wire contract.

    `timings` are the sharder's and, but for `shard_timings`, everybody's.
    `scenario` is played first, the random `actions` come from `actions_from` on.
    Nothing troubles the processes of the rings in `quiet`, the leader or the API server then.
    """

    seed: int
    timings: Timings
    shard_timings: Timings
    shards: int
    plain_shards: int
    foreign: int
    replicas: int
    works: int
    plains: int
    select_namespaces: bool
    webhook: bool
    scenario: Scenario | None
    actions_from: float
    actions: tuple[Action, ...]
    ends_at: float
    # What comes later has a default, so that plans that are kept stay plans.
    quiet: frozenset[str] = frozenset()
    #: Maxima of the product that are scaled down, see scaling.
    scaled: tuple[tuple[str, int], ...] = ()
    #: What stays broken when everything else is mended.
    broken: Broken | None = None
    #: Whether both rings assign by ranges of hashes, and whether the API server filters by them.
    ranges: bool = False
    filters_shards: bool = False
    #: Whether shards of rings by ranges have their leases in several namespaces; those of others always have.
    spread: bool = False
    #: Whether two of them may have one name; only if they are spread.
    twins: bool = False
    #: Whether the leases of some shards are shorter than `shard_timings`.
    mixed: bool = False
    #: Whether some of the webhook's answers come seconds late.
    late_webhook: bool = False


def draw_plan(seed: int, focus: Mapping[str, float] | None = None, scenario: Scenario | None = None) -> Plan:
    """The run of a seed; `focus` has some actions happen that much more often, `scenario` is played in any case."""
    rng = Random(f"plan/{seed}")
    timings = shard_timings = rng.choices(TIMINGS, weights=(5, 4, 1))[0]
    actions: list[Action] = []
    # Random actions begin when the cluster stands, or when the scenario is over.
    chosen = Random(f"scenario/{seed}")
    if scenario is None and chosen.random() < SCENARIO_SHARE:
        scenario = chosen.choice(BY_CHANCE)
    besides = Random(f"scenario/besides/{seed}")
    if scenario is None and focus is None and besides.random() < BESIDES_SHARE:
        scenario = besides.choice(BESIDES)
    if scenario is Scenario.SHORT_OUTAGES:
        timings, shard_timings = TIMINGS[2], BRIEF
    begins = moment = (2.5 if scenario is None else 2.5 + SCENARIO_LEASES) * timings.lease
    length = begins + 15.5 * timings.lease
    pace = rng.choice((0.1, 0.2, 0.4)) * timings.lease
    # Each run has its own mix: some dwell on crashes, some on users, some on the network.
    weights = {what: weight * rng.choice((0.0, 0.5, 1.0, 1.0, 3.0)) for what, weight in WEIGHTS.items()}
    weights |= focus or {}
    quiet = _draw_quiet(seed) if scenario is None and focus is None else frozenset()
    if quiet:
        weights |= dict.fromkeys(TROUBLES_OF_ALL, 0.0)
    while moment < length and len(actions) < 120:
        what = rng.choices(list(weights), weights=list(weights.values()))[0]
        actions.append(Action(moment, what, rng.getrandbits(32)))
        # Things happen in bursts, with time to settle in between.
        moment += rng.expovariate(1 / pace) if rng.random() < 0.9 else rng.uniform(1, 4) * timings.lease
    if focus is None and not quiet:
        actions = sorted([*actions, *draw_rare(seed, begins, length)], key=lambda action: action.at)
    return Plan(
        seed=seed,
        timings=timings,
        shard_timings=shard_timings,
        shards=rng.randint(2, 4),
        plain_shards=rng.randint(1, 2),
        foreign=rng.choice((0, 0, 1)),
        replicas=rng.randint(1, 3),
        works=rng.randint(4, 10),
        plains=rng.randint(2, 6),
        select_namespaces=rng.random() < 0.3,
        webhook=rng.random() < 0.85,
        scenario=scenario,
        quiet=quiet,
        scaled=draw_scaled(seed) if scenario is None and focus is None else (),
        broken=_draw_broken(seed) if scenario is None and focus is None else None,
        mixed=draw_mixed(seed) if scenario is None and focus is None else False,
        late_webhook=scenario is None and focus is None and Random(f"late/{seed}").random() < LATE_SHARE,
        actions_from=begins,
        actions=tuple(actions),
        ends_at=length,
    )


def _draw_broken(seed: int) -> Broken | None:
    rng = Random(f"broken/{seed}")
    return rng.choice(list(Broken)) if rng.random() < BROKEN_SHARE else None


def draw_mixed(seed: int) -> bool:
    """Whether leases differ; not where a scenario counts on how long they last."""
    return Random(f"mixed/{seed}").random() < MIXED_SHARE


def draw_rare(seed: int, begins: float, ends: float) -> list[Action]:
    """What is seldom, and not in most runs."""
    rng = Random(f"rare/{seed}")
    return [
        Action(rng.uniform(begins, ends), what, rng.getrandbits(32)) for what, share in RARE.items()
        if rng.random() < share
    ]  # fmt: skip


def _draw_quiet(seed: int) -> frozenset[str]:
    """The rings that nothing troubles in this run, if any."""
    rings = ((), (), (FAMILY.ring,), (PLAIN.ring,), (FAMILY.ring, PLAIN.ring))
    return frozenset(Random(f"quiet/{seed}").choice(rings))
