"""Each alert fires when it should and stays silent when it should, as promtool computes it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.prometheus import find

ALERTS = Path("charts/sharder/files/alerts.yaml")
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
}
#: Two replicas, as a ServiceMonitor labels them.
LEADER = 'job="sharder",instance="a:8080"'
STANDBY = 'job="sharder",instance="b:8080"'
REPLICAS = {
    f"controller_sharding_build_info{{{LEADER}}}": "1x1000",
    f"controller_sharding_build_info{{{STANDBY}}}": "1x1000",
}
SECRETS = 'ringName="r",group="",resource="secrets"'
FAIL_OPEN = 'apiserver_admission_webhook_fail_open_count{name="sharder.sharding.timebertt.dev",type="admit"}'


@dataclass(frozen=True, slots=True)
class Case:
    """Series (one sample a minute), the minute at which to look, and what fires; `value` as a message shows it."""

    alert: str
    why: str
    series: Mapping[str, str]
    minute: int
    labels: Mapping[str, str] | None = None
    value: str = ""


def leaders(leader: str, standby: str) -> dict[str, str]:
    """Who leads: every replica says so from its start, also one that has never led (tests/unit/sharder)."""
    name = 'name="sharder"'
    return REPLICAS | {
        f"leader_election_master_status{{{name},{LEADER}}}": leader,
        f"leader_election_master_status{{{name},{STANDBY}}}": standby,
    }


def gauges(metric: str, labels: str, leader: str, standby: str = "0x1000") -> dict[str, str]:
    before = f"{labels}," if labels else ""
    return {f"{metric}{{{before}{LEADER}}}": leader, f"{metric}{{{before}{STANDBY}}}": standby}


def condition(kind: str, values: str) -> dict[str, str]:
    return {f'controller_sharding_ring_condition{{type="{kind}",ringName="r",{LEADER}}}': values}


def requests(outcome: str, values: str) -> dict[str, str]:
    return {f'controller_sharding_webhook_requests_total{{ringName="r",outcome="{outcome}",{LEADER}}}': values}


def shards(lead: str = "1x1000", /, **states: str) -> dict[str, str]:
    found = leaders(lead, "0x1000")
    for state in ("ready", "expired", "uncertain", "dead", "orphaned"):
        labels = f'ringName="r",state="{state}"'
        found |= gauges("controller_sharding_shards", labels, states.get(state, "0x1000"))
    return found


def clusters(**series: Mapping[str, str]) -> dict[str, str]:
    """What one Prometheus has of several: pods may have the same addresses there."""
    return {
        name.replace('job="sharder"', f'cluster="{cluster}",job="sharder"'): values
        for cluster, each in series.items()
        for name, values in each.items()
    }


UNASSIGNED, STRANDED = "controller_sharding_unassigned_objects", "controller_sharding_stranded_objects"
SUSPENDED = "controller_sharding_crash_detection_suspended"
UNHELD = "controller_sharding_unheld_ranges"
OVERLAPPING = "controller_sharding_overlapping_ranges"
OTHERS = "controller_sharding_other_leaders"
DRAIN = "controller_sharding_oldest_drain_age_seconds"
EXPIRY = f"controller_sharding_webhook_certificate_expiry_timestamp_seconds{{{LEADER}}}"
RING = {"ringName": "r"}
LEADS, NOBODY = leaders("1x30", "0x30"), leaders("0x30", "0x30")
B = {"cluster": "b"}
OBJECTS = {"ringName": "r", "resource": "secrets"}

CASES = [
    Case("SharderDown", "nothing is scraped", {}, 6, {}),
    Case("SharderDown", "not yet", {}, 4),
    Case("SharderDown", "one replica is", dict(list(REPLICAS.items())[:1]), 10),
    Case("SharderNoLeader", "no replica leads", leaders("0x10", "0x10"), 4, {}),
    Case("SharderNoLeader", "one leads", leaders("1x10", "0x10"), 4),
    Case("SharderNoLeader", "the lead has passed over", leaders("1 1 1 0x10", "0 0 0 1x10"), 8),
    Case("SharderNoLeader", "a short gap", leaders("1 1 1 0 0x10", "0 0 0 0 1x10"), 4),
    Case(
        "SharderNoLeader",
        "another program's leader election",
        leaders("1x10", "0x10") | {'leader_election_master_status{name="other",job="other",instance="c:1"}': "0x10"},
        6,
    ),
    Case("SharderTwoLeaders", "two are scraped", leaders("1x10", "1x10"), 4, {}),
    Case("SharderTwoLeaders", "a leader tells of another", leaders("1x10", "0x10") | gauges(OTHERS, "", "1x10"), 4, {}),
    Case("SharderTwoLeaders", "one leads", leaders("1x10", "0x10") | gauges(OTHERS, "", "0x10"), 10),
    Case("SharderTwoLeaders", "both say so while the lead passes over", leaders("1 1 1 0x10", "0 0 1 1x10"), 8),
    Case("SharderRingNotReady", "for long enough", condition("Ready", "0x10"), 6, RING),
    Case("SharderRingNotReady", "ready again", condition("Ready", "0 0 1x10"), 8),
    Case("SharderRingNotReady", "not settled is no matter", condition("Settled", "0x10"), 8),
    Case("SharderNoAvailableShard", "all are dead", shards(dead="2x10"), 6, RING),
    Case("SharderNoAvailableShard", "one is uncertain", shards(dead="2x10", uncertain="1x10"), 6),
    Case("SharderNoAvailableShard", "nobody leads, so nobody counts", shards("1 0x20", ready="3 0x20"), 12),
    Case("SharderNoAvailableShard", "nobody has ever led", shards("0x20"), 12),
    Case("SharderObjectsUnassigned", "for long", gauges(UNASSIGNED, SECRETS, "3x10"), 6, OBJECTS, "3"),
    Case("SharderObjectsUnassigned", "placed soon", gauges(UNASSIGNED, SECRETS, "3 3 0x10"), 8),
    Case("SharderObjectsStranded", "for long", gauges(STRANDED, SECRETS, "5x10"), 6, OBJECTS, "5"),
    Case("SharderObjectsStranded", "moved soon", gauges(STRANDED, SECRETS, "5 5 0x10"), 8),
    Case("SharderRangesUnheld", "for long", gauges(UNHELD, 'ringName="r"', "2x10"), 6, RING, "2"),
    Case("SharderRangesUnheld", "taken soon", gauges(UNHELD, 'ringName="r"', "2 2 0x10"), 8),
    Case("SharderRangesOverlap", "for long", gauges(OVERLAPPING, 'ringName="r"', "1x5"), 2, RING, "1"),
    Case("SharderRangesOverlap", "for a moment", gauges(OVERLAPPING, 'ringName="r"', "1 0x5"), 2),
    Case("SharderDrainStuck", "too old", gauges(DRAIN, 'ringName="r"', "301x5"), 1, RING, "5m 1s"),
    Case("SharderDrainStuck", "not yet", gauges(DRAIN, 'ringName="r"', "300x5"), 1),
    *(
        Case("SharderShardsUnfit", f"{kind} for long", condition(kind, "0x10"), 6, RING | {"type": kind})
        for kind in ("ShardsFit", "ShardNamesUnique")
    ),
    Case("SharderShardsUnfit", "for a moment", condition("ShardsFit", "0 0 1x10"), 8),
    Case("SharderShardsUnfit", "no drain is late", condition("DrainsAcknowledged", "0x10"), 8),
    Case("SharderCrashDetectionSuspended", "for long", gauges(SUSPENDED, 'ringName="r"', "1x5"), 2, RING),
    Case("SharderCrashDetectionSuspended", "for a moment", gauges(SUSPENDED, 'ringName="r"', "1 0x5"), 2),
    Case("SharderShardNotTakenOver", "for long", shards(ready="1x10", uncertain="2x10"), 6, RING, "2"),
    Case("SharderShardNotTakenOver", "taken over soon", shards(ready="1x10", uncertain="1 1 0x10"), 8),
    Case("SharderShardNotTakenOver", "whoever led before counts no more", shards("1 0x20", uncertain="1 0x20"), 12),
    Case("SharderWebhookMalfunction", "requests fail", requests("failed", "0+6x30"), 20, RING | {"outcome": "failed"}),
    Case("SharderWebhookMalfunction", "once", requests("failed", "0 1x30"), 20),
    Case("SharderWebhookMalfunction", "all is well", requests("assigned", "0+6x30"), 20),
    Case("SharderWebhookFailing", "not reached", {FAIL_OPEN: "0+1x30"}, 20, {"name": "sharder.sharding.timebertt.dev"}),
    Case("SharderWebhookFailing", "once", {FAIL_OPEN: "0 1x30"}, 20),
    Case("SharderWebhookFailing", "somebody else's", {FAIL_OPEN.replace("sharder.", "other."): "0+1x30"}, 20),
    Case("SharderCertificateExpiring", "soon", {EXPIRY: "600000x100"}, 62, {}, "6d 21h 38m 0s"),
    Case("SharderCertificateExpiring", "in a month", {EXPIRY: "2592000x100"}, 62),
    Case("SharderCertificateExpiring", "renewed", {EXPIRY: "600000x20 7000000x100"}, 90),
    Case("SharderCertificateExpiring", "none yet", {EXPIRY: "0x100"}, 62),
    Case("SharderDown", "in one of two clusters", clusters(a=REPLICAS, b=dict.fromkeys(REPLICAS, "1x5")), 17, B),
    Case("SharderNoLeader", "in one of two clusters", clusters(a=LEADS, b=NOBODY), 4, B),
    Case("SharderTwoLeaders", "one in each of two clusters", clusters(a=LEADS, b=LEADS), 10),
    *(
        Case(alert, "in one of two clusters", clusters(a=condition(kind, "1x10"), b=condition(kind, "0x10")), 6, labels)
        for alert, kind, labels in (
            ("SharderRingNotReady", "Ready", RING | B),
            ("SharderShardsUnfit", "ShardsFit", RING | B | {"type": "ShardsFit"}),
        )
    ),
    Case(
        "SharderNoAvailableShard", "in one of two clusters", clusters(a=shards(ready="1x10"), b=shards(dead="1x10")), 6,
        RING | B,
    ),
]  # fmt: skip


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", str(ALERTS))


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    fired = {case.alert for case in CASES if case.labels is not None}
    silent = {case.alert for case in CASES if case.labels is None}
    assert fired == silent == RULES.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.why}")
def test_alert(case: Case, tmp_path: Path) -> None:
    expected = [] if case.labels is None else [expect(case, case.labels)]
    test = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": [{"eval_time": f"{case.minute}m", "alertname": case.alert, "exp_alerts": expected}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS.resolve())], "evaluation_interval": "1m", "tests": [test]})
    )

    promtool("test", "rules", str(file))


def expect(case: Case, labels: Mapping[str, str]) -> dict[str, Any]:
    rule = RULES[case.alert]

    def fill(text: str) -> str:
        text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels.get(found[1], ""), text)
        return re.sub(r"\{\{ \$value[^}]*\}\}", case.value, text)

    return {
        "exp_labels": {**rule["labels"], **labels},
        "exp_annotations": {name: fill(text) for name, text in rule["annotations"].items()},
    }


def promtool(*arguments: str) -> None:
    done = subprocess.run([find("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
