"""Faults planted into the product, to prove that the simulation finds them.

Each replaces one method by a wrong one, for the time of one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import Any, cast
from unittest.mock import patch

from msgspec.structs import replace

from sharder.backlog.scope import RingScope
from sharder.core import proven_time as proof
from sharder.core.decisions import Target
from sharder.core.membership import Membership
from sharder.core.ranges import granted, next_named
from sharder.core.shards import LeaseFacts, Proof, ShardState, classify
from sharder.placement.children import Family
from sharder.placement.handover import Handovers
from sharder.ranges import assignment
from sharder.ranges.assignment import RangeAssignment
from sharder.takeover import controller as leases
from sharder.takeover.controller import TakeoverController
from sharder.takeover.fences import CommitProof, ShardHold, join
from shardsdk.kube.fencing import Guard
from shardsdk.lease.claim import Others
from shardsdk.lease.hold import Hold
from shardsdk.lease.keeper import Keeper
from shardsdk.lease.shardlease import ShardLease
from shardsdk.lease.tenure import Tenure
from shardsdk.process import manager
from shardsdk.process.assigning import identify
from shardsdk.process.manager import Manager
from shardsdk.process.process import ExitCode
from shardsdk.protocol.labels import SHARDER_HOLDER
from shardsdk.protocol.leases import Lease
from shardsdk.protocol.ranges import NOWHERE, HashBy, HashRanges, Named, named_by
from shardsdk.ranges import holder, look
from shardsdk.ranges.holder import RangeHolder
from shardsdk.ranges.parts import Part, Parts
from shardsdk.reconcile.barrier import Barrier
from shardsdk.reconcile.inflight import InFlight
from shardsdk.reconcile.spec import Work
from tests.simulation.scenarios import Scenario
from tests.simulation.schedule import Broken


class Bug(Enum):
    """A planted fault; the value says what is wrong then."""

    ACKNOWLEDGE_EARLY = "a drain is acknowledged before the reconcile has ended"
    TAKE_OVER_UNPROVEN = "time counts against leases although nobody could renew them"
    OUTAGES_BY_ONE_MEASURE = "an outage that is short for a long lease counts against a short one, too"
    TAKE_OVER_UNFENCED_EARLY = "a shard without fence is given one lease duration, not two"
    MOVE_WITHOUT_HOLD = "objects are taken from a shard whose lease the sharder does not hold"
    CHILDREN_LAST = "children are patched after their owner"
    CHILDREN_LEAVE_FIRST = "children of a resource that leaves the ring are let go while a shard works on their owner"
    TRUST_FOUND_HOLD = "a lease found in the sharder's name counts as held after a failover"
    WARM_CACHES = "a shard reconciles what its caches held before it had its lease"
    NO_FENCE = "a shard writes although its lease has run out"
    NO_BARRIER = "a shard reconciles an owner before it knows its children"
    PAST_WHOM_IT_IS_DRAINED_FOR = "what is drained for a shard goes past it, for that is silent or has just crashed"
    RANGES_WITHOUT_LOOK = "a shard takes the ranges that it is named for, whoever holds them"
    RANGES_BEFORE_LOOK = "a shard works on ranges while it looks whether anybody else holds them"
    RANGES_LEAVE_EARLY = "a range is taken off the lease before what runs there has ended"
    RANGES_CUT_ANEW = "a leader that has just taken over cuts the space as if nobody had anything"
    RANGES_AFTER_A_RESTORE = "a shard whose lease is what it was in a backup goes on with the ranges that it has"
    RANGES_ALL_AT_ONCE = "no range is granted before every shard has let go of what it is to give away"
    RANGES_NEVER_LEFT = "a range that is given up stays on the lease"
    RANGES_OF_A_NAMESAKE = "a process waits half as long as another of its name may be working on their ranges"
    RANGES_OF_A_TWIN = "a shard takes what names its name, in whichever namespace that was named"
    RANGES_AFTER_A_STOP = "a hold is as long as ever although the machine was found to have stood still"


async def _hold_warm(shard: Manager, world: manager.World, lease: ShardLease, work: Work) -> ExitCode:
    async with world.connect(lease) as api:
        lease.settle_first(api.writes_settled)
        workload = shard._make_sharded(world, lease, api, work, identify(lease, None, work))
        running = [asyncio.ensure_future(cache.run()) for cache in workload._caches]
        for cache in workload._caches:
            cache.run = asyncio.Event().wait  # type: ignore[method-assign, assignment]
        try:
            async with lease:
                shard._workload = workload
                await workload.run(shard.stopping, shard._grace_seconds)
        finally:
            for task in running:
                task.cancel()
        return ExitCode.OK


def _busy(inflight: InFlight, request: Any) -> bool:
    return False


def _of(counted: CommitProof, duration_seconds: float) -> Proof:
    return Proof(0.0, counted.clock.monotonic())


def _tolerated_gap(duration_seconds: float, retry_seconds: float) -> float:
    return proof.MOST_PERIODS * retry_seconds


def _classify(facts: LeaseFacts, *others: Any) -> ShardState:
    return classify(replace(facts, fenced=True), *others)


def _hold(controller: TakeoverController, shard: str) -> Any:
    return join(shard, (ShardHold(shard, controller._clock, float("inf")),))


async def _renew(controller: TakeoverController, shard: str) -> bool:
    return True


async def _put_off(mover: Handovers, family: Family) -> bool:
    late = _LATE.setdefault(family.meta.uid, {})
    late.update({(child, meta.namespace, meta.name): meta for child, meta in family.children or []})
    return True


async def _owner_first(mover: Handovers, family: Family, right: Callable[..., Any] = Handovers._patch_owner) -> None:
    await right(mover, family)
    for (child, _, _), meta in _LATE.pop(family.meta.uid, {}).items():
        if family.target is None or not await mover._move_child(family, child, meta, family.target):
            return


#: Children that wait for their owner to go first.
_LATE: dict[str, dict[tuple[Any, str, str], Any]] = {}


def _announce(controller: TakeoverController, key: Any, record: Any, right: Any = TakeoverController._announce) -> None:
    snapshot = controller._snapshot()
    seen = snapshot.leases.get(key) if snapshot is not None else None
    if seen is not None and seen.lease.holder == SHARDER_HOLDER and not record.held:
        record.held, record.hold_length = True, float(seen.lease.spec.lease_duration_seconds or 15)
        record.hold.until = controller._clock.monotonic() + record.hold_length
        record.progress_at = controller._clock.monotonic()
    right(controller, key, record)


def _remaining(guard: Guard) -> float:
    return max(guard._until - guard._clock.monotonic(), 0.0)


def _passes(barrier: Barrier, owner: Any, uid: str) -> bool:
    return True


def _may_drain_to(membership: Membership, shard: str) -> bool:
    return shard in membership.ready


def _now(target: Target, membership: Membership) -> str:
    doubtful = membership.silent | membership.unsteady
    others = sorted(membership.available - doubtful)
    return others[0] if target.name in doubtful and others else target.name


def _free_for(shard: str, named: Any, *others: Any) -> HashRanges:
    return NOWHERE if named is None else cast("HashRanges", named.of(shard))


def _working(parts: Parts) -> HashRanges:
    return parts.of(Part.WORKING) | parts.of(Part.FLAGGED) | parts.of(Part.LOOKING)


async def _end_at_once(holder: RangeHolder, ranges: HashRanges) -> None:
    holder._follow(holder._parts.ended(ranges))


def _sees_nothing(keeper: Keeper, lease: Any) -> None:
    return None


async def _never_end(holder: RangeHolder, ranges: HashRanges) -> None:
    return None


def _see_half(others: Others, lease: Lease, relation: Any, now: float, right: Any = Others.saw) -> None:
    before = others.until
    right(others, lease, relation, now)
    if others.until > max(before, now):
        others.until = now + (others.until - now) / 2


def _named_by_name(assignment: Mapping[str, Any], by: HashBy, reader: object = None) -> Named:
    return named_by(assignment, by)


def _unshortened(hold: Hold) -> float:
    return float("-inf") if hold.closed else hold.ends_at - hold._clock.monotonic()


def _never_hurry(tenure: Tenure) -> None:
    return None


def _next_at_once(named: Named, wanted: Named, held: Any) -> Named:
    following = next_named(named, wanted, held)
    whole = HashRanges.union(following.shards.values()) == HashRanges.union(wanted.shards.values())
    return (
        following
        if whole or not granted(named, following)
        else Named(named.by, {shard: ranges & named.of(shard) for shard, ranges in following.shards.items()})
    )


def _aim_anew(assignment: RangeAssignment, named: Named, wanted: Any, right: Any = RangeAssignment._aim) -> Any:
    return right(assignment, named if assignment.state is not None else Named(named.by, {}), wanted)


_WRONG: dict[Bug, tuple[tuple[Any, str, Any], ...]] = {
    Bug.ACKNOWLEDGE_EARLY: ((InFlight, "busy", _busy),),
    Bug.TAKE_OVER_UNPROVEN: ((CommitProof, "of", _of),),
    Bug.OUTAGES_BY_ONE_MEASURE: ((proof, "tolerated_gap", _tolerated_gap),),
    Bug.TAKE_OVER_UNFENCED_EARLY: ((leases, "classify", _classify),),
    Bug.MOVE_WITHOUT_HOLD: ((TakeoverController, "fence_for", _hold), (TakeoverController, "renew", _renew)),
    Bug.CHILDREN_LAST: ((Handovers, "_patch_children", _put_off), (Handovers, "_patch_owner", _owner_first)),
    Bug.CHILDREN_LEAVE_FIRST: ((RingScope, "owners_leave", False),),
    Bug.TRUST_FOUND_HOLD: ((TakeoverController, "_announce", _announce),),
    Bug.WARM_CACHES: ((Manager, "_hold", _hold_warm),),
    Bug.NO_FENCE: ((Guard, "remaining", _remaining),),
    Bug.NO_BARRIER: ((Barrier, "passes", _passes),),
    Bug.PAST_WHOM_IT_IS_DRAINED_FOR: ((Membership, "may_drain_to", _may_drain_to), (Target, "now", _now)),
    Bug.RANGES_WITHOUT_LOOK: ((look, "free_for", _free_for),),
    Bug.RANGES_BEFORE_LOOK: ((Parts, "working", property(_working)),),
    Bug.RANGES_LEAVE_EARLY: ((RangeHolder, "_end", _end_at_once),),
    Bug.RANGES_CUT_ANEW: ((RangeAssignment, "_aim", _aim_anew),),
    Bug.RANGES_AFTER_A_RESTORE: (
        (Keeper, "_look_for_restore", _sees_nothing),
        (Keeper, "_see_whether_taken", _sees_nothing),
    ),
    Bug.RANGES_ALL_AT_ONCE: ((assignment, "next_named", _next_at_once),),
    Bug.RANGES_NEVER_LEFT: ((RangeHolder, "_end", _never_end),),
    Bug.RANGES_OF_A_NAMESAKE: ((Others, "saw", _see_half),),
    Bug.RANGES_OF_A_TWIN: ((holder, "named_by", _named_by_name), (look, "named_by", _named_by_name)),
    Bug.RANGES_AFTER_A_STOP: ((Hold, "remaining", _unshortened), (Tenure, "_hurry", _never_hurry)),
}


#: What is wrong in rings by ranges alone.
OF_RANGES: frozenset[Bug] = frozenset(bug for bug in Bug if bug.name.startswith("RANGES_"))

#: Where each shows best; weights of actions, next to those of any run.
FOCUS: dict[Bug, dict[str, float]] = {
    Bug.TAKE_OVER_UNPROVEN: {"outage": 15.0, "cut_leader": 5.0},
    Bug.TAKE_OVER_UNFENCED_EARLY: {"crash_shard": 20.0, "pause_shard": 20.0},
    Bug.MOVE_WITHOUT_HOLD: {"delete_lease": 10.0, "empty_lease": 10.0, "stop_shard": 10.0},
    Bug.TRUST_FOUND_HOLD: {"crash_leader_in_takeover": 20.0, "crash_shard": 20.0, "stop_shard": 20.0},
    Bug.PAST_WHOM_IT_IS_DRAINED_FOR: {"crash_shard": 20.0, "lose_node": 10.0, "webhook_down": 5.0, "remove_label": 5.0},
    Bug.NO_FENCE: {"pause_shard": 40.0, "touch_work": 40.0},
    Bug.RANGES_WITHOUT_LOOK: {"name_anybody": 20.0},
    Bug.RANGES_BEFORE_LOOK: {"name_anybody": 60.0, "touch_work": 40.0},
    Bug.RANGES_LEAVE_EARLY: {"add_shard": 10.0, "touch_work": 20.0},
    Bug.RANGES_AFTER_A_RESTORE: {"restore_etcd": 10.0, "add_shard": 10.0, "touch_work": 40.0},
    Bug.RANGES_CUT_ANEW: {"stop_leader": 10.0, "crash_leader": 10.0},
    Bug.RANGES_OF_A_NAMESAKE: {"force_away": 10.0},
    Bug.RANGES_OF_A_TWIN: {"add_twin": 10.0},
    Bug.RANGES_AFTER_A_STOP: {"stop_shard_in_renewal": 40.0, "touch_work": 40.0},
}

#: What stays broken in the end where that is what shows them.
BROKEN: dict[Bug, Broken] = {Bug.RANGES_ALL_AT_ONCE: Broken.SHARD}

#: Scenarios that bring about what chance is too rarely in the place for.
SCENARIOS: dict[Bug, Scenario] = {
    Bug.CHILDREN_LAST: Scenario.RING_CHANGES,
    Bug.CHILDREN_LEAVE_FIRST: Scenario.RING_EDITS,
    Bug.WARM_CACHES: Scenario.STALE_RETURN,
    Bug.OUTAGES_BY_ONE_MEASURE: Scenario.SHORT_OUTAGES,
}


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """Have the product behave wrongly within this context."""
    with ExitStack() as stack:
        for owner, name, wrong in _WRONG[bug] if bug is not None else ():
            stack.enter_context(patch.object(owner, name, wrong))
        yield
