"""Audit logs are read as API servers leave them, also those that were killed."""

from __future__ import annotations

import json
from pathlib import Path

from localcluster.audit import audit_flags, audit_log, read_audit_log


def event(number: int) -> str:
    body = {"kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": str(number), "verb": "get"}
    return json.dumps(body, separators=(",", ":"))


def test_each_api_server_has_a_policy_and_a_log_of_its_own(tmp_path: Path) -> None:
    policy = {"rules": [{"level": "Metadata"}]}
    one, two = (dict(flag.split("=") for flag in audit_flags(tmp_path, name, policy)) for name in ("one", "two"))
    assert one["--audit-log-path"] == str(audit_log(tmp_path, "one")) != two["--audit-log-path"]
    written = json.loads(Path(one["--audit-policy-file"]).read_text())
    assert written == {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **policy}


def test_what_was_cut_off_takes_nothing_along(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert list(read_audit_log(log)) == [], "nothing has been asked for yet"
    log.write_text(f"{event(1)}\n{event(2)[:-9]}{event(3)}\n{event(4)}\n{event(5)[:30]}")
    assert [each["auditID"] for each in read_audit_log(log)] == ["1", "3", "4"]
