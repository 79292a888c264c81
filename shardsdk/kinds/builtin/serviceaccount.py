"""The kind ServiceAccount; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind
from shardsdk.kinds.builtin.shared import LocalObjectReference, ObjectReference
from shardsdk.protocol.objects import Resource


class ServiceAccount(Kind, kw_only=True):
    """ServiceAccount binds together: * a name, understood by users, and perhaps by peripheral systems, for an identity
    * a principal that can be authenticated and authorized * a set of secrets
    """

    resource: ClassVar[Resource] = Resource("", "v1", "serviceaccounts", "ServiceAccount")

    automount_service_account_token: bool | None = None
    """AutomountServiceAccountToken indicates whether pods running as this service account should have an API token
    automatically mounted.
    """
    image_pull_secrets: list[LocalObjectReference] = []
    """ImagePullSecrets is a list of references to secrets in the same namespace to use for pulling any images in pods
    that reference this ServiceAccount.
    """
    secrets: list[ObjectReference] = []
    """Secrets is a list of the secrets in the same namespace that pods running using this ServiceAccount are allowed
    to use.
    """
