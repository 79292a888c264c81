"""From what the leader knows of a ring to its status, and back from a status to what it remembers.

Does: sum up, and say which news can wait.  Refuses: to write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharder.backlog.informers import Kind
from sharder.cache.rings import RingEntry
from sharder.core.status import ConditionType, Health, MissingRule, Unsettled
from sharder.rings.summary import Summary


def health_of(
    entry: RingEntry,
    summary: Summary,
    failure: str | None,
    denied: tuple[MissingRule, ...],
    drain_alarm_seconds: float,
) -> Health:
    """What a ring's conditions are made from."""
    counts = Unsettled(
        unassigned=summary.count(Kind.UNASSIGNED),
        stranded=summary.count(Kind.STRANDED),
        draining=summary.count(Kind.DRAINING),
    )
    oldest = summary.oldest_drain
    stuck = oldest is not None and oldest.seconds >= drain_alarm_seconds
    assert entry.obj is not None
    return Health(
        generation=entry.obj.metadata.generation,
        problems=entry.invalid.problems if entry.invalid is not None else (),
        failure=failure,
        shards=len(entry.leases),
        available=len(entry.membership.available),
        ambiguous=entry.membership.ambiguous,
        unusable=entry.membership.unusable,
        unsteady=entry.membership.unsteady,
        missing=entry.unserved,
        unanswered=entry.unanswered,
        denied=denied,
        unsettled=counts if counts or summary.settled else None,
        stuck_drains=(f"{oldest.resource} {oldest.namespace}/{oldest.name} on shard {oldest.shard}",)
        if oldest is not None and stuck
        else (),
        stuck_unlisted=oldest is not None and stuck and oldest.retired,
        leaving=tuple(sorted(summary.leaving.items())),
    )


def was(status: Mapping[str, Any], condition: str, value: str) -> bool:
    """Whether a condition had the status `value`."""
    conditions = status.get("conditions")
    return any(
        isinstance(each, Mapping) and each.get("type") == condition and each.get("status") == value
        for each in (conditions if isinstance(conditions, list) else ())
    )


def only_settling(before: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """That a ring is settled no longer is told at once; all other news about that can wait a moment."""
    return condition["type"] == ConditionType.SETTLED and not was(before, ConditionType.SETTLED, "True")


def worth_a_look(summary: Summary, alarm_seconds: float) -> tuple[Any, ...]:
    """What of a summary makes the status worth a look when it changes."""
    oldest = summary.oldest_drain
    stuck = (oldest.namespace, oldest.name) if oldest is not None and oldest.seconds >= alarm_seconds else None
    failures = tuple((resource, kind, type(error)) for resource, kind, error in summary.failures)
    return summary.settled, summary.counts, stuck, failures, summary.retired_clean, summary.leaving
