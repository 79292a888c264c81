"""The MutatingWebhookConfiguration of a ring.

Does: render it whole, and say whether the one in the cluster is still like it.
Refuses: to call in for requests that need no answer; its match conditions (CEL,
evaluated in the API server) keep them out.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sharder.core.ringspec import ResolvedRing, Role
from shardsdk.protocol.labels import (
    API_GROUP,
    API_VERSION,
    LEASE_RING_LABEL,
    RING_KIND,
    SHARD_LABEL_PREFIX,
    UNCHANGED_BY_AKS,
    RingLabels,
)
from shardsdk.protocol.objects import Resource

WEBHOOK_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
    namespaced=False,
)  # fmt: skip
#: Where the sharder keeps certificates of its own making, in its own namespace.
CERTIFICATES_SECRET: Final = "sharder-webhook-certificates"
#: Begins the name of every configuration that the Go sharder makes for a ClusterRing.
GO_PREFIX: Final = "sharding-clusterring-"
#: Begins the name of every configuration of ours; the ring's name follows.
_PREFIX: Final = "clusterring-"
#: The one webhook in each configuration.
WEBHOOK_NAME: Final = "sharder.sharding.timebertt.dev"
#: Its path, which the ring's name follows.
WEBHOOK_PATH: Final = "/webhooks/sharder/clusterring/"
#: Names of the condition that keeps out what has a shard label and keeps it: without and with the sharder's account.
_NEW: Final = "lacks-the-shard-label-or-is-new"
_CHANGED: Final = "lacks-or-changes-the-shard-label-or-is-new"
#: Of API groups of Kubernetes itself; others have none (`apps`), or belong to custom resources.
_BUILT_IN_DOMAINS: Final = ("k8s.io", "authorization.k8s.io", "apiserver.k8s.io")
#: Of the condition that keeps out writes of a status but those of what wears the shard label: these may take it.
_WORN: Final = "is-no-status-or-wore-the-shard-label"
#: As which field manager the sharder writes: the program in its User-Agent, where a request does not say.
FIELD_MANAGER: Final = "sharder"
#: How long the API server waits for an answer, unless configured, before the object passes without one.
WEBHOOK_TIMEOUT_SECONDS: Final = 5


def webhook_name(ring: str) -> str:
    """Name of the configuration of the ring called `ring`."""
    return _PREFIX + ring


def ring_of_webhook(name: str) -> str | None:
    """The ring whose configuration would be called `name`; `None`: none."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def go_webhook_name(labels: RingLabels) -> str:
    """Name of the configuration that the Go sharder makes for the ring with these labels."""
    return "sharding-" + labels.shard.removeprefix(SHARD_LABEL_PREFIX)


def webhook_path(ring: str) -> str:
    """URL path that answers for the ring called `ring`."""
    return WEBHOOK_PATH + ring


def render_webhook(
    ring: ResolvedRing,
    *,
    client_config: Mapping[str, Any],
    ca_bundle: bytes | None = None,
    annotations: Mapping[str, str] | None = None,
    account: str = "",
    timeout_seconds: int = WEBHOOK_TIMEOUT_SECONDS,
) -> dict[str, Any]:
    """The configuration that `ring` should have.

    `account` is the user name under which the sharder writes: when anyone else
    puts another name into a shard label, it is called. Empty: not known, and
    such changes pass.

    `client_config` is a WebhookClientConfig without the ring's path: `url` or
    `service`, perhaps `caBundle`. `ca_bundle` (PEM) goes before the latter;
    without both the field is left to whoever injects it.
    """
    webhook = {
        **_webhook(ring, account),
        "clientConfig": _client_config(ring.spec.name, client_config, ca_bundle),
        "timeoutSeconds": timeout_seconds,
    }
    metadata: dict[str, Any] = {
        "name": webhook_name(ring.spec.name),
        "labels": {"app.kubernetes.io/name": "controller-sharding", LEASE_RING_LABEL: ring.spec.name},
        "ownerReferences": [
            {
                "apiVersion": f"{API_GROUP}/{API_VERSION}",
                "kind": RING_KIND,
                "name": ring.spec.name,
                "uid": ring.spec.uid,
                "controller": True,
            }
        ],
    }
    metadata["annotations"] = {**UNCHANGED_BY_AKS, **(annotations or {})}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": metadata,
        "webhooks": [webhook] if ring.mains else [],
    }


def differs(current: object, wanted: object) -> bool:
    """Whether `current` lacks anything of `wanted`; what the API server or others added doesn't count.

    Lists are compared entry by entry, in order.  Of a selector everything counts: one that is empty is to be so, for it
    selects everything, and what is added to another narrows it.
    """
    return find_difference(current, wanted) is not None


def find_difference(current: object, wanted: object, path: str = "") -> str | None:
    """The path of something by which `current` differs, as of `differs`; `None`: it doesn't."""
    inner: Iterable[tuple[str, object, object]]
    if isinstance(wanted, Mapping):
        if not isinstance(current, Mapping) or not wanted:
            return path if wanted or current else None
        if path.endswith("Selector") and current.keys() - wanted.keys():
            return path
        inner = ((f"{path}.{key}".lstrip("."), current.get(key), value) for key, value in wanted.items())
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        found = current if isinstance(current, Sequence) and not isinstance(current, str) else ()
        if len(found) != len(wanted):
            return path
        inner = ((f"{path}[{at}]", *each) for at, each in enumerate(zip(found, wanted, strict=True)))
    else:
        return path if current != wanted else None
    found_in = (find_difference(there, value, where) for where, there, value in inner)
    return next((where for where in found_in if where is not None), None)


def find_narrowing(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Any]:
    """Expressions that namespace selectors of `current` have beside those of `wanted`; none if it differs in more.

    An admission plugin of the cluster adds them with every write, so that no repair takes them out: GKE Autopilot, for
    namespaces of its own.
    """
    added: list[Any] = []
    webhooks = list(current.get("webhooks") or ())
    for at, (found, asked) in enumerate(zip(webhooks, wanted["webhooks"], strict=False)):
        selector, own = dict(found.get("namespaceSelector") or {}), asked["namespaceSelector"]
        listed = selector.pop("matchExpressions", ())
        kept = [each for each in listed if each in own.get("matchExpressions", ())]
        added += [each for each in listed if each not in kept]
        webhooks[at] = {**found, "namespaceSelector": {**selector, "matchExpressions": kept} if kept else selector}
    return [] if differs({**current, "webhooks": webhooks}, wanted) else added


def find_last_manager(configuration: Mapping[str, Any], ours: str) -> str:
    """The field manager that has written last, but for a status, as far as it is recorded; of one second not `ours`."""
    entries = configuration["metadata"].get("managedFields") or ()
    managers = (
        (str(each.get("time") or ""), each.get("manager") != ours, str(each.get("manager")))
        for each in entries
        if not each.get("subresource")
    )
    return max(managers, default=("", False, ""))[-1]


def without_additions(made: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The webhooks of `made`, which `wanted` was applied to, without those of others; `None`: there are none of others.

    Webhooks, and their conditions, are merged by name, so that others' stay; any condition may keep ours from being
    called.
    """
    found = made.get("webhooks") or []
    conditions = {each["name"]: each["matchConditions"] for each in wanted["webhooks"]}
    kept = [{**each, "matchConditions": conditions[each["name"]]} for each in found if each["name"] in conditions]
    return None if kept == found else kept


def match_conditions(ring: ResolvedRing, account: str = "") -> list[dict[str, str]]:
    """Conditions that all have to hold before the API server calls in; `object` is the new object."""
    conditions = [{"name": _NEW, "expression": _lacks_or_new(ring)}]
    if account:
        before, after = _changed_by_others(ring)
        conditions = [{"name": _CHANGED, "expression": before + _quote(account) + after}]
    if any(_status_has_labels(subject.resource) for subject in ring.subjects()):
        conditions.append({"name": _WORN, "expression": _is_no_status_or_wore(ring)})
    controlled = _is_controlled(ring)
    if controlled:
        conditions.append(
            {
                "name": "is-main-or-has-a-controller",
                "expression": f"!({controlled})"
                " || (has(object.metadata.ownerReferences)"
                " && object.metadata.ownerReferences.exists(r, has(r.controller) && r.controller))",
            }
        )
    return conditions


def account_in(webhook: Mapping[str, Any], ring: ResolvedRing) -> str:
    """The account that a webhook of `ring` takes for the sharder's; empty: it knows none."""
    before, after = _changed_by_others(ring)
    for condition in webhook.get("matchConditions") or ():
        expression = str(condition.get("expression"))
        if expression.startswith(before) and expression.endswith(after):
            return _unquote(expression[len(before) : -len(after)])
    return ""


def _lacks_or_new(ring: ResolvedRing) -> str:
    """A new main object is asked about whatever it wears: whoever makes it has copied that from another.

    A controlled one is not: shards label what they make, and would wait for an answer each time.
    """
    label, controlled = _quote(ring.spec.labels.shard), _is_controlled(ring)
    new = "request.operation == 'CREATE'" + (f" && !({controlled})" if controlled else "")
    return f"!has(object.metadata.labels) || !({label} in object.metadata.labels) || ({new})"


def _status_has_labels(resource: Resource) -> bool:
    """Whether a write of the status may change labels: of custom resources it changes nothing else, whatever it says.

    The webhook would be shown what it says, and be asked for nothing by whoever writes a status without labels.
    """
    _, _, domain = resource.group.partition(".")
    return domain in ("", *_BUILT_IN_DOMAINS)


def _is_no_status_or_wore(ring: ResolvedRing) -> str:
    """A write of a status may change labels of most built-in kinds; it places nothing that has no shard yet."""
    label = _quote(ring.spec.labels.shard)
    return (
        "!has(request.subResource) || request.subResource == ''"
        f" || (has(oldObject.metadata.labels) && {label} in oldObject.metadata.labels)"
    )


def _is_controlled(ring: ResolvedRing) -> str:
    """Whether the request is about a controlled resource; empty: the ring has none."""
    controlled = [
        _quote(f"{each.resource.group}/{each.resource.plural}")
        for each in ring.subjects()
        if each.role is Role.CONTROLLED
    ]
    listed = ", ".join(controlled)
    return f"(request.resource.group + '/' + request.resource.resource) in [{listed}]" if controlled else ""


def _changed_by_others(ring: ResolvedRing) -> tuple[str, str]:
    """What stands before and after the sharder's account in the condition that lets its own changes pass.

    On CREATE there is no old object.
    """
    label = _quote(ring.spec.labels.shard)
    before = f"{_lacks_or_new(ring)} || (request.operation == 'UPDATE' && request.userInfo.username != "
    after = (
        f" && has(oldObject.metadata.labels) && {label} in oldObject.metadata.labels"
        f" && oldObject.metadata.labels[{label}] != object.metadata.labels[{label}])"
    )
    return before, after


def _webhook(ring: ResolvedRing, account: str) -> dict[str, Any]:
    """All but where it is called, and how long it may take."""
    return {
        "name": WEBHOOK_NAME,
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "matchConditions": match_conditions(ring, account),
        "matchPolicy": "Equivalent",
        "namespaceSelector": ring.namespace_selector.render(),
        # A selector can neither compare nor tell a new object from another: the conditions do.
        "objectSelector": {},
        "reinvocationPolicy": "Never",
        "rules": _rules(ring),
        "sideEffects": "None",
    }


def _client_config(ring: str, given: Mapping[str, Any], ca_bundle: bytes | None) -> dict[str, Any]:
    config = dict(given)
    if config.get("url"):
        config["url"] = config["url"].rstrip("/") + webhook_path(ring)
    if config.get("service"):
        service = dict(config["service"])
        service["path"] = (service.get("path") or "").rstrip("/") + webhook_path(ring)
        config["service"] = service
    if ca_bundle is not None:
        config["caBundle"] = b64encode(ca_bundle).decode()
    return config


def _rules(ring: ResolvedRing) -> list[dict[str, Any]]:
    """One rule per API group, every version, no subresource but the status where a write of it may change labels."""
    groups: dict[str, set[str]] = {}
    for subject in ring.subjects():
        plurals = groups.setdefault(subject.resource.group, set())
        plurals.add(subject.resource.plural)
        if _status_has_labels(subject.resource):
            plurals.add(f"{subject.resource.plural}/status")
    return [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": sorted(plurals),
            "scope": "*",
        }
        for group, plurals in sorted(groups.items())
    ]


def _quote(text: str) -> str:
    """A CEL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _unquote(literal: str) -> str:
    """What `_quote` made a literal of."""
    return literal[1:-1].replace("\\'", "'").replace("\\\\", "\\")
