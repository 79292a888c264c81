"""Judges a ring's webhook: its configuration, certificates, and whether it answers.

The configuration is compared with the one that the sharder would write, and
followed to Service and endpoints; certificates are read on the way.  The webhook
is not called from here: only the API server's way to it counts.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final
from urllib.parse import urlsplit

from sharder.core.granted import granted_part, unwritten
from sharder.core.ringspec import ResolvedRing, placed_resources
from sharder.core.webhookconfig import account_in, differs, find_narrowing, render_webhook, webhook_name
from sharder.kubectl.check.findings import Finding, Level, failed, good, problem, skipped, unknown, warning
from sharder.kubectl.outcomes import Unread
from sharder.kubectl.text import plural, span
from shardsdk.serving.x509_certificate import Certificate, parse_bundle

#: What is left of a certificate's life when its renewal is overdue: the sharder renews with a third left.
EXPIRING_SECONDS: Final = 14 * 86_400.0
_INJECTOR: Final = "cert-manager.io/inject-ca-from"
_PART: Final = "webhook"


class Probed(Enum):
    """What came of asking the API server to call the webhook."""

    ANSWERED = "the webhook put a label back that a dry run had taken off"
    SILENT = "the webhook did not put a label back that a dry run had taken off"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Probe:
    """A dry run that the webhook has to answer; `why` it was not tried, or what it was tried on."""

    probed: Probed
    why: str = ""


@dataclass(frozen=True, slots=True)
class ServiceEvidence:
    """The Service that the configuration names; `ready` endpoints (None: not read)."""

    name: str
    exists: bool | None
    port_served: bool = True
    ready: int | None = None


@dataclass(frozen=True, slots=True)
class WebhookEvidence:
    """What was read of a ring's webhook.

    `read` False: the configuration could not be read.  `serving`: the certificates
    that the sharder serves with (None: not its own, or not read).  `other`: the
    configuration that the Go sharder has made for the ring.  `whole` False: not all of
    the ring's resources are served, or could be looked up.  `failures`: what the API server failed over.
    `ring`: as far as it is in force; `waiting`: not all of it is, for want of rights.
    """

    ring: ResolvedRing
    read: bool
    configuration: Mapping[str, Any] | None
    service: ServiceEvidence | None
    serving: Sequence[Certificate] | None
    probe: Probe
    other: str | None = None
    whole: bool = True
    failures: tuple[Unread, ...] = ()
    waiting: bool = False


def part_in_force(ring: ResolvedRing, status: Mapping[str, Any]) -> ResolvedRing:
    """`ring` without what waits for rights by its `status`: while some are missing, what is not written down."""
    conditions = status.get("conditions") or ()
    if not any(each.get("type") == "PermissionsGranted" and each.get("status") == "False" for each in conditions):
        return ring
    placed = {name for name, _ in placed_resources(status)}
    return granted_part(ring, placed, unwritten(ring, placed))


def check_other(other: str | None, failures: Iterable[Unread]) -> Iterator[Finding]:
    """What it means that another sharder has made the webhook configuration `other`; `failures`: what was not read."""
    if other is not None:
        yield problem(
            _PART, f"MutatingWebhookConfiguration {other} of the Go sharder calls in for this ring, too",
            "stop the Go sharder if it still runs; the leading sharder then removes its configuration within a minute",
        )  # fmt: skip
    yield from (failed(_PART, gap) for gap in failures)


def check_webhook(evidence: WebhookEvidence, now: datetime) -> Iterator[Finding]:
    """Everything about it."""
    name = webhook_name(evidence.ring.spec.name)
    yield from check_other(evidence.other, evidence.failures)
    if not evidence.read:
        yield from _check_reach(evidence, read=False)
        return
    if evidence.configuration is None:
        yield warning(
            _PART, f"there is no MutatingWebhookConfiguration {name}; objects are placed a moment after they were made",
            "if it is not switched off on purpose (webhook.enabled), look into the log of the leading sharder",
        )  # fmt: skip
        return
    webhooks = evidence.configuration.get("webhooks") or []
    if evidence.waiting:
        yield warning(
            _PART, "it is not called for all that the ring lists: what is new there waits for rights",
            "grant what `permissions` names, or correct spec.resources",
        )  # fmt: skip
    if not webhooks:
        if evidence.ring.mains:
            yield problem(
                _PART, f"{name} has no webhooks", "look into the log of the leading sharder, which repairs it"
            )  # fmt: skip
        return
    client = webhooks[0].get("clientConfig") or {}
    yield from _check_configuration(evidence, client, name)
    yield from _check_certificates(evidence, client, now)
    yield from _check_reach(evidence, read=True)


def _check_configuration(evidence: WebhookEvidence, client: Mapping[str, Any], name: str) -> Iterator[Finding]:
    path = str(client.get("url") or (client.get("service") or {}).get("path") or "")
    if not path.endswith(f"/{evidence.ring.spec.name}"):
        yield problem(
            _PART, f"{name} calls {path or 'no path'}, which is not this ring's",
            "look into the log of the leading sharder, which repairs it",
        )  # fmt: skip
    if not evidence.whole:
        yield unknown(
            _PART, f"whether {name} is what the ring asks for: not all of its resources are known to be served"
        )
        return
    current = evidence.configuration or {}
    found = account_in((current.get("webhooks") or [{}])[0], evidence.ring)
    wanted = render_webhook(evidence.ring, client_config={}, account=found)
    # What the sharder is configured with is not known here.
    configured = ("clientConfig", "timeoutSeconds")
    expected = [{key: value for key, value in each.items() if key not in configured} for each in wanted["webhooks"]]
    if added := find_narrowing(current, {"webhooks": expected}):
        yield warning(
            _PART,
            f"the namespaceSelector of {name} is narrowed by {json.dumps(added)}: where it is not called, objects are"
            " placed a moment after they were made",
            "nothing, if an admission plugin of your cluster adds it to each webhook (GKE Autopilot does, for"
            " namespaces of its own); anybody else's change the leading sharder takes back within a minute",
        )
    elif differs(current, {"webhooks": expected}):
        yield problem(
            _PART, f"{name} is not what the ring asks for (rules, selectors or policies)",
            "the leading sharder puts it right within a minute; look into its log if it stays so",
        )  # fmt: skip


def _check_certificates(evidence: WebhookEvidence, client: Mapping[str, Any], now: datetime) -> Iterator[Finding]:
    topic = "certificates"
    bundle = client.get("caBundle")
    if not bundle:
        annotations = ((evidence.configuration or {}).get("metadata") or {}).get("annotations") or {}
        if _INJECTOR in annotations:
            yield problem(
                topic, f"cert-manager has not injected the CA of {annotations[_INJECTOR]}",
                "look at that Certificate and at cert-manager's cainjector",
            )  # fmt: skip
        else:
            yield warning(
                topic, "the configuration has no caBundle, so the API server trusts public authorities only",
                "set webhook.config.clientConfig.caBundle, unless the certificate is signed by one of those",
            )  # fmt: skip
        return
    try:
        authorities = parse_bundle(b64decode(bundle))
    except ValueError as error:
        yield problem(topic, f"caBundle cannot be read: {error}", "set it to base64 of PEM certificates")
        return
    of_authorities = _check_authorities(authorities, now)
    yield of_authorities
    if evidence.serving:
        answered = evidence.probe.probed is Probed.ANSWERED
        yield from _check_serving(evidence.serving[0], authorities, client, now, answered=answered)
    elif of_authorities.level is Level.OK:
        yield skipped(topic, "until when the certificate is valid that the sharder serves with was not read")


def _check_authorities(authorities: Sequence[Certificate], now: datetime) -> Finding:
    topic = "certificates"
    valid = [each for each in authorities if each.valid_at(now)]
    if not valid:
        latest = max(each.expires_at for each in authorities)
        return problem(
            topic, f"no authority in caBundle is valid now; the last one ended at {latest:%Y-%m-%d %H:%M} UTC",
            "look into the leading sharder's log, or renew what webhook.config.clientConfig.caBundle has",
        )  # fmt: skip
    left = max((each.expires_at - now).total_seconds() for each in valid)
    if left < EXPIRING_SECONDS:
        return warning(
            topic, f"the last authority in caBundle ends in {span(left)}",
            "look into the leading sharder's log: its own authority is renewed long before; renew any other by hand",
        )  # fmt: skip
    return good(topic, f"the authority is valid for {span(left)}")


def _check_serving(
    serving: Certificate,
    authorities: Sequence[Certificate],
    client: Mapping[str, Any],
    now: datetime,
    *,
    answered: bool,
) -> Iterator[Finding]:
    """`answered`: the webhook was called and trusted, so whatever it serves with is in order."""
    topic, before = "certificates", 0
    if not any(serving.signed_by(each) for each in authorities):
        if answered:
            yield skipped(topic, "the sharder's Secret is not what it serves with; the one in use was not read")
            return
        before += 1
        yield problem(
            topic, "caBundle does not hold the authority that signed the serving certificate",
            "look into the leading sharder's log: it writes caBundle",
        )  # fmt: skip
    left = (serving.expires_at - now).total_seconds()
    if not serving.valid_at(now):
        before += 1
        yield problem(topic, "the serving certificate is not valid now", "look into the sharder's log: it renews it")
    elif left < EXPIRING_SECONDS:
        before += 1
        yield warning(topic, f"the serving certificate ends in {span(left)}", "look into the sharder's log")
    if (host := called_host(client)) not in serving.dns_names | serving.addresses:
        before += 1
        yield problem(
            topic, f"the serving certificate is not for {host}, by which the API server calls",
            "correct webhook.config.clientConfig; the sharder renews its certificate for the names there",
        )  # fmt: skip
    if not before:
        yield good(topic, f"the serving certificate is valid for {span(left)}, for {host}")


def called_host(client: Mapping[str, Any]) -> str:
    """The name under which the API server calls."""
    if client.get("url"):
        return urlsplit(str(client["url"])).hostname or ""
    service = client.get("service") or {}
    return f"{service.get('name')}.{service.get('namespace')}.svc"


def _check_reach(evidence: WebhookEvidence, *, read: bool) -> Iterator[Finding]:
    """Does the API server get an answer?"""
    topic, probe, service = "reachable", evidence.probe, evidence.service
    if probe.probed is Probed.ANSWERED:
        yield good(topic, f"{probe.probed.value} ({probe.why})")
        return
    if service is not None and service.exists is False:
        yield problem(topic, f"there is no Service {service.name}", "create it, or correct webhook.config.clientConfig")
    elif service is not None and not service.port_served:
        yield problem(topic, f"Service {service.name} does not have the port", "correct webhook.config.clientConfig")
    elif service is not None and service.ready == 0:
        yield problem(
            topic, f"Service {service.name} has no ready endpoint",
            "look at the sharder's pods (/readyz says what they wait for) and at the Service's selector",
        )  # fmt: skip
    elif probe.probed is Probed.SILENT:
        yield problem(
            topic, f"{probe.probed.value} ({probe.why})",
            "let the API server reach it (Service, firewall, NetworkPolicy) and trust it (CA, or a serving certificate"
            " that has expired); look into its log for this call, and for its certificate",
        )  # fmt: skip
    elif service is not None and service.ready:
        yield good(
            topic,
            f"Service {service.name} has {plural(service.ready, 'ready endpoint')}; no call was made: {probe.why}",
        )
    elif read:
        yield skipped(topic, f"no call was made: {probe.why}")
    else:
        yield unknown("webhook", f"its configuration could not be read, and no call was made: {probe.why}")
