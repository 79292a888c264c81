"""Conditions as a status has them, of a ring and of a RingAssignment.

Does: name every reason that one may have, and note since when it holds.
Refuses: to touch `lastTransitionTime` while a condition's status stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

#: Longest message of a condition; the API allows 32,768, people read less.
MAX_MESSAGE_LENGTH: Final = 1024


class ConditionType(StrEnum):
    """Conditions in the order in which they are written."""

    READY = "Ready"
    RESOURCES_SERVED = "ResourcesServed"
    PERMISSIONS_GRANTED = "PermissionsGranted"
    SHARDS_AVAILABLE = "ShardsAvailable"
    SHARD_NAMES_UNIQUE = "ShardNamesUnique"
    SHARDS_FIT = "ShardsFit"
    DRAINS_ACKNOWLEDGED = "DrainsAcknowledged"
    SETTLED = "Settled"


class ConditionReason(StrEnum):
    """Why a condition is as it is, in one word for programs: all that there are."""

    RING_NOT_USED = "RingNotUsed"
    RECONCILIATION_SUCCEEDED = "ReconciliationSucceeded"
    RECONCILIATION_FAILED = "ReconciliationFailed"
    SERVED = "Served"
    NOT_SERVED = "NotServed"
    NOT_ANSWERED = "NotAnswered"
    GRANTED = "Granted"
    FORBIDDEN = "Forbidden"
    AVAILABLE = "Available"
    NO_SHARD = "NoShard"
    NOT_TAKEN_OVER = "NotTakenOver"
    NOBODY_READY = "NobodyReady"
    UNIQUE = "Unique"
    AMBIGUOUS = "Ambiguous"
    NOT_A_LABEL_VALUE = "NotALabelValue"
    TAKEN_ELSEWHERE = "TakenElsewhere"
    FIT = "Fit"
    LIBRARIES_MIXED = "LibrariesMixed"
    LEASE_TOO_LONG = "LeaseTooLong"
    LABELS_ONLY = "LabelsOnly"
    NOTHING_TAKEN = "NothingTaken"
    RANGES_OVERLAP = "RangesOverlap"
    RANGES_UNREADABLE = "RangesUnreadable"
    CONTROLLED_AS_MAIN = "ControlledAsMain"
    NOT_RECONCILED = "NotReconciled"
    ACKNOWLEDGED = "Acknowledged"
    OVERDUE = "Overdue"
    NOBODY_WATCHES = "NobodyWatches"
    IN_PLACE = "InPlace"
    MOVING = "Moving"
    REFUSED = "Refused"
    LEAVING = "Leaving"
    JOINING = "Joining"
    WAITS_FOR_RIGHTS = "WaitsForRights"
    CANNOT_BE_READ = "CannotBeRead"
    NOT_YET_KNOWN = "NotYetKnown"
    EVEN = "Even"
    NOTHING_TO_SHARE = "NothingToShare"
    FEW_NAMESPACES = "FewNamespaces"
    LARGE_NAMESPACE = "LargeNamespace"
    UNEVEN = "Uneven"
    ONE_NAMESPACE = "OneNamespace"
    MANY_NAMESPACES = "ManyNamespaces"


@dataclass(frozen=True, slots=True)
class Stamped:
    """A condition of any object without its bookkeeping. `status` None is Unknown."""

    type: str
    status: bool | None
    reason: ConditionReason
    message: str


class Condition(msgspec.Struct, frozen=True):
    """The same of a ring."""

    type: ConditionType
    status: bool | None
    reason: ConditionReason
    message: str


def stamp(
    conditions: Iterable[Condition | Stamped], previous: Mapping[str, Any] | None, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """Conditions as a status has them: each with since when it holds, those of others after ours."""
    before = {str(known.get("type")): known for known in conditions_in(previous)}
    ours = [_stamp(each, before.get(str(each.type)), generation, now) for each in conditions]
    types = {each["type"] for each in ours}
    return ours + [dict(known) for name, known in before.items() if name not in types]


def changed_conditions(previous: Mapping[str, Any] | None, status: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The conditions of `status` whose status or reason is another than in `previous`; worth an Event."""
    before = {known.get("type"): (known.get("status"), known.get("reason")) for known in conditions_in(previous)}
    return tuple(
        dict(each)
        for each in conditions_in(status)
        if before.get(each.get("type")) != (each.get("status"), each.get("reason"))
    )


def conditions_in(status: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """Those that a status has; what is no condition is passed over."""
    found = (status or {}).get("conditions") or ()
    return [each for each in found if isinstance(each, Mapping)]


def _stamp(
    condition: Condition | Stamped, before: Mapping[str, Any] | None, generation: int, now: datetime
) -> dict[str, Any]:
    status = "Unknown" if condition.status is None else str(condition.status)
    stays = before is not None and before.get("status") == status and before.get("lastTransitionTime")
    return {
        "type": str(condition.type),
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": stays or render_time(now),
        "reason": str(condition.reason),
        "message": condition.message[:MAX_MESSAGE_LENGTH],
    }


def render_time(moment: datetime) -> str:
    """As the API writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
