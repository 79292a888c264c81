"""What API servers say of who wrote: their audit logs, of all writes to the objects, children and leases of a run.

A line is written before a request is executed, and another one with its answer.  A caller is known by its account, a
shard by its user agent, since all of them have one account.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from localcluster.audit import read_audit_log
from tests.chaos.history import ASSIGNMENTS, CHILDREN, LEASES, OWNERS, RINGS, At, Request, Writer


def audit_policy(namespaces: Iterable[str]) -> dict[str, Any]:
    """What API servers are to write down of a run whose objects and leases are in these."""
    return {
        "omitStages": ["ResponseStarted"],
        "omitManagedFields": True,
        "rules": [
            {
                # Of the answers the resourceVersions are needed.
                "level": "RequestResponse",
                "verbs": ["create", "update", "patch", "delete", "deletecollection"],
                # The empty one: of what has none.
                "namespaces": ["", *namespaces],
                "resources": [
                    {"group": "", "resources": [OWNERS, CHILDREN]},
                    {"group": "coordination.k8s.io", "resources": [LEASES]},
                    {
                        "group": "sharding.timebertt.dev",
                        "resources": [RINGS, f"{RINGS}/status", ASSIGNMENTS, f"{ASSIGNMENTS}/status"],
                    },
                ],
            },
            {"level": "None"},
        ],
    }


_USER: Final = "admin"
_SHARDERS: Final = "system:serviceaccount:sharding-system:"
_SHARDS: Final = "system:serviceaccount:default:checksum"
_SHARD: Final = re.compile(r"^shardsdk/\S+ \(ring \S+; shard (\S+)\)$")
#: Shards of the version before this one say no more than that.
_PREVIOUS: Final = re.compile(r"^controller-sharding/\S+$")


def read_requests(logs: Iterable[Path], restores: Sequence[float]) -> list[Request]:
    """All writes of these logs; `restores`: when the store became another one, in Unix seconds."""
    events: dict[str, dict[str, Any]] = {}
    for log in logs:
        for event in read_audit_log(log):
            # The last stage is the one that knows most.
            events[event["auditID"]] = event
    return [_request(event, restores) for event in events.values()]


def writer_of(account: str, agent: str) -> Writer:
    """Who acts under this name and introduces itself so."""
    if account == _USER:
        return Writer("user")
    if account.startswith(_SHARDERS):
        return Writer("sharder")
    if account == _SHARDS and (named := _SHARD.match(agent)):
        return Writer("shard", named[1])
    if account == _SHARDS and _PREVIOUS.match(agent):
        return Writer("shard")
    return Writer("unknown", f"{account} by {agent!r}")


def _request(event: dict[str, Any], restores: Sequence[float]) -> Request:
    target, ended = event["objectRef"], event["stage"] == "ResponseComplete"
    code = int(event["responseStatus"].get("code", 0)) if ended else None
    metadata = (event.get("responseObject") or {}).get("metadata") or {}
    at: At | None = None
    if code is not None and 200 <= code < 300 and "resourceVersion" in metadata:
        received = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        at = (bisect_right(restores, received), int(metadata["resourceVersion"]))
    return Request(
        event["auditID"],
        writer_of(event["user"]["username"], event.get("userAgent", "")),
        event["verb"],
        target["resource"],
        target.get("name") or metadata.get("name", ""),
        code,
        at,
    )
