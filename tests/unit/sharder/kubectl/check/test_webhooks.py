"""What `check` says of webhook configurations, certificates and the way to the sharder."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest

from sharder.core.webhookconfig import render_webhook
from sharder.kubectl.check.findings import Finding, Level
from sharder.kubectl.check.webhooks import (
    Probe,
    Probed,
    ServiceEvidence,
    WebhookEvidence,
    called_host,
    check_webhook,
    part_in_force,
)
from shardsdk.serving.certificate_spec import ServingNames
from shardsdk.serving.x509 import Issued, issue, make_authority
from shardsdk.serving.x509_certificate import Certificate, parse_bundle
from tests.unit.sharder.kubectl.rings import NOW, resolved_ring

SERVICE = {"namespace": "sharding-system", "name": "sharder", "port": 443}
HOST = "sharder.sharding-system.svc"
ANSWERED = Probe(Probed.ANSWERED, "secrets default/a")
UNTRIED = Probe(Probed.NOT_TRIED, "it takes the right to patch secrets")
DAY = timedelta(days=1)


def authority(days: float = 365, begins: timedelta = timedelta()) -> Issued:
    return make_authority(NOW + begins, timedelta(days=days))


def serving(signer: Issued, days: float = 90, host: str = HOST) -> tuple[Certificate, ...]:
    return parse_bundle(issue(signer, ServingNames.of([host]), NOW, timedelta(days=days)).certificate.pem)


SIGNER = authority()


def configuration(bundle: bytes | None = SIGNER.certificate.pem, **client: Any) -> dict[str, Any]:
    return render_webhook(resolved_ring(), client_config=client or {"service": SERVICE}, ca_bundle=bundle)


def amiss(**changes: Any) -> list[Finding]:
    facts: dict[str, Any] = {
        "ring": resolved_ring(),
        "read": True,
        "configuration": configuration(),
        "service": ServiceEvidence("sharding-system/sharder", True, True, 2),
        "serving": serving(SIGNER),
        "probe": ANSWERED,
    }
    return [each for each in check_webhook(WebhookEvidence(**facts | changes), NOW) if each.level is not Level.OK]


def only(findings: list[Finding]) -> Finding:
    [finding] = findings
    return finding


def test_a_webhook_in_order() -> None:
    assert amiss() == []
    assert amiss(probe=UNTRIED) == []
    assert amiss(configuration=configuration(url="https://" + HOST), service=None) == []


def test_no_configuration_is_a_warning_because_it_can_be_meant() -> None:
    finding = only(amiss(configuration=None))
    assert (finding.level, "webhook.enabled" in finding.remedy) == (Level.WARNING, True)


def test_the_go_sharders_configuration_is_a_problem() -> None:
    finding = only(amiss(other="sharding-clusterring-96fa8f22-checksum"))
    assert (finding.level, "sharding-clusterring-96fa8f22-checksum" in finding.message) == (Level.PROBLEM, True)
    assert "stop the Go sharder" in finding.remedy


def test_a_configuration_without_webhooks_is_a_problem() -> None:
    assert only(amiss(configuration={"webhooks": []})).message == "clusterring-checksum has no webhooks"


@pytest.mark.parametrize(
    "changes",
    [
        {"failurePolicy": "Fail"},
        {"rules": []},
        {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
        {"matchConditions": []},
        {"namespaceSelector": {"matchLabels": {"a": "b"}}},
    ],
)
def test_a_configuration_that_somebody_changed_is_a_problem(changes: dict[str, Any]) -> None:
    changed = configuration()
    changed["webhooks"][0] |= changes
    assert only(amiss(configuration=changed)).message.startswith("clusterring-checksum is not what the ring asks for")


def test_a_namespace_selector_that_admission_narrows_is_a_warning() -> None:
    """GKE Autopilot does, with every write: no sharder takes it out."""
    added = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gke-gmp-system"]}
    changed = configuration()
    selector = changed["webhooks"][0]["namespaceSelector"]
    selector["matchExpressions"] = [*selector.get("matchExpressions", ()), added]
    finding = only(amiss(configuration=changed))
    assert (finding.level, "gke-gmp-system" in finding.message) == (Level.WARNING, True)
    assert "placed a moment after they were made" in finding.message
    assert "within a minute" not in finding.remedy.partition("anybody else's")[0]
    changed["webhooks"][0]["failurePolicy"] = "Fail"
    assert only(amiss(configuration=changed)).level is Level.PROBLEM


def test_the_path_of_another_ring_is_a_problem() -> None:
    changed = configuration()
    changed["webhooks"][0]["clientConfig"]["service"]["path"] = "/webhooks/sharder/clusterring/other"
    assert "which is not this ring's" in only(amiss(configuration=changed)).message


# -- certificates ---------------------------------------------------------------


def test_an_authority_that_has_ended_is_a_problem() -> None:
    old = authority(days=1, begins=-10 * DAY)
    finding = only(amiss(configuration=configuration(old.certificate.pem), serving=None))
    assert finding.level is Level.PROBLEM
    assert finding.message == "no authority in caBundle is valid now; the last one ended at 2029-12-23 12:00 UTC"


def test_an_authority_that_ends_soon_is_a_warning() -> None:
    old = authority(days=3)
    finding = only(amiss(configuration=configuration(old.certificate.pem), serving=None))
    assert (finding.level, finding.message) == (Level.WARNING, "the last authority in caBundle ends in 3d")


def test_a_serving_certificate_that_was_not_read_is_not_passed_over() -> None:
    finding = only(amiss(serving=None))
    assert (finding.topic, finding.level) == ("certificates", Level.SKIPPED)
    assert "until when the certificate is valid" in finding.message
    remedy = only(amiss(probe=Probe(Probed.SILENT, "secrets default/a"))).remedy
    assert "a serving certificate that has expired" in remedy


def test_one_valid_authority_is_enough() -> None:
    old = authority(days=1, begins=-10 * DAY)
    assert amiss(configuration=configuration(old.certificate.pem + SIGNER.certificate.pem)) == []


def test_a_bundle_that_does_not_trust_the_serving_certificate_is_a_problem() -> None:
    finding = only(amiss(serving=serving(authority()), probe=UNTRIED))
    assert finding.message == "caBundle does not hold the authority that signed the serving certificate"


def test_a_webhook_that_answered_serves_with_something_else_then() -> None:
    """Certificates come from elsewhere now, and the sharder's own Secret was left behind."""
    assert only(amiss(serving=serving(authority(), host="other"))).level is Level.SKIPPED


def test_a_serving_certificate_for_other_names_is_a_problem() -> None:
    assert only(amiss(serving=serving(SIGNER, host="other"))).message == (
        f"the serving certificate is not for {HOST}, by which the API server calls"
    )


@pytest.mark.parametrize(("days", "level"), [(0, Level.PROBLEM), (3, Level.WARNING)])
def test_a_serving_certificate_near_or_past_its_end(days: float, level: Level) -> None:
    assert only(amiss(serving=serving(SIGNER, days=days))).level is level


def test_what_is_no_certificate_is_a_problem() -> None:
    changed = configuration()
    changed["webhooks"][0]["clientConfig"]["caBundle"] = b64encode(b"nonsense").decode()
    assert only(amiss(configuration=changed)).message.startswith("caBundle cannot be read")
    changed["webhooks"][0]["clientConfig"]["caBundle"] = "???"
    assert only(amiss(configuration=changed)).message.startswith("caBundle cannot be read")


def test_without_a_bundle_it_depends_on_who_was_to_inject_it() -> None:
    bare = configuration(None)
    assert only(amiss(configuration=bare)).level is Level.WARNING
    bare["metadata"]["annotations"] = {"cert-manager.io/inject-ca-from": "sharding-system/webhook"}
    finding = only(amiss(configuration=bare))
    assert finding.message == "cert-manager has not injected the CA of sharding-system/webhook"


@pytest.mark.parametrize(
    ("client", "host"),
    [({"url": "https://[::1]:9443/x"}, "::1"), ({"service": SERVICE}, HOST), ({"url": "https://a.b/x"}, "a.b")],
)
def test_the_name_that_is_called(client: dict[str, Any], host: str) -> None:
    assert called_host(client) == host


# -- the way there ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (ServiceEvidence("s/n", False), "there is no Service s/n"),
        (ServiceEvidence("s/n", True, False, 1), "Service s/n does not have the port"),
        (ServiceEvidence("s/n", True, True, 0), "Service s/n has no ready endpoint"),
        (ServiceEvidence("s/n", True, True, 1), "the webhook did not put a label back"),
        (None, "the webhook did not put a label back"),
    ],
)
def test_a_call_without_answer_says_where_the_way_ends(service: ServiceEvidence | None, words: str) -> None:
    finding = only(amiss(service=service, probe=Probe(Probed.SILENT, "secrets default/a")))
    assert finding.level is Level.PROBLEM
    assert finding.message.startswith(words)


def test_who_may_neither_look_nor_call_does_not_know() -> None:
    assert only(amiss(read=False, configuration=None, probe=UNTRIED, service=None)).level is Level.UNKNOWN
    assert amiss(read=False, configuration=None, probe=ANSWERED, service=None) == []
    assert only(amiss(probe=UNTRIED, service=None)).level is Level.SKIPPED


def test_what_waits_for_rights_is_not_missed_in_the_configuration() -> None:
    whole = resolved_ring()
    first = whole.mains[0].resource.group_resource
    conditions = [{"type": "PermissionsGranted", "status": "False"}]
    nothing = part_in_force(whole, {"conditions": conditions, "placedResources": []})
    assert nothing.mains == ()
    placed = [{"group": first.group, "resource": first.resource}]
    part = part_in_force(whole, {"conditions": conditions, "placedResources": placed})
    assert [(main.resource.group_resource, main.controlled) for main in part.mains] == [(first, ())]
    assert part_in_force(whole, {"placedResources": []}) == whole, "nothing waits while nothing is missing"
    for ring in (part, nothing):
        rendered = render_webhook(ring, client_config={"service": SERVICE}, ca_bundle=SIGNER.certificate.pem)
        finding = only(amiss(ring=ring, configuration=rendered, waiting=True))
        assert "waits for rights" in finding.message
