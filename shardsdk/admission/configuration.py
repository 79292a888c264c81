"""What tells API servers of webhooks: their configurations, and the Service by which pods are called.

A webhook is not asked about objects that are on their way out, so that what has
become invalid can still be finished and go; nor, of a sharded operator, when an
object is given to another shard and nothing else of it changes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardsdk.admission.review import Operation
from shardsdk.admission.webhook import Sort, Webhook
from shardsdk.kinds import resource_of
from shardsdk.protocol.labels import UNCHANGED_BY_AKS, RingLabels, parse_ring_name
from shardsdk.protocol.objects import Resource

Manifest = dict[str, Any]

_GROUP: Final = ("admissionregistration.k8s.io", "v1")
VALIDATING: Final = Resource(
    *_GROUP, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
MUTATING: Final = Resource(*_GROUP, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False)
RESOURCES: Final = {Sort.VALIDATE: VALIDATING, Sort.MUTATE: MUTATING}

#: The port in the pod, and what it is called there.
PORT: Final = 9443
PORT_NAME: Final = "webhooks"


#: What API servers change in the metadata of an object with every write.
_SERVERS_OWN: Final = ("managedFields", "resourceVersion", "generation")

#: By which an operator's objects, and its pods, are found.
NAME_LABEL: Final = "app.kubernetes.io/name"


def labels_of(operator: str) -> dict[str, str]:
    """What an operator's objects and its pods are labelled with."""
    return {NAME_LABEL: operator}


def secret_name(operator: str) -> str:
    """The Secret in which replicas share authority and certificate."""
    return f"{operator}-webhook-certificates"


def service_name(operator: str) -> str:
    """The Service by which API servers call an operator's pods."""
    return f"{operator}-webhooks"


def render_service(operator: str, namespace: str) -> Manifest:
    """The Service; its pods have the label `app.kubernetes.io/name` and a port called `webhooks`."""
    labels = labels_of(operator)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service_name(operator), "namespace": namespace, "labels": labels},
        "spec": {"selector": labels, "ports": [{"name": "https", "port": 443, "targetPort": PORT_NAME}]},
    }


def own_rules(operator: str) -> list[Manifest]:
    """What takes care of the Secret, in the operator's own namespace.  Creation cannot be limited to a name."""
    secrets = {"apiGroups": [""], "resources": ["secrets"]}
    named = {"resourceNames": [secret_name(operator)]}
    return [{**secrets, "verbs": ["create"]}, {**secrets, **named, "verbs": ["get", "patch"]}]


def cluster_rules(operator: str, webhooks: Sequence[Webhook]) -> list[Manifest]:
    """What writes the authority into the configurations, which belong to the whole cluster."""
    resources = sorted({RESOURCES[each.sort].plural for each in webhooks})
    return [{"apiGroups": [_GROUP[0]], "resources": resources, "verbs": ["get", "patch"], "resourceNames": [operator]}]


def development_name(operator: str) -> str:
    """The configurations of a process outside of a pod: where the operator runs already, its own stay as they are."""
    return f"{operator}-dev"


def development_rules(name: str, webhooks: Sequence[Webhook]) -> list[Manifest]:
    """What makes, renews and takes away the configurations called `name`.  Creation cannot be limited to a name."""
    rules = {"apiGroups": [_GROUP[0]], "resources": sorted({RESOURCES[each.sort].plural for each in webhooks})}
    return [{**rules, "verbs": ["create"]}, {**rules, "verbs": ["get", "patch", "delete"], "resourceNames": [name]}]


def render_configurations(
    webhooks: Sequence[Webhook],
    name: str,
    client_config: Mapping[str, Any],
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    ca_bundle: bytes | None = None,
    namespaces: Sequence[str] = (),
    ring: str | None = None,
) -> list[Manifest]:
    """The configurations of `webhooks`, one for each sort, both called `name`.

    `client_config` says how API servers call, as in a WebhookClientConfig, but for the path.  `ca_bundle` (PEM) is
    what they trust (`None`: somebody fills that in).  `namespaces` are the only ones where webhooks are called that
    have no namespace selector (none: in all).  `ring` is the ring of a sharded operator.
    """
    metadata: Manifest = {
        "name": name,
        "labels": dict(labels),
        "annotations": {**UNCHANGED_BY_AKS, **(annotations or {})},
    }
    made = []
    for sort in (Sort.MUTATE, Sort.VALIDATE):
        entries = [
            {**_entry(each, namespaces, ring), "clientConfig": _client_config(each, client_config, ca_bundle)}
            for each in webhooks
            if each.sort is sort
        ]
        if entries:
            resource = RESOURCES[sort]
            made.append(
                {
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "metadata": metadata,
                    "webhooks": entries,
                }
            )
    return made


def _entry(webhook: Webhook, namespaces: Sequence[str], ring: str | None) -> Manifest:
    """All but how it is called."""
    resource = resource_of(webhook.kind)
    entry: Manifest = {
        "name": webhook.name,
        "admissionReviewVersions": ["v1"],
        "failurePolicy": webhook.on_failure,
        "matchConditions": [
            {"name": name, "expression": expression} for name, expression in _conditions(webhook, ring).items()
        ],
        "matchPolicy": "Equivalent",
        "namespaceSelector": _namespace_selector(webhook, namespaces if resource.namespaced else ()),
        "objectSelector": dict(webhook.object_selector),
        "rules": [
            {
                "apiGroups": [resource.group],
                "apiVersions": [resource.version],
                "operations": [each.value for each in webhook.operations],
                "resources": [resource.plural],
                "scope": "Namespaced" if resource.namespaced else "Cluster",
            }
        ],
        "sideEffects": "None",
        "timeoutSeconds": webhook.timeout_seconds,
    }
    if webhook.sort is Sort.MUTATE:
        entry["reinvocationPolicy"] = "IfNeeded"
    return entry


def _conditions(webhook: Webhook, ring: str | None) -> dict[str, str]:
    """CEL, all of which has to hold before an API server calls."""
    conditions = {"not-on-its-way-out": "object == null || !has(object.metadata.deletionTimestamp)"}
    if ring is not None and Operation.UPDATE in webhook.operations:
        conditions["more-than-another-shard"] = _more_than_another_shard(parse_ring_name(ring))
    return {**conditions, **webhook.conditions}


def _more_than_another_shard(labels: RingLabels) -> str:
    """Whether a write does not change the ring's labels, or anything besides."""
    ours = (labels.shard, labels.drain)
    same = " && ".join(
        f"object.metadata.?labels[?'{label}'] == oldObject.metadata.?labels[?'{label}']" for label in ours
    )
    beside = (
        _differ("{}", but=("metadata",)),
        _differ("{}.metadata", but=("labels", *_SERVERS_OWN)),
        _differ("{}.metadata.?labels.orValue({{}})", but=ours),
    )
    return f"request.operation != 'UPDATE' || ({same}) || {' || '.join(beside)}"


def _differ(place: str, *, but: Sequence[str]) -> str:
    """Whether what is at `place` of an object had another field, or another value of one, before."""
    new, old = place.format("object"), place.format("oldObject")
    others = f"!(name in {list(but)}) && {new}[?name] != {old}[?name]"
    return f"{new}.exists(name, {others}) || {old}.exists(name, {others})"


def _namespace_selector(webhook: Webhook, namespaces: Sequence[str]) -> Manifest:
    """Of the `namespaces` (empty: of all) those that the webhook's own selector selects."""
    own = dict(webhook.namespace_selector)
    if not namespaces:
        return own
    from shardsdk.protocol.namespaces import select_by_name  # of operators that watch some namespaces alone

    named = select_by_name(namespaces)["matchExpressions"]
    return {**own, "matchExpressions": [*(own.get("matchExpressions") or ()), *named]}


def _client_config(webhook: Webhook, given: Mapping[str, Any], ca_bundle: bytes | None) -> Manifest:
    config = dict(given)
    if "url" in config:
        config["url"] = config["url"].rstrip("/") + webhook.path
    if "service" in config:
        config["service"] = {**config["service"], "path": webhook.path}
    if ca_bundle is not None:
        config["caBundle"] = b64encode(ca_bundle).decode()
    return config
