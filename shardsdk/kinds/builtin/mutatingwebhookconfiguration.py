"""The kind MutatingWebhookConfiguration, and what it is made of; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind, Model
from shardsdk.kinds.builtin.shared import LabelSelector, MatchCondition, RuleWithOperations, WebhookClientConfig
from shardsdk.protocol.objects import Resource


class MutatingWebhook(Model, kw_only=True):
    """MutatingWebhook describes an admission webhook and the resources and operations it applies to."""

    admission_review_versions: list[str]
    """admissionReviewVersions is an ordered list of preferred `AdmissionReview` versions the Webhook expects."""
    client_config: WebhookClientConfig
    """clientConfig defines how to communicate with the hook."""
    failure_policy: str | None = None
    """failurePolicy defines how unrecognized errors from the admission endpoint are handled - allowed values are
    Ignore or Fail.
    """
    match_conditions: list[MatchCondition] | None = None
    """matchConditions is a list of conditions that must be met for a request to be sent to this webhook."""
    match_policy: str | None = None
    """matchPolicy defines how the "rules" list is used to match incoming requests."""
    name: str
    """name is the name of the admission webhook."""
    namespace_selector: LabelSelector | None = None
    """namespaceSelector decides whether to run the webhook on an object based on whether the namespace for that object
    matches the selector.
    """
    object_selector: LabelSelector | None = None
    """objectSelector decides whether to run the webhook based on if the object has matching labels. objectSelector is
    evaluated against both the oldObject and newObject that would be sent to the webhook, and is considered to match
    if either object matches the selector.
    """
    reinvocation_policy: str | None = None
    """reinvocationPolicy indicates whether this webhook should be called multiple times as part of a single admission
    evaluation.
    """
    rules: list[RuleWithOperations] | None = None
    """rules describes what operations on what resources/subresources the webhook cares about."""
    side_effects: str
    """sideEffects states whether this webhook has side effects."""
    timeout_seconds: int | None = None
    """timeoutSeconds specifies the timeout for this webhook."""


class MutatingWebhookConfiguration(Kind, kw_only=True):
    """MutatingWebhookConfiguration describes the configuration of and admission webhook that accept or reject and may
    change the object.
    """

    resource: ClassVar[Resource] = Resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False)

    webhooks: list[MutatingWebhook] = []
    """webhooks is a list of webhooks and the affected resources and operations."""
