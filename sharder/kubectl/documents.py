"""What commands found, as data for programs: plain values, then JSON or YAML.

Names are stable: fields are added, never renamed; what is not known is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from sharder.kubectl.check.findings import Finding, Level
from sharder.kubectl.cleanup.sweep import Swept
from sharder.kubectl.counting import Trouble
from sharder.kubectl.explain.explanation import Explanation
from sharder.kubectl.outcomes import Unread
from sharder.kubectl.shards import ShardStatus
from sharder.kubectl.status.overview import Balance, Overview, RangesView, ResourceCount, balance_of
from shardsdk.logs import escape_json
from shardsdk.protocol.objects import ObjectMeta, Resource

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def render_document(document: Any, form: str, *, compact: bool = False, ascii_only: bool = False) -> str:
    """`document` as `json` or `yaml`; `compact`: JSON on one line, one YAML document of several."""
    if form == "json":
        encoded = msgspec.json.encode(document)
        text = escape_json((encoded if compact else msgspec.json.format(encoded, indent=2)).decode())
        return (_NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text) if ascii_only else text) + "\n"
    from shardsdk.commands.rendering import render

    text = render([document], ascii_only=ascii_only)
    if not text.replace("\n", "").isprintable():
        text = render([document], ascii_only=True)
    return ("---\n" if compact else "") + text


def overviews_document(overviews: Iterable[Overview], unread: Iterable[Unread]) -> dict[str, Any]:
    """What `status` says."""
    return {
        "rings": [overview_document(overview) for overview in overviews],
        "unread": [unread_document(gap) for gap in unread],
    }


def overview_document(overview: Overview) -> dict[str, Any]:
    """One ring."""
    shard_statuses = overview.shard_statuses
    return {
        "name": overview.name,
        "ready": overview.ready,
        "settled": overview.settled,
        "upToDate": overview.up_to_date,
        "problems": list(overview.problems),
        "namespaces": overview.scope or None,
        "assignment": overview.assign_by.value if overview.assign_by is not None else None,
        "shardLabel": overview.shard_label,
        "ranges": _ranges(overview.ranges),
        "countedNamespace": overview.namespace,
        "shards": None
        if shard_statuses is None
        else [_shard(overview, shard_status) for shard_status in shard_statuses],
        "resources": [_resource(resource) for resource in overview.resources],
        **{trouble.value: overview.count(trouble) for trouble in Trouble},
        "balance": _balance(balance_of(overview)),
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in overview.conditions
        ],
        "unread": [unread_document(gap) for gap in overview.unread],
    }


def explanations_document(
    resource: Resource,
    meta: ObjectMeta,
    explanations: list[Explanation],
    strays: list[tuple[str, str]],
    unread: list[Unread],
) -> dict[str, Any]:
    """What `explain` says."""
    return {
        "object": {
            "group": resource.group,
            "resource": resource.plural,
            "kind": resource.kind,
            "namespace": meta.namespace,
            "name": meta.name,
        },
        "rings": [_explanation(each) for each in explanations],
        "strayLabels": [{"label": label, "ring": ring} for label, ring in strays],
        "unread": [unread_document(gap) for gap in unread],
    }


def _explanation(each: Explanation) -> dict[str, Any]:
    outcome = each.outcome
    return {
        "ring": each.ring,
        "role": each.role.value,
        "key": each.key,
        "shard": each.current,
        "shardState": each.shard_status or None,
        "draining": each.draining,
        "desiredShard": each.desired,
        "decision": outcome.decision.name if outcome is not None else None,
        "reason": outcome.reason.value if outcome is not None else None,
        "inPlace": each.in_place,
        "because": list(each.because),
        "then": each.then,
        "missing": list(each.missing),
    }


def findings_document(sections: Iterable[tuple[str | None, Sequence[Finding]]]) -> dict[str, Any]:
    """What `check` says; `ring` null: it is about all rings."""
    findings = [
        {
            "ring": ring,
            "topic": each.topic,
            "level": each.level.value,
            "message": each.message,
            "remedy": each.remedy,
        }
        for ring, found in sections
        for each in found
    ]
    counts = {level.value: sum(each["level"] == level.value for each in findings) for level in Level}
    return {"counts": counts, "findings": findings}


def cleanup_document(
    ring: str, applied: bool, swept: Sequence[Swept], unread: Sequence[str], running: Sequence[str] | None
) -> dict[str, Any]:
    """What `cleanup` did, or would; `running` None: which shards run could not be read."""
    return {
        "ring": ring,
        "dryRun": not applied,
        "shardsRunning": None if running is None else list(running),
        "groupsUnread": list(unread),
        "resources": [
            {
                "group": each.resource.group,
                "resource": each.resource.plural,
                "found": each.found,
                "removed": each.removed,
                "gone": each.gone,
                "refused": each.refused,
                "messages": each.messages,
                "examples": each.examples,
                "unread": each.unread,
            }
            for each in swept
            if each.found or each.unread
        ],
    }


def unread_document(gap: Unread) -> dict[str, str]:
    """Something that could not be read."""
    return {"what": gap.what, "why": gap.why, "remedy": gap.remedy}


def _shard(overview: Overview, shard_status: ShardStatus) -> dict[str, Any]:
    counted = [each for each in overview.resources if each.counted]
    return {
        "name": shard_status.name,
        "namespace": shard_status.namespace,
        "state": shard_status.state.value,
        "available": shard_status.available,
        "judgedBySharder": shard_status.judged,
        "left": overview.has_left(shard_status),
        "holder": shard_status.holder,
        "leaseDurationSeconds": shard_status.duration_seconds,
        "renewedSecondsAgo": shard_status.renewed_seconds,
        "heldSeconds": shard_status.held_seconds,
        "transitions": shard_status.transitions,
        "fenced": shard_status.fenced,
        "objects": {str(each.resource): each.by_shard.get(shard_status.name, 0) for each in counted},
        "draining": {str(each.resource): each.draining.get(shard_status.name, 0) for each in counted},
    }


def _resource(each: ResourceCount) -> dict[str, Any]:
    return {
        "group": each.resource.group,
        "resource": each.resource.resource,
        "role": each.role.value,
        "removed": each.removed,
        "retired": each.removed,  # what it was called before
        "counted": each.counted,
        "objects": each.total if each.counted else None,
        "byShard": dict(sorted(each.by_shard.items())),
        "draining": sum(each.draining.values()) if each.counted else None,
        "unassigned": each.unassigned,
        "stranded": each.stranded,
        "misplaced": each.misplaced,
        "leaving": each.leaving,
        "examples": {trouble.value: list(names) for trouble, names in each.examples.items()},
    }


def _ranges(ranges: RangesView | None) -> dict[str, Any] | None:
    if ranges is None:
        return None
    return {"hashBy": ranges.hash_by, "byShard": dict(ranges.by_shard), "moving": ranges.moving}


def _balance(balance: Balance | None) -> dict[str, Any] | None:
    if balance is None:
        return None
    return {
        "fullest": balance.fullest,
        "fullestOfMean": round(balance.fullest_share, 4),
        "emptiest": balance.emptiest,
        "emptiestOfMean": round(balance.emptiest_share, 4),
    }
