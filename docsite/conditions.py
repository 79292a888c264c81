"""Every condition of a ring and of a RingAssignment, with every reason: each made by the code that says it.

Does: have what is judged be as it takes for each reason in turn.  Refuses: to word a reason itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final

from sharder.core.conditions import ConditionReason, ConditionType
from sharder.core.owners import Overlap
from sharder.core.problems import Problem
from sharder.core.rangestatus import Loads, Moving, describe_overlaps, describe_unfit, render_range_status
from sharder.core.rights import MissingRule
from sharder.core.status import Health, NotInForce, Unsettled, conditions_of
from sharder.takeover.facts import name_taken
from shardsdk.protocol.labels import LEASE_RING_LABEL
from shardsdk.protocol.leases import Lease, LeaseSpec
from shardsdk.protocol.objects import LEASES, NAMESPACES, GroupResource, ObjectMeta
from shardsdk.protocol.ranges import SPACE, HashBy, HashRanges, Named

_NOW: Final = datetime(2026, 11, 21, 15, tzinfo=UTC)
_SECRETS: Final = GroupResource("", "secrets")
_WIDGETS: Final = GroupResource("example.com", "widgets")
_GOOD: Final = Health(generation=2, shards=2, available=2, unsettled=Unsettled())
_STUCK: Final = ("secrets default/a on shard shard-0",)
_LEASE: Final = "the Lease default/shard-1"


def _taken() -> str:
    ring: Any = SimpleNamespace(name="web", leases={("default", "shard-0"): None})
    metadata = ObjectMeta("shard-1", namespace="default", labels={LEASE_RING_LABEL: "other"})
    return name_taken(ring, "shard-1", [Lease(metadata, LeaseSpec(holder_identity="shard-1"))])


#: How a ring has to be for each reason, the most telling first: of a reason with several the first is printed.
RINGS: Final = (
    replace(
        _GOOD,
        available=0,
        missing=(_WIDGETS,),
        denied=(MissingRule("patch", _SECRETS),),
        ambiguous=("blue/shard-1", "green/shard-1"),
        mixed=frozenset({"shard-1"}),
        stuck_drains=_STUCK,
        unsettled=Unsettled(unassigned=3, draining=1),
    ),
    replace(
        _GOOD, unanswered=((_WIDGETS, "503: service unavailable"),), unusable=frozenset({"x" * 64}), unsettled=None
    ),
    replace(_GOOD, overlong=frozenset({"shard-1"}), taken=(_taken(),), leaving=((_SECRETS, 3),)),
    replace(_GOOD, overlapping=describe_overlaps([Overlap(0, SPACE // 2, ("shard-1", "shard-0"))], ())),
    replace(_GOOD, overlapping=describe_overlaps((), {"shard-1"})),
    replace(_GOOD, unfit=describe_unfit({"shard-1"}, ()), joining=((_SECRETS, 3),)),
    replace(_GOOD, unfit=describe_unfit((), {"shard-1"}), unsettled=None, waiting=(_WIDGETS,)),
    replace(_GOOD, as_main=((_SECRETS, ("shard-1",)),), unsettled=Unsettled(unassigned=1), refused=True),
    replace(_GOOD, not_reconciled=((_SECRETS, ("shard-1",)),)),
    replace(_GOOD, available=1, not_acquired=(f"{_LEASE} cannot be acquired to move what shard shard-1 has: 403",)),
    replace(_GOOD, available=1, abandoned=(_LEASE,)),
    replace(_GOOD, unread=((LEASES.group_resource, "429: too many requests"),)),
    replace(_GOOD, stuck_drains=_STUCK, stuck_unlisted=True, denied=(MissingRule("list", NAMESPACES.group_resource),)),
    replace(_GOOD, not_in_force=NotInForce(_NOW)),
    _GOOD,
    replace(_GOOD, problems=(Problem("spec.resources", "is empty", "list what the shards reconcile"),)),
)

_HALF: Final = SPACE // 2
_NAMED: Final = Named(
    HashBy.NAMESPACE, {"shard-0": HashRanges.of((0, _HALF)), "shard-1": HashRanges.of((_HALF, SPACE))}
)
_EVEN: Final = Loads({"shard-0": 5.0, "shard-1": 5.0}, ("team-a", 2.0), 9)
_UNEVEN: Final = Loads({"shard-0": 8.0, "shard-1": 2.0}, ("team-a", 2.0), 9)
#: The same of a RingAssignment: what is on its way, how much each shard has, and where the Leases are.
ASSIGNMENTS: Final[tuple[tuple[tuple[Moving, ...], Loads, tuple[str, ...]], ...]] = (
    ((Moving(0, _HALF, "shard-0", "shard-1", _NOW),), _UNEVEN, ("blue", "green")),
    ((Moving(0, SPACE, None, None, _NOW),), Loads({}), ()),
    ((), replace(_UNEVEN, namespaces=3), ()),
    ((), replace(_UNEVEN, largest=("team-a", 7.0)), ()),
    ((), _EVEN, ()),
)

_STATUSES: Final = ("False", "Unknown", "True")


def of_rings() -> dict[tuple[str, str, str], str]:
    """Type, status and reason -> a message of it; in the order in which they are told."""
    found: dict[tuple[str, str, str], str] = {}
    for health in RINGS:
        for each in conditions_of(health):
            status = "Unknown" if each.status is None else str(each.status)
            kind = "all but `Ready`" if each.reason is ConditionReason.RING_NOT_USED else f"`{each.type}`"
            found.setdefault((kind, status, each.reason), each.message)
    return _in_order(found, [f"`{each}`" for each in ConditionType])


def of_assignments() -> dict[tuple[str, str, str], str]:
    """The same of RingAssignments."""
    found: dict[tuple[str, str, str], str] = {}
    for moving, loads, homes in ASSIGNMENTS:
        for each in render_range_status(1, _NAMED, moving, loads, homes, {}, _NOW)["conditions"]:
            found.setdefault((f"`{each['type']}`", each["status"], each["reason"]), each["message"])
    return _in_order(found, list(dict.fromkeys(kind for kind, _, _ in found)))


def _in_order(found: dict[tuple[str, str, str], str], types: list[str]) -> dict[tuple[str, str, str], str]:
    rank = {kind: number for number, kind in enumerate(types)}
    order = sorted(found, key=lambda each: (rank.get(each[0], len(rank)), _STATUSES.index(each[1])))
    return {each: found[each] for each in order}


def render_rings() -> str:
    """Every reason of a ring's conditions."""
    return _table(of_rings())


def render_assignments() -> str:
    """Every reason of a RingAssignment's conditions."""
    return _table(of_assignments())


def reasons_without_example() -> set[ConditionReason]:
    """Those that no page tells of."""
    told: Iterable[tuple[str, str, str]] = (*of_rings(), *of_assignments())
    return {*ConditionReason}.difference(ConditionReason(reason) for _, _, reason in told)


def _table(rows: dict[tuple[str, str, str], str]) -> str:
    lines = ["| condition | status | reason | message, for example |", "|---|---|---|---|"]
    for (kind, status, reason), message in rows.items():
        escaped = message.replace("|", "\\|")
        lines.append(f"| {kind} | {status} | `{reason}` | {escaped} |")
    return "\n".join(lines)
