"""Audit logs: what an API server writes down of requests, as a policy has it.

An API server writes one JSON object a line, at each stage of a request that the policy leaves in; a file of its own for
each API server, which goes on when that is started again.  `RequestReceived` is written before anything is done, so
that of a request which changed something there is a line also when the API server was killed amid it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

#: An API server begins another file after so many; one is enough for whatever is run here.
_MOST_MEBIBYTES: Final = 1 << 20
#: Each event begins so: one that was cut off by SIGKILL has no end, and the next begins on its line.
_BEGIN: Final = '{"kind":"Event"'


def audit_flags(folder: Path, server: str, policy: Mapping[str, Any]) -> list[str]:
    """Flags of the API server called `server`, with its policy written into `folder`.

    `policy` is the body of an audit.k8s.io/v1 Policy.
    """
    path = folder / f"{server}-audit-policy.json"
    path.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **policy}))
    return [
        f"--audit-policy-file={path}",
        f"--audit-log-path={audit_log(folder, server)}",
        f"--audit-log-maxsize={_MOST_MEBIBYTES}",
    ]


def audit_log(folder: Path, server: str) -> Path:
    """Where that API server writes its audit log; there is no such file before the first request that it notes."""
    return folder / f"{server}-audit.jsonl"


def read_audit_log(path: Path) -> Iterator[dict[str, Any]]:
    """The events of an audit log, in the order in which they were written; what was cut off is left out."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            yield from _events(line)


def _events(line: str) -> Iterator[dict[str, Any]]:
    try:
        yield json.loads(line)
    except ValueError:
        torn = line.rfind(_BEGIN)
        if torn > 0:
            yield from _events(line[torn:])
