"""The kind ControllerRevision; written by `make kinds` from Kubernetes' OpenAPI."""

from __future__ import annotations

from typing import Any, ClassVar

from shardsdk.kinds.base import Kind
from shardsdk.protocol.objects import Resource


class ControllerRevision(Kind, kw_only=True):
    """ControllerRevision implements an immutable snapshot of state data."""

    resource: ClassVar[Resource] = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")

    data: dict[str, Any] = {}
    """Data is the serialized representation of the state."""
    revision: int
    """Revision indicates the revision of the state represented by Data."""
