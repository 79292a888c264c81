"""What a ring waits for whose objects have labels."""

from __future__ import annotations

from sharder.core.ringspec import LetGo
from sharder.core.summary import RESYNC, OldestDrain, Pending, Summary
from sharder.placement.placement import Placement


def summarize(placement: Placement, now: float) -> Summary:
    """What the ring waits for."""
    resources, informers, resync = placement.scope.resources, placement.backlog.informers, placement.resync
    counts = {
        (kind, resources[number].subject.resource.group_resource): len(informer)
        for kind in Pending
        for number, informer in informers.of(kind)
    }
    failures = (
        *((each.subject.resource.group_resource, str(kind), error) for each, kind, error in informers.failures()),
        *((each.subject.resource.group_resource, RESYNC, error) for each, error in resync.failures.items()),
    )
    left = {each: resync.removed_left.get(each, -1) for each in resources.values() if each not in resync.removed_clean}
    leaving = {each.subject.resource.group_resource: number for each, number in left.items() if each.removed}
    joining = {each.subject.resource.group_resource: number for each, number in left.items() if each.was_main}
    settled = resync.settled and not joining
    at_rest = settled and not failures and not leaving and not placement.writer.refusals.pending
    return Summary(
        settled, counts, _oldest_drain(placement, now), failures, removed_clean(placement), leaving, at_rest,
        misplaced=not settled and resync.found_some,
        resynced=resync.ended,
        clean_since=resync.clean_since,
        refused=not settled and placement.writer.refusals.any_lately(now),
        joining=joining,
        watches_beside=informers.watches_beside,
        lost_positions=placement.backlog.lost_positions,
    )  # fmt: skip


def removed_clean(placement: Placement) -> frozenset[LetGo]:
    """What of the ring as it was no shard has any more, as `Summary.removed_clean` says it."""
    return frozenset(each.let_go for each in placement.resync.removed_clean)


def _oldest_drain(placement: Placement, now: float) -> OldestDrain | None:
    scope, backlog, membership = placement.scope, placement.backlog, placement.membership
    for key, since in backlog.drains_since.items():
        informer = backlog.informers.get(key.resource, Pending.DRAINING)
        obj = informer.get(key.namespace, key.name) if informer is not None else None
        if obj is None:
            continue
        resource, shard = scope.resources[key.resource], obj.metadata.label(scope.labels.shard) or ""
        if shard not in membership.available | membership.untouched:
            continue  # nobody is there to acknowledge it: it is moved, or released, as what is stranded
        name = resource.subject.resource.group_resource
        return OldestDrain(name, key.namespace, key.name, shard, now - since, resource.removed)
    return None
