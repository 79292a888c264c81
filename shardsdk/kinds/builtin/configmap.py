"""The kind ConfigMap; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import ClassVar

from shardsdk.kinds.base import Kind
from shardsdk.protocol.objects import Resource


class ConfigMap(Kind, kw_only=True):
    """ConfigMap holds configuration data for pods to consume."""

    resource: ClassVar[Resource] = Resource("", "v1", "configmaps", "ConfigMap")

    binary_data: dict[str, bytes] = {}
    """BinaryData contains the binary data."""
    data: dict[str, str] = {}
    """Data contains the configuration data."""
    immutable: bool | None = None
    """Immutable, if set to true, ensures that data stored in the ConfigMap cannot be updated (only object metadata can
    be modified).
    """
